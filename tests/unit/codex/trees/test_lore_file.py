"""`.lore.toml`: read with suspicion, because it comes with the code."""

import os
from pathlib import Path

import pytest

from codex.errors import SourceError
from codex.library import Library
from codex.trees.lore_file import LORE_FILE, LoreFile, parse_lore_file, read_lore_file
from codex.trees.sources import LoadSpec


def test_what_it_says_is_read_and_the_rest_is_not_there():
    raw = b'tier = "map"\nexclude = ["data/"]\nmap_share = 0.2\nmap_window = 8000\n'
    assert parse_lore_file(raw, "x") == LoreFile("map", (), ("data/",), {"map_share": 0.2, "map_window": 8000})


def test_a_folder_without_one_says_nothing(tmp_path):
    assert read_lore_file(tmp_path) == LoreFile()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("excludes = []", "did you mean 'exclude'"),
        ("zzz = 1", "the keys are tier"),
        ("tier = 3", "tier must be a word"),
        ("include = 'x'", "include must be a list"),
        ("overhead = 1.5", "a share from 0 to 1"),
        ("overhead = true", "a share from 0 to 1"),
        ("overhead = nan", "a share from 0 to 1"),
        ("map_window = 0.5", "a whole number"),
        ("= =", "is not TOML"),
        ("# " + "x" * 70_000, "larger than 64 KiB"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(text, said):
    with pytest.raises(SourceError, match=said):
        parse_lore_file(text.encode(), "here")


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text('tier = "map"')
    (tmp_path / LORE_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SourceError, match="plain file"):
        read_lore_file(tmp_path)


def test_a_pipe_is_refused_and_nobody_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / LORE_FILE)
    with pytest.raises(SourceError, match="plain file"):
        read_lore_file(tmp_path)


def test_its_globs_hold_for_a_load_but_can_not_name_a_secret(tmp_path):
    root = folder(tmp_path / "code", {"a.py": "x = 1\n", "b.txt": "b\n", ".env": "TOKEN=1\n"})
    (root / LORE_FILE).write_text('include = ["*.py", ".env", "/.env", "b.txt"]\nexclude = ["c.py"]')
    assert loaded(tmp_path, root) == {"a.py", "b.txt"}


def test_a_key_of_very_many_parts_is_refused_before_it_is_read():
    with pytest.raises(SourceError, match="more than 64 parts; the keys are tier"):
        parse_lore_file(b"a." * 30_000 + b"a = 1", "x")
    assert parse_lore_file(b'include = ["a.b.c.d/*.min.js", "x.y.z"]', "x").include[1] == "x.y.z"


def folder(root: Path, files: dict[str, str]) -> Path:
    root.mkdir()
    for name, text in files.items():
        (root / name).write_text(text)
    return root


def loaded(place: Path, root: Path) -> set[str]:
    library = Library(place / "library")
    try:
        return set(library.load(LoadSpec((str(root),))).generation.digests())
    finally:
        library.close()
