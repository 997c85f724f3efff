"""Turns kept for a time: each text once, the oldest gone first, one user's apart from another's."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.small_disk import small_disk
from support.traced import check, composed, traced

from orchestrator.answering.traces import TraceKeeper, TraceStore
from orchestrator.errors import InvalidRequest, LoreError, NotFound

DAY = 86_400.0
FLOOR = "".join(f"def function_{n}(): return {n * n * 7919 % 10007}\n" for n in range(20_000))


@pytest.fixture
def now() -> list[float]:
    return [1_000_000.0]


@pytest.fixture
def opened(tmp_path: Path, now: list[float]) -> Iterator[Callable[..., TraceStore]]:
    made = []

    def open_(days: float = 30, most: int = 10**9) -> TraceStore:
        made.append(TraceStore(tmp_path / "traces.sqlite3", days, most, lambda: now[0]))
        return made[-1]

    yield open_
    for one in made:
        one.close()


def names(store: TraceStore, uid: int = 1000) -> list[str]:
    return [one.id for one in store.all_of(uid, 100)]


def test_a_floor_is_written_once_however_many_turns_have_it(opened: Callable[..., TraceStore]) -> None:
    store = opened()
    store.keep(traced("first", composed(code=FLOOR)))
    first = store.held
    store.keep(traced("second", composed("And x?", ["Where is main?", "In a.py."], code=FLOOR)))
    assert first > 100_000
    assert store.held - first < 3_000
    check(store)


def test_a_trace_is_found_by_the_beginning_of_its_id_and_the_last_by_its_name(
    opened: Callable[..., TraceStore],
) -> None:
    store = opened()
    store.keep(traced("abc1"))
    store.keep(traced("abd2"))
    assert [store.get(1000, name).id for name in ("abc", "abd2", "last")] == ["abc1", "abd2", "abd2"]
    with pytest.raises(InvalidRequest, match="several traces begin with ab"):
        store.get(1000, "ab")
    for unknown in ("", "x", "abc12", "%"):
        with pytest.raises(NotFound):
            store.get(1000, unknown)


def test_another_users_trace_is_not_found(opened: Callable[..., TraceStore]) -> None:
    store = opened()
    store.keep(traced("theirs", uid=1001))
    store.keep(traced("mine"))
    assert (names(store), names(store, 1001), names(store, 1002)) == (["mine"], ["theirs"], [])
    for ask in (
        lambda: store.get(1000, "theirs"),
        lambda: store.difference(1000, "mine", "theirs"),
        lambda: store.vote(1000, "theirs", "up", ""),
    ):
        with pytest.raises(NotFound):
            ask()
    assert store.get(1001, "last").vote is None


def test_traces_go_after_their_days(opened: Callable[..., TraceStore], now: list[float]) -> None:
    store = opened(days=30)
    store.keep(traced("old"))
    now[0] += 20 * DAY
    store.keep(traced("young"))
    now[0] += 11 * DAY
    store.keep(traced("new"))
    assert names(store) == ["new", "young"]
    check(store)


def test_of_too_many_bytes_the_oldest_go_first_and_those_voted_up_last(opened: Callable[..., TraceStore]) -> None:
    store = opened()
    for number in range(6):
        store.keep(traced(f"trace{number}", composed(f"Question {number}?", code=FLOOR[: 40_000 + number])))
    store.vote(1000, "trace0", "up", "right")
    store.vote(1000, "trace5", "down", "wrong")
    store.most = store.held // 2
    store.prune()
    assert names(store) == ["trace5", "trace0"]
    assert store.held <= store.most
    check(store)


def test_a_full_disk_loses_traces_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with small_disk(tmp_path / "small", "600k") as disk:
        store = TraceStore(disk / "traces.sqlite3", 30, 10**9)
        keeper = TraceKeeper(store)
        (disk / "filling").write_bytes(bytes(400_000))
        with pytest.raises(LoreError, match="no room left"):
            store.keep(traced("lost", composed(code=FLOOR)))
        with caplog.at_level(logging.WARNING):
            for number in range(3):
                keeper.later(traced(f"lost{number}", composed(code=FLOOR)))
            keeper._thread.submit(int).result()
        assert caplog.text.count("traces of answers are not kept") == 1
        assert names(store) == []
        (disk / "filling").unlink()
        keeper.later(traced("kept"))
        keeper._thread.submit(int).result()
        assert names(store) == ["kept"]
        keeper.close()


def test_what_was_handed_over_is_kept_before_the_keeper_closes(opened: Callable[..., TraceStore]) -> None:
    keeper = TraceKeeper(opened())
    for number in range(5):
        keeper.later(traced(f"trace{number}"))
    keeper.close()
    assert len(names(opened())) == 5


def test_a_difference_names_what_a_conversation_added(opened: Callable[..., TraceStore]) -> None:
    store = opened()
    store.keep(traced("a", composed("One?")))
    store.keep(traced("b", composed("Two?", ["One?", "Yes."])))
    store.keep(traced("c", composed("Two?", ["One?", "Yes."], code="x = 2\n")))
    told = {block.block: block for block in store.difference(1000, "a", "b").blocks}
    assert [name for name, block in told.items() if not block.same] == ["state", "query"]
    found = store.difference(1000, "b", "c")
    assert found.broke_at is not None
    assert (found.broke_at.block, found.broke_at.item) == ("codex", "a.py")
    assert [block.changed for block in found.blocks if not block.same] == [("a.py",)]
