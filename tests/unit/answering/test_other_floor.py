"""A forced strategy that needs another floor is refused with what it would cost, never answered from what stands."""

import pytest

from orchestrator.answering.refused import refuse_other_floor
from orchestrator.errors import InvalidRequest
from orchestrator.prompt.coverage import FloorTier, Room, TierSizes
from orchestrator.prompt.strategy import Asked, Standing, decide
from orchestrator.prompt.tasks import Task

SIZES = TierSizes(full=60_000, skeleton=9_000, map=2_000)
ROOM = Room(window=131_072, identity=100, kv_tokens=500_000)
ASKED = Asked(Task.UNKNOWN, window=131_072, used=3_000)


def decided(tier, tokens, forced):
    return decide(Standing(tier, 60_000, tokens), ASKED, forced=forced, sizes=SIZES, room=ROOM)


def test_cag_on_a_map_is_refused_and_names_the_tier_it_needs():
    with pytest.raises(InvalidRequest, match="needs the tier full") as refused:
        refuse_other_floor(decided(FloorTier.MAP, 2_000, "cag"))
    assert "lore load PATH --tier full (60,100 tokens to compute)" in refused.value.hint
    assert "beside" not in refused.value.message + refused.value.hint


def test_a_forced_strategy_that_the_floor_allows_is_not_refused():
    refuse_other_floor(decided(FloorTier.FULL, 60_000, "cag"))
    refuse_other_floor(decided(FloorTier.MAP, 2_000, "rag"))
