"""A process that ends while LanceDB reads must not be followed by one that ends the same way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from codex.archive.archive import Archive
from codex.archive.lance import ReadingMark
from codex.documents import Document, digest_of
from codex.errors import ArchiveDamaged

ROOT = Path(__file__).resolve().parents[4]
ENDING = """
import os, signal, sys
from pathlib import Path
from codex.archive import queries as lance_queries
from codex.archive import tables as lance_tables
from codex.archive.archive import Archive
from codex.documents import Document

def ends(*args):
    os.abort() if sys.argv[3] == "abort" else os.kill(os.getpid(), signal.SIGKILL)

module, name = {"read": (lance_queries, "best_chunks"), "open": (lance_tables, "check_columns"),
                "written": (lance_tables, "chunk_rows")}[sys.argv[2]]
archive = Archive(Path(sys.argv[1]))
setattr(module, name, ends)
archive.matches("c", ["word"], 1) if sys.argv[2] != "written" else archive.replace("c", [Document("b.py", "b\\n", "b", 2)])
"""


def document(path: str, text: str) -> Document:
    return Document(path, text, digest_of(text.encode()), len(text))


DOCUMENTS = [document(f"{name}.py", f"def word_{name}():\n    return 1\n") for name in "ab"]


def stored(root: Path) -> Archive:
    archive = Archive(root)
    archive.replace("c", DOCUMENTS)
    assert len(archive.matches("c", ["word"], 5)) == 2
    return archive


def process_ends(root: Path, where: str, how: str = "abort") -> None:
    ended = subprocess.run(
        [sys.executable, "-P", "-c", ENDING, str(root), where, how],
        check=False,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert ended.returncode < 0, ended.stderr


@pytest.mark.parametrize(("where", "how"), [("open", "abort"), ("read", "kill")])
def test_what_was_read_when_two_processes_in_a_row_ended_is_set_aside_and_indexed_again(
    tmp_path: Path, where: str, how: str
) -> None:
    stored(tmp_path)
    process_ends(tmp_path, where, how)
    process_ends(tmp_path, where, how)
    archive = Archive(tmp_path)
    with pytest.raises(ArchiveDamaged, match="ended while"):
        archive.matches("c", ["word"], 5)
    assert [path.name for path in tmp_path.glob("*.damaged")] != []
    assert archive.held("c") == {}
    archive.index("c", DOCUMENTS)
    assert len(Archive(tmp_path).matches("c", ["word"], 5)) == 2


def test_one_process_that_ended_may_have_been_killed_and_costs_nothing(tmp_path: Path) -> None:
    held = stored(tmp_path).held("c")
    process_ends(tmp_path, "read", "kill")
    archive = Archive(tmp_path)
    assert archive.held("c") == held
    assert len(archive.matches("c", ["word"], 5)) == 2


def test_many_reads_that_went_well_make_an_earlier_end_forgotten(tmp_path: Path) -> None:
    (tmp_path / "reading").write_bytes(b"1")
    mark = ReadingMark(tmp_path)
    for _ in range(100):
        with mark.reading():
            pass
    with mark.reading():
        assert (tmp_path / "reading").read_bytes() == b"1"
    mark.close()
    assert not ReadingMark(tmp_path).left_behind()


def test_what_was_only_written_when_a_process_ended_stays(tmp_path: Path) -> None:
    """LanceDB's commits are whole or not there, and a load that was killed goes on where it was."""
    held = stored(tmp_path).held("c")
    process_ends(tmp_path, "written")
    assert Archive(tmp_path).held("c") == held


def test_another_process_that_lives_may_be_reading(tmp_path: Path) -> None:
    archive = stored(tmp_path)
    with archive._open["c"].mark.reading():
        assert len(Archive(tmp_path).matches("c", ["word"], 5)) == 2


def test_a_mark_stands_until_the_last_reader_has_left(tmp_path: Path) -> None:
    mark, file = ReadingMark(tmp_path), tmp_path / "reading"
    with mark.reading():
        with mark.reading():
            assert file.read_bytes() == b"1"
        assert file.read_bytes() == b"1"
    assert file.read_bytes() == b"0"
    assert not ReadingMark(tmp_path).left_behind()


def test_an_error_of_a_reader_leaves_no_mark(tmp_path: Path) -> None:
    mark = ReadingMark(tmp_path)
    with pytest.raises(KeyError), mark.reading():
        raise KeyError
    assert not mark.left_behind()


def test_without_a_place_to_write_nothing_is_marked_and_nothing_fails(tmp_path: Path) -> None:
    mark = ReadingMark(tmp_path / "nowhere")
    with mark.reading():
        assert not mark.left_behind()


def test_a_closed_mark_is_left_behind_by_nobody_also_while_somebody_reads(tmp_path: Path) -> None:
    mark = ReadingMark(tmp_path)
    with mark.reading():
        mark.close()
        assert not ReadingMark(tmp_path).left_behind()
        with (tmp_path / "other").open("wb", buffering=0) as other:  # has the number that the mark had
            mark.close()
            with mark.reading():
                assert not mark.left_behind()
            assert other.write(b"x") == 1
    assert (tmp_path / "other").read_bytes() == b"x"
