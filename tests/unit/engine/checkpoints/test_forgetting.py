"""What goes from the tiers with a dropped floor, however long what hangs behind it is."""

from array import array
from collections.abc import Iterator

import pytest

from orchestrator.engine.checkpoints.file import SegmentHeader
from orchestrator.engine.checkpoints.forgetting import forget_chain, forget_from
from orchestrator.engine.checkpoints.segments import segments
from orchestrator.engine.checkpoints.store import Tiers

FLOOR = array("I", range(512))


@pytest.fixture
def tiers() -> Iterator[Tiers]:
    kept = Tiers("root", None, 1 << 30, 0)
    yield kept
    kept.close()


def keep(tiers: Tiers, ids: "array[int]", cut: int, owner: int = 1) -> list[SegmentHeader]:
    """All segments of a path."""
    headers = [
        SegmentHeader("root", one.name, one.parent, one.start, one.end, ids[one.start : one.end])
        for one in segments("root", ids, cut, owner, len(ids))
    ]
    for header in headers:
        tiers.keep(header, b"state", through=False)
    return headers


def held(tiers: Tiers, headers: list[SegmentHeader]) -> list[bool]:
    return [tiers.holds(header.name) for header in headers]


def test_a_tail_of_half_a_million_tokens_goes_with_its_floor(tiers: Tiers) -> None:
    tail = keep(tiers, FLOOR + array("I", range(2000 * 256)), len(FLOOR))
    forget_chain(tiers, [one.name for one in tail[:2]], ())
    assert tiers.figures()["tier_segments"] == 0


def test_what_hangs_behind_a_segment_goes_the_last_ones_first(tiers: Tiers, monkeypatch: pytest.MonkeyPatch) -> None:
    tail = keep(tiers, FLOOR + array("I", range(1000)), len(FLOOR))
    order: list[str] = []
    monkeypatch.setattr(tiers, "forget", order.append)
    forget_from(tiers, tail[2])
    assert order == [one.name for one in reversed(tail[2:])]


def test_behind_its_end_conversations_go_and_longer_floors_stay_with_theirs(tiers: Tiers) -> None:
    longer = keep(tiers, FLOOR + array("I", [7] * 300), 700)
    mine, yours = (keep(tiers, FLOOR + array("I", [owner] * 300), len(FLOOR), owner) for owner in (1, 2))
    forget_chain(tiers, [one.name for one in longer[:2]], ())
    assert held(tiers, longer) == [True] * 4
    assert held(tiers, [*mine[2:], *yours[2:]]) == [False] * 4


def test_what_another_floor_is_made_of_stays_though_nothing_goes_on_from_it(tiers: Tiers) -> None:
    floor = keep(tiers, FLOOR + array("I", [7] * 300), 812)
    names = [one.name for one in floor]
    forget_chain(tiers, names, names[:2])
    assert held(tiers, floor) == [True, True, False, False]
