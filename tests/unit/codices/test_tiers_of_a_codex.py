"""The lower tiers of a real library's codex: bounded, remembered, and the hot files that were earned."""

import pytest

from codex.catalog.databases import SqliteBytesCache
from codex.catalog.generations import FileEntry
from codex.library import Library
from codex.trees.sources import LoadSpec
from orchestrator.codices.building import Lines
from orchestrator.codices.coverages import CoverageDrafter, chosen, most_telling
from orchestrator.prompt.coverage import Coverage, CoverageSettings, FloorRoom

ROOM = FloorRoom(window=32_000, identity=100, kv_tokens=32_000)


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


def drafting(library, tmp_path, read=None):
    return CoverageDrafter(
        read or library.catalog.documents, count, SqliteBytesCache(tmp_path / "r.sqlite3"), CoverageSettings()
    )


def test_skeletons_and_map_tell_definitions_with_their_lines(library, tmp_path):
    made = drafting(library, tmp_path).drafts(
        library.catalog.generation("demo"), ROOM, None, lambda _: None, ranked=True
    )
    assert made.skeletons["core.py"] == "1 def used(x): Says x.\n"
    assert "1 def used(x)" in made.map_text
    assert made.skeleton_tokens and made.map_tokens
    assert max(made.ranks, key=made.ranks.__getitem__) == "core.py"


def test_what_was_made_once_is_neither_read_nor_parsed_again(library, tmp_path):
    generation = library.catalog.generation("demo")
    first = drafting(library, tmp_path).drafts(generation, ROOM, None, lambda _: None, ranked=False)

    def never(entries):
        assert not entries, "nothing is to be read"
        return iter(())

    again = drafting(library, tmp_path, never).drafts(generation, ROOM, None, lambda _: None, ranked=False)
    assert (again.skeletons, again.map_text) == (first.skeletons, first.map_text)


def test_a_codex_far_too_large_for_its_room_gets_no_skeleton_unless_forced(library, tmp_path):
    small = FloorRoom(window=32_000, identity=0, kv_tokens=1)
    generation = library.catalog.generation("demo")
    assert drafting(library, tmp_path).drafts(generation, small, None, lambda _: None, ranked=False).skeletons == {}
    forced = drafting(library, tmp_path).drafts(generation, small, Coverage.SKELETON, lambda _: None, ranked=False)
    assert len(forced.skeletons) == 6


def test_hot_files_are_those_that_questions_touched(library):
    generation = library.catalog.generation("demo")
    hot = chosen(generation, {}, {}, {}, {"user3.py": 4}, 20, count, library.catalog.documents)
    assert hot[0] == "user3.py"


def test_the_most_telling_files_are_source_near_the_top_within_the_bytes():
    entries = [FileEntry("tests/test_a.py", "1", 10), FileEntry("src/deep/b.py", "2", 10), FileEntry("c.py", "3", 10)]
    assert [one.path for one in most_telling(entries, 20)] == ["src/deep/b.py", "c.py"]


def test_lines_are_counted_when_somebody_asks(library):
    lines = Lines(library.catalog.generation("demo").digests(), library.catalog.document_by_digest)
    assert (lines["core.py"], "nope.py" in lines, len(lines)) == (53, False, 6)
    assert Lines({"core.py": "0" * 64}, library.catalog.document_by_digest)["core.py"] == 0
