"""A disk without room: what is needed is refused by name, and what is only kept to be quicker is done without."""

import logging
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from support.small_disk import small_disk

from codex.catalog.catalog import Catalog
from codex.catalog.databases import SqliteBytesCache, open_database
from codex.catalog.generations import FileEntry, KnownFile
from codex.catalog.tokens import TokenStore
from codex.errors import CatalogError, DiskFull
from codex.library import Library
from codex.trees.port import TreeState
from codex.trees.sources import LoadSpec
from orchestrator.answering.sessions import SessionStore
from orchestrator.codices.state_store import CodexStateStore, FrozenLevels, Wishes
from orchestrator.errors import LoreError
from orchestrator.model.meaning import Refusals

SCHEMA = ("CREATE TABLE t (a BLOB)",)


class Words:
    name = "words"

    def encode_many(self, texts: Sequence[str]) -> list["array[int]"]:
        return [array("I", map(len, text.split())) for text in texts]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", "600k") as place:
        yield place


def fill(disk: Path, left: int = 0) -> None:
    """`left`: bytes that are free afterwards, in pages."""
    with (disk / "filling").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            file.truncate(file.tell() // 4096 * 4096 - left)


def empty(disk: Path) -> None:
    (disk / "filling").unlink()


@pytest.mark.parametrize("pages", range(0, 12, 2))
@pytest.mark.parametrize("open_it", [lambda path: open_database(path, SCHEMA), SessionStore], ids=["codex", "sessions"])
def test_a_database_for_which_there_is_no_room_is_named_with_the_reason(
    disk: Path, pages: int, open_it: Callable[[Path], object]
) -> None:
    fill(disk, pages * 4096)
    with pytest.raises((DiskFull, LoreError), match=f"no room left for {disk}/x.sqlite"):
        open_it(disk / "x.sqlite")


@pytest.mark.parametrize("pages", range(8))
def test_a_database_that_stood_before_the_disk_was_full_opens_or_says_that_it_is(disk: Path, pages: int) -> None:
    open_database(disk / "x.sqlite", SCHEMA).close()
    fill(disk, pages * 4096)
    with suppress(DiskFull):
        open_database(disk / "x.sqlite", SCHEMA).close()
    empty(disk)
    open_database(disk / "x.sqlite", SCHEMA).close()


def store_files(catalog: Catalog, size: int) -> None:
    for number in range(20):
        catalog.store("a", {f"{number}": KnownFile("", f"{number}", size)}, {f"{number}": bytes(size)})


@pytest.mark.parametrize("size", [50_000, 150_000, 250_000])
def test_a_load_that_the_disk_refuses_leaves_the_room_that_the_next_one_needs(disk: Path, size: int) -> None:
    catalog = Catalog(disk / "catalog.sqlite")
    catalog.register("a", "source", ["/a"], "{}")
    with pytest.raises(DiskFull, match="no room left for"):
        store_files(catalog, size)
    assert len(catalog.known("a")) < 20
    catalog.forget_paths("a", catalog.known("a"))
    catalog.store("a", {"b": KnownFile("", "b", 1)}, {"b": b"1"})
    assert catalog.freeze("a", TreeState(), [FileEntry("b", "b", 1)], {}, ()).number == 1
    catalog.close()


def bytes_of(path: Path) -> int:
    return sum(one.stat().st_size for one in path.parent.glob(f"{path.name}*") if not one.name.endswith("-shm"))


def test_a_codex_that_is_dropped_gives_its_room_back_to_the_disk_while_the_catalog_is_open(disk: Path) -> None:
    catalog = Catalog(disk / "catalog.sqlite")
    empty_bytes = bytes_of(disk / "catalog.sqlite")
    catalog.register("a", "source", ["/a"], "{}")
    with pytest.raises(DiskFull, match="free some on that disk"):
        store_files(catalog, 50_000)
    catalog.drop("a")
    assert bytes_of(disk / "catalog.sqlite") <= empty_bytes
    catalog.close()


def test_a_load_leaves_no_log_behind_whether_it_ends_well_or_not(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("a = 1\n")
    library = Library(disk / "library")
    log = disk / "library" / "catalog.sqlite-wal"
    library.load(LoadSpec((str(tmp_path / "code"),), name="code"))
    assert log.stat().st_size == 0
    for number in range(20):
        (tmp_path / "code" / f"{number}.txt").write_text(os.urandom(30_000).hex("\n", -40))
    with pytest.raises(DiskFull):
        library.load(LoadSpec((str(tmp_path / "code"),), name="code"))
    assert log.stat().st_size == 0
    library.close()


@pytest.mark.parametrize(("make", "kind"), [(os.mkfifo, "a FIFO"), (os.mkdir, "a folder")])
def test_what_is_no_file_is_said_by_its_kind(tmp_path: Path, make: Callable[[Path], None], kind: str) -> None:
    make(tmp_path / "x.sqlite")
    with pytest.raises(CatalogError, match=f"x.sqlite cannot be used: it is {kind}"):
        open_database(tmp_path / "x.sqlite", SCHEMA)
    with pytest.raises(LoreError, match=f"x.sqlite cannot be used: it is {kind}"):
        SessionStore(tmp_path / "x.sqlite")


@pytest.mark.parametrize("when", ["opened", "open"])
def test_texts_are_tokenised_also_where_they_cannot_be_kept(
    disk: Path, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    texts = [f"{'word ' * 500}{number}" for number in range(300)]
    if when == "open":
        store = TokenStore(disk / "tokens.sqlite3")
        fill(disk)
    else:
        fill(disk)
        store = TokenStore(disk / "tokens.sqlite3")
    assert store.counts(Words(), texts) == [501] * 300
    assert [len(ids) for ids in store.ids(Words(), texts)] == [501] * 300
    assert (store.trim(0), store.bytes()) == (0, 0)
    assert len(caplog.records) == 1
    assert "no room left for" in caplog.text
    empty(disk)
    store.ids(Words(), texts[:3])
    assert store.bytes() == 3 * 501 * 4
    store.close()


def test_a_cache_in_whose_place_something_else_stands_is_done_without(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokens.sqlite3")
    os.mkfifo(tmp_path / "prepared.sqlite3")
    assert TokenStore(tmp_path / "tokens.sqlite3").counts(Words(), ["a b"]) == [2]
    remembered = SqliteBytesCache(tmp_path / "prepared.sqlite3")
    remembered.put([("a", b"1")])
    assert remembered.get("a") is None


@pytest.mark.parametrize("when", ["opened", "open"])
def test_what_is_remembered_stays_when_the_disk_is_full(disk: Path, when: str) -> None:
    remembered = SqliteBytesCache(disk / "r.sqlite3")
    remembered.put([("a", b"1")])
    if when == "opened":
        remembered.close()
    fill(disk)
    remembered.put([("b", bytes(100_000))])
    assert remembered.get("a") in (b"1", None)  # None where not even the index of the log has room
    empty(disk)
    assert remembered.get("a") == b"1"
    remembered.close()


def test_levels_that_cannot_be_written_are_the_same_until_the_program_ends(disk: Path) -> None:
    ledger = CodexStateStore(disk / "l.sqlite3")
    old, many, new = FrozenLevels("3", 10), FrozenLevels("3" * 600_000, 20), FrozenLevels("1", 30)
    ledger.freeze("a", 1, "map", old)
    fill(disk)
    ledger.freeze("a", 2, "map", many)
    assert (ledger.frozen("a", 2), ledger.frozen("a", 1)) == ({"map": many}, {"map": old})
    with pytest.raises(DiskFull, match="no room left"):
        ledger.wish("a", coverage="map")
    empty(disk)
    ledger.freeze("a", 3, "map", new)
    assert (ledger.frozen("a", 2), ledger.frozen("a", 3)) == ({}, {"map": new})
    ledger.close()


def test_a_codex_can_be_dropped_from_a_full_disk_and_leaves_nothing_to_the_next_of_its_name(disk: Path) -> None:
    ledger = CodexStateStore(disk / "ledger.sqlite3")
    for name in ("a", "b"):
        ledger.wish(name, coverage="map")
        ledger.asked(name, ["x.py"])
        ledger.freeze(name, 1, "map", FrozenLevels("1", 10))
    fill(disk)
    for name in ("a", "b"):
        ledger.forget(name)
        assert (ledger.wishes(name), dict(ledger.touched(name)), ledger.frozen(name, 1)) == (Wishes(), {}, {})
    ledger.freeze("a", 1, "map", FrozenLevels("2", 10))
    assert ledger.frozen("a", 1) == {"map": FrozenLevels("2", 10)}
    empty(disk)
    ledger.wish("a", watch=True)
    assert (ledger.wishes("a"), dict(ledger.touched("a")), ledger.frozen("b", 1)) == (Wishes(None, True), {}, {})
    ledger.close()
    again = CodexStateStore(disk / "ledger.sqlite3")
    assert again.wishes("a") == Wishes(None, True)
    assert again.noted() == {"a", "b"}, "a start forgets it"
    again.close()


def test_a_text_that_is_refused_is_known_also_where_that_cannot_be_written(disk: Path) -> None:
    fill(disk)
    refusals = Refusals(disk / "unembeddable.sqlite3")
    refusals.add("model", "text", "too odd")
    assert refusals.any("model", ["text"])
    refusals.close()
