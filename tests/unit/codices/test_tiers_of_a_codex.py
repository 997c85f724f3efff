"""The levels of a real library's files: remembered, and earned."""

from dataclasses import replace

import pytest

from codex.catalog.databases import SqliteBytesCache
from codex.catalog.generations import FileEntry
from codex.library import Library
from codex.outline.coverage import FileLevel
from codex.progress import silent
from codex.trees.sources import LoadSpec
from formatters.context import CodexPiece
from formatters.writers import piece_text
from orchestrator.codices.building import Lines
from orchestrator.codices.coverages import LINES_FIRST, Grading, Outliner, most_telling, whole_piece


def count(texts):
    return [len(text) // 4 for text in texts]


@pytest.fixture
def library(tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "core.py").write_text("def used(x):\n    '''Says x.'''\n    return x\n" + "# filler\n" * 50)
    for number in range(5):
        (code / f"user{number}.py").write_text(
            f"from core import used\n\n\ndef f{number}():\n    return used({number})\n"
        )
    library = Library(tmp_path / "library")
    library.load(LoadSpec((str(code),), "demo"))
    yield library
    library.close()


def outliner(library, tmp_path, read=None):
    return Outliner(read or library.catalog.documents, SqliteBytesCache(tmp_path / "r.sqlite3"))


def grading(library, tmp_path, **changes):
    entries = library.catalog.generation("demo").entries
    known = outliner(library, tmp_path).outlined(entries, silent)
    return replace(Grading(entries, known, {}, {}, {}, count, library.catalog.documents), **changes)


def test_skeletons_and_lines_tell_definitions(library, tmp_path):
    known = outliner(library, tmp_path).outlined(library.catalog.generation("demo").entries, silent)
    assert known["core.py"].piece("core.py", FileLevel.SKELETON).text == "1 def used(x): Says x.\n"
    assert piece_text(known["core.py"].piece("core.py", FileLevel.LINE)) == "core.py: used\n"


def test_a_text_that_is_no_longer_than_its_skeleton_is_whole_instead(library, tmp_path):
    (tmp_path / "code" / "tiny.cfg").write_text("a = 1\n")
    library.load(LoadSpec((str(tmp_path / "code"),), "demo"))
    tiny = outliner(library, tmp_path).outlined(library.catalog.generation("demo").entries, silent)["tiny.cfg"]
    assert tiny.piece("tiny.cfg", FileLevel.SKELETON) == CodexPiece(path="tiny.cfg", text="a = 1\n")


def test_what_was_outlined_once_is_neither_read_nor_parsed_again(library, tmp_path):
    entries = library.catalog.generation("demo").entries
    first = outliner(library, tmp_path).outlined(entries, silent)

    def never(entries):
        assert not entries, "nothing is to be read"
        return iter(())

    assert outliner(library, tmp_path, never).outlined(entries, silent) == first


def test_what_others_use_comes_before_them_in_a_map(library, tmp_path):
    chosen = grading(library, tmp_path).of_map(12)
    assert chosen["core.py"] is FileLevel.SKELETON
    assert max(level for path, level in chosen.items() if path != "core.py") < FileLevel.SKELETON


def test_a_fifth_of_a_maps_room_names_files_before_outlines_take_it(library, tmp_path):
    code = tmp_path / "code"
    for number in range(5):
        bodies = [f"def step_{one}(value):\n    return value + {one}\n" for one in range(60)]
        (code / f"user{number}.py").write_text("from core import used\n\n" + "\n".join(bodies))
    library.load(LoadSpec((str(code),), "demo"))
    one = grading(library, tmp_path)
    room = sum(one.tokens(FileLevel.SKELETON)) // 2
    assert sum(one.tokens(FileLevel.LINE)) < LINES_FIRST * room
    chosen = one.of_map(room)
    assert set(chosen.values()) == {FileLevel.LINE, FileLevel.SKELETON}, "every file is named, and some have outlines"


def test_of_bodies_those_that_questions_touched_come_first(library, tmp_path):
    least = sum(grading(library, tmp_path).tokens(FileLevel.SKELETON))
    chosen = grading(library, tmp_path, touched={"user3.py": 4}).with_whole_files(least + 12)
    assert [path for path, level in chosen.items() if level is FileLevel.FULL] == ["user3.py"]


def test_bodies_that_are_not_counted_are_counted_where_they_have_a_chance(library, tmp_path):
    counted = {
        one.path: count([piece_text(whole_piece(one))])[0]
        for one in library.catalog.documents(library.catalog.generation("demo").entries)
    }
    for room in (5, 20, 60, 500):
        least = sum(grading(library, tmp_path).tokens(FileLevel.SKELETON))
        with_counts = grading(library, tmp_path, bodies=counted).with_whole_files(least + room)
        assert grading(library, tmp_path).with_whole_files(least + room) == with_counts


def test_the_most_telling_files_are_source_near_the_top_within_the_bytes():
    entries = [FileEntry("tests/test_a.py", "1", 10), FileEntry("src/deep/b.py", "2", 10), FileEntry("c.py", "3", 10)]
    assert [one.path for one in most_telling(entries, 20)] == ["src/deep/b.py", "c.py"]


def test_lines_are_counted_when_somebody_asks(library):
    lines = Lines(library.catalog.generation("demo").digests(), library.catalog.document_by_digest)
    assert (lines["core.py"], "nope.py" in lines, len(lines)) == (53, False, 6)
    assert Lines({"core.py": "0" * 64}, library.catalog.document_by_digest)["core.py"] == 0
