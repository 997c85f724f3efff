"""What was wished of a codex, what floors were made of, and what questions touched."""

import pytest

from codex.errors import DiskFull
from codex.library import Library
from codex.trees.sources import LoadSpec
from formatters.context import IdentityView
from orchestrator.codices.lifecycle import codices_of
from orchestrator.codices.state_store import STATES, CodexStateStore, FrozenLevels, ResidentIdentity, Wishes, kept_sizes
from orchestrator.prompt.coverage import CoverageSizes


def test_questions_are_counted_by_file_and_codex(tmp_path):
    ledger = CodexStateStore(tmp_path / "l.sqlite3")
    ledger.asked("a", ["x.py", "x.py", "y.py"])
    ledger.asked("a", ["x.py"])
    ledger.asked("b", ["x.py"])
    assert ledger.touched("a") == {"x.py": 2, "y.py": 1}


LEVELS, OTHERS = FrozenLevels("0123", 900), FrozenLevels("2222", 9_000)


def test_levels_are_those_of_one_generation_and_coverage_also_after_a_restart(tmp_path):
    CodexStateStore(tmp_path / "l.sqlite3").freeze("a", 2, "map", LEVELS)
    ledger = CodexStateStore(tmp_path / "l.sqlite3")
    assert (ledger.frozen("a", 2), ledger.frozen("a", 3), ledger.frozen("b", 2)) == ({"map": LEVELS}, {}, {})
    ledger.freeze("a", 2, "skeleton+hot", OTHERS)
    assert ledger.frozen("a", 2) == {"map": LEVELS, "skeleton+hot": OTHERS}, (
        "a coverage that comes back is the same prefix"
    )
    ledger.freeze("a", 3, "map", OTHERS)
    assert (ledger.frozen("a", 2), ledger.frozen("a", 3)) == ({"skeleton+hot": OTHERS}, {"map": OTHERS})


def test_a_wish_stands_until_another_load_says_otherwise(tmp_path):
    ledger = CodexStateStore(tmp_path / "l.sqlite3")
    assert ledger.wishes("a") == Wishes()
    ledger.wish("a", coverage="map", watch=False)
    ledger.wish("a")
    assert CodexStateStore(tmp_path / "l.sqlite3").wishes("a") == Wishes("map", False)
    ledger.wish("a", coverage="auto")
    assert ledger.wishes("a") == Wishes(None, False)
    ledger.wish("a", watch=True)
    assert ledger.wishes("a") == Wishes(None, True)


def test_wishes_that_are_taken_back_leave_none_of_the_later_ones(tmp_path):
    ledger = CodexStateStore(tmp_path / "l.sqlite3")
    ledger.wish("a", coverage="map", watch=True)
    ledger.rewish("a", Wishes("full", None))
    assert ledger.wishes("a") == Wishes("full", None)
    ledger.rewish("b", Wishes())
    assert ledger.wishes("b") == Wishes()


def test_a_dropped_codex_is_forgotten(tmp_path):
    ledger = CodexStateStore(tmp_path / "l.sqlite3")
    ledger.asked("a", ["x.py"])
    ledger.freeze("a", 1, "map", LEVELS)
    ledger.wish("a", coverage="map")
    ledger.forget("a")
    assert (dict(ledger.touched("a")), ledger.frozen("a", 1), ledger.wishes("a")) == ({}, {}, Wishes())


def test_what_was_noted_of_codices_that_are_no_more_is_forgotten(tmp_path):
    ledger = CodexStateStore(tmp_path / "l.sqlite3")
    for name in ("a", "b", "c"):
        ledger.wish(name, coverage="map")
    ledger.asked("d", ["x.py"])
    assert ledger.noted() == {"a", "b", "c", "d"}
    library = Library(tmp_path / "codices")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.py").write_text("x = 1\n")
    library.load(LoadSpec((str(tmp_path / "b"),), name="b"))
    assert codices_of(library, ledger) == ["b"]
    assert ledger.noted() == CodexStateStore(tmp_path / "l.sqlite3").noted() == {"b"}
    library.close()


def test_after_a_start_codices_are_raised_in_order_of_last_use(tmp_path):
    ledger, library = CodexStateStore(tmp_path / "l.sqlite3"), Library(tmp_path / "codices")
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.py").write_text("x = 1\n")
        library.load(LoadSpec((str(tmp_path / name),), name=name))
    ledger.asked("a", ["x.py"], 10.0)
    ledger.asked("c", [])
    assert codices_of(library, CodexStateStore(tmp_path / "l.sqlite3")) == ["c", "a", "b"]
    ledger.asked("a", [])
    assert codices_of(library, ledger) == ["a", "c", "b"]
    ledger.forget("a")
    assert (ledger.used("a"), ledger.used("b")) == (0.0, 0.0)
    library.close()


def test_a_damaged_file_is_begun_again(tmp_path):
    (tmp_path / "l.sqlite3").write_bytes(b"no database at all" * 100)
    assert dict(CodexStateStore(tmp_path / "l.sqlite3").touched("a")) == {}


def test_where_nothing_can_be_written_the_question_that_was_answered_goes_on(tmp_path, monkeypatch):
    def full(work):
        raise DiskFull("no room left")

    ledger = CodexStateStore(tmp_path / "l.sqlite3")
    monkeypatch.setattr(ledger._file, "write", full)
    ledger.asked("a", ["x.py"])
    ledger.now_resident(
        "a", ResidentIdentity("1 full m", IdentityView(name="lorekeep", version="v1", text="You are brief."))
    )
    assert (ledger.used("a"), ledger.last_resident("a", "lorekeep")) == (0.0, None)


def test_damage_that_shows_late_begins_it_again_too(tmp_path):
    path = tmp_path / "l.sqlite3"
    ledger = CodexStateStore(path)
    ledger.asked("a", [f"{number:04}.py" for number in range(500)])
    ledger.close()
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\xa5" * (len(raw) - 4096)  # the first page, with the schema, is whole
    path.write_bytes(raw)
    ledger = CodexStateStore(path)
    assert dict(ledger.touched("a")) == {}
    ledger.asked("a", ["x.py"])
    assert ledger.touched("a") == {"x.py": 1}


@pytest.mark.parametrize("name", ["wal", "shm"])
def test_what_lay_beside_a_damaged_file_goes_with_it(tmp_path, name):
    (tmp_path / "l.sqlite3").write_bytes(b"no database at all" * 100)
    (tmp_path / f"l.sqlite3-{name}").write_bytes(b"left behind by a process that was killed")
    ledger = CodexStateStore(tmp_path / "l.sqlite3")
    ledger.asked("a", ["x.py"])
    assert ledger.touched("a") == {"x.py": 1}


def test_how_large_codices_are_is_known_before_anything_else_is_opened(tmp_path):
    assert kept_sizes(tmp_path) == {}
    store = CodexStateStore(tmp_path / STATES)
    store.sized("demo", CoverageSizes(1000, 300, 50, ("full",)))
    store.sized("demo", CoverageSizes(1200, 300, 50))
    store.sized("gone", CoverageSizes(7))
    store.forget("gone")
    store.close()
    assert kept_sizes(tmp_path) == {"demo": CoverageSizes(1200, 300, 50)}
    (tmp_path / STATES).write_bytes(b"no database")
    assert kept_sizes(tmp_path) == {}
