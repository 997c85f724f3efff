"""What goes from the store with a dropped floor, however long what hangs behind it is."""

from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.engine.checkpoints.file import SegmentHeader
from orchestrator.engine.checkpoints.segments import segments
from orchestrator.engine.checkpoints.store import CheckpointStore
from orchestrator.engine.messages import UNSEEN

FLOOR = array("I", range(512))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CheckpointStore]:
    kept = CheckpointStore("root", tmp_path, 1 << 30)
    yield kept
    kept.close()


def keep(store: CheckpointStore, ids: "array[int]", cut: int, owner: int = 1) -> list[SegmentHeader]:
    """All segments of a path."""
    headers = [
        SegmentHeader("root", one.name, one.parent, one.start, one.end, ids[one.start : one.end])
        for one in segments("root", ids, cut, owner, len(ids))
    ]
    for header in headers:
        store.keep(header, b"state", UNSEEN)
    return headers


def held(store: CheckpointStore, headers: list[SegmentHeader]) -> list[bool]:
    return [store.holds(header.name) for header in headers]


def test_a_tail_of_half_a_million_tokens_goes_with_its_floor(store: CheckpointStore) -> None:
    tail = keep(store, FLOOR + array("I", range(2000 * 256)), len(FLOOR))
    store.forget_chain([one.name for one in tail[:2]], ())
    assert store.figures()["tier_segments"] == 0


def test_what_hangs_behind_a_segment_goes_the_last_ones_first(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = keep(store, FLOOR + array("I", range(1000)), len(FLOOR))
    order: list[str] = []
    monkeypatch.setattr(store, "forget", order.append)
    store.forget_from(tail[2])
    assert order == [one.name for one in reversed(tail[2:])]


def test_behind_its_end_conversations_go_and_longer_floors_stay_with_theirs(store: CheckpointStore) -> None:
    longer = keep(store, FLOOR + array("I", [7] * 300), 700)
    mine, yours = (keep(store, FLOOR + array("I", [owner] * 300), len(FLOOR), owner) for owner in (1, 2))
    store.forget_chain([one.name for one in longer[:2]], ())
    assert held(store, longer) == [True] * 4
    assert held(store, [*mine[2:], *yours[2:]]) == [False] * 4


def test_what_another_floor_is_made_of_stays_though_nothing_goes_on_from_it(store: CheckpointStore) -> None:
    floor = keep(store, FLOOR + array("I", [7] * 300), 812)
    names = [one.name for one in floor]
    store.forget_chain(names, names[:2])
    assert held(store, floor) == [True, True, False, False]
