"""Law: outside a repository our walk takes exactly the files that git would list, whatever the ignore files say."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import few

from codex.settings import SecretSettings, WalkSettings
from codex.trees.ignore import IgnoreRules, Selection
from codex.trees.walk import DiskTree

NAMES = ["a", "b", "f1.py", "f2.py", "x.txt", "sub", "Doc"]
ATOMS = ["a", "b", "*.py", "f?.py", "*.txt", "sub", "Doc", "*", "**", "f[12].py", "[!f]*", "x.tx[a-z]", "\\*.py", "f1*"]
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
PATTERNS = st.builds(
    lambda negated, rooted, atoms, folder: negated + rooted + "/".join(atoms) + folder,
    st.sampled_from(["", "", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(st.sampled_from(ATOMS), min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
)
RULES = st.lists(st.one_of(PATTERNS, st.sampled_from(["# remark", "", "  ", "a/**", "!*/", "*.py  "])), max_size=6)
FOLDERS = st.lists(st.sampled_from(NAMES), max_size=2).map("/".join)

needs_git = pytest.mark.skipif(subprocess.run(["git", "--version"], capture_output=True).returncode != 0, reason="git")


def grow(root: Path, paths: list[str], rules: dict[str, list[str]], rule_file: str) -> None:
    for path in paths:
        place = root
        for part in path.split("/")[:-1]:
            if (place / part).is_file():
                break
            place = place / part
        place.mkdir(parents=True, exist_ok=True)
        if not (place / path.rpartition("/")[2]).exists():
            (place / path.rpartition("/")[2]).write_text("x\n")
    for folder, patterns in rules.items():
        if (root / folder).is_dir():
            (root / folder / rule_file).write_text("\n".join(patterns) + "\n")


def as_git_lists(root: Path, rule_file: str) -> set[str]:
    """What git says of the same tree, with a repository that lies elsewhere."""
    with tempfile.TemporaryDirectory() as elsewhere:
        environment = {**os.environ, "GIT_DIR": elsewhere, "GIT_WORK_TREE": str(root), "HOME": elsewhere}
        subprocess.run(["git", "init", "-q", "--bare", elsewhere], check=True, env={**os.environ, "HOME": elsewhere})
        listed = subprocess.run(
            ["git", "-c", "core.bare=false", "ls-files", "-z", "-o", f"--exclude-per-directory={rule_file}"],
            cwd=root,
            env=environment,
            capture_output=True,
            check=True,
        ).stdout
    return {os.fsdecode(path) for path in listed.split(b"\0") if path}


def tree(root: Path) -> DiskTree:
    selection = Selection(WalkSettings(), SecretSettings())
    return DiskTree(root, selection, max_files=1000, max_file_bytes=1 << 20)


@needs_git
@few(25)
@given(paths=st.lists(PATHS, min_size=1, max_size=12), rules=st.dictionaries(FOLDERS, RULES, max_size=3))
def test_a_plain_walk_takes_what_git_would_list(paths: list[str], rules: dict[str, list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        grow(root, paths, rules, ".gitignore")
        assert {one.origin for one in tree(root).scan().candidates} == as_git_lists(root, ".gitignore")


@needs_git
@few(25)
@given(paths=st.lists(PATHS, min_size=1, max_size=12), rules=st.dictionaries(FOLDERS, RULES, max_size=3))
def test_loreignore_means_what_git_would_read_in_it(paths: list[str], rules: dict[str, list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        grow(root, paths, rules, ".loreignore")

        def read(path: str) -> bytes | None:
            return (root / path).read_bytes() if (root / path).is_file() else None

        ours = IgnoreRules(".loreignore", read)
        everything = {os.path.relpath(Path(at) / name, root) for at, _, names in os.walk(root) for name in names}
        assert {path for path in everything if not ours.verdict(path)} == as_git_lists(root, ".loreignore")


@needs_git
@few(12)
@given(
    paths=st.lists(PATHS, min_size=1, max_size=12),
    rules=st.dictionaries(FOLDERS, RULES, max_size=2),
    tracked=st.lists(PATHS, max_size=3),
)
def test_inside_a_repository_the_walk_takes_what_git_lists(
    paths: list[str], rules: dict[str, list[str]], tracked: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        grow(root, paths + tracked, rules, ".gitignore")
        git = ["git", "-C", folder]
        subprocess.run([*git, "init", "-q"], check=True)
        for path in tracked:
            if (root / path).is_file():
                subprocess.run([*git, "add", "-f", path], check=True)
        listed = subprocess.run(
            [*git, "ls-files", "-coz", "--exclude-standard"], capture_output=True, check=True
        ).stdout
        assert {one.origin for one in tree(root).scan().candidates} == {
            os.fsdecode(path) for path in listed.split(b"\0") if path
        }
