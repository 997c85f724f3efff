"""Files of identities are written whole or not at all, and nowhere else."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.codices.identities import check, place_of, write
from orchestrator.codices.serving_identities import MOST_BYTES
from orchestrator.errors import InvalidRequest

TEXTS = ("a" * 200_000, "b" * 200_000)
WRITER = """
import sys
from pathlib import Path
from orchestrator.codices.identities import write
path = Path(sys.argv[1])
while True:
    for text in ("a" * 200_000, "b" * 200_000):
        write(path, text)
        print(flush=True)
"""


def test_a_kill_in_mid_write_leaves_one_of_the_texts_whole(tmp_path):
    path = tmp_path / "identities" / "mine.md"
    for writes in range(1, 6):
        with subprocess.Popen([sys.executable, "-P", "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            for _ in range(writes):
                writer.stdout.readline()
            writer.kill()
        assert path.read_text() in TEXTS
        assert [one.name for one in path.parent.glob("*.md")] == ["mine.md"]


def test_what_a_killed_write_left_is_removed_by_a_later_one_and_a_running_one_keeps_its_part(tmp_path):
    old, running, other = (tmp_path / name for name in (".mine.abc.part", ".mine.def.part", ".mine.part.md"))
    for one in (old, running, other):
        one.write_text("half")
    os.utime(old, (1.0, 1.0))
    os.utime(other, (1.0, 1.0))
    write(tmp_path / "yours.md", "You answer.\n")
    assert {one.name for one in tmp_path.iterdir()} == {running.name, other.name, "yours.md"}


@given(st.text())
def test_what_a_name_leads_to_lies_in_the_folder_or_the_name_is_refused(tmp_path_factory, name):
    folder = tmp_path_factory.getbasetemp()
    try:
        path = place_of(folder, name)
    except InvalidRequest:
        return
    assert path.parent == folder
    assert path.name == f"{name}.md"


@given(st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), min_size=1).filter(str.strip))
def test_a_text_that_is_taken_is_read_back_as_it_was(tmp_path_factory, text):
    check(text)
    path = tmp_path_factory.mktemp("folder") / "one.md"
    write(path, text)
    assert path.read_text("utf-8") == text


@pytest.mark.parametrize("text", ["", " \n\t", "a\0b", "\x1b[31mred", "\ud800", "a" * (MOST_BYTES + 1)])
def test_what_is_no_text_of_an_identity_is_refused(text):
    with pytest.raises(InvalidRequest):
        check(text)


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path):
    (tmp_path / "mine.md").mkdir()
    with pytest.raises(InvalidRequest, match="is no file"):
        place_of(tmp_path, "mine")
