"""A forced tier that does not fit: refused to the load that asks for it, told and replaced everywhere else."""

import pytest

from orchestrator.codices.building import decided
from orchestrator.errors import OverBudget
from orchestrator.prompt.coverage import Coverage, CoverageSettings, CoverageSizes, FloorRoom

SIZES = CoverageSizes(full=20_000, skeleton=None, map=500)
SMALL, LARGE = (
    FloorRoom(window=8_000, identity=100, kv_tokens=8_000),
    FloorRoom(window=64_000, identity=100, kv_tokens=64_000),
)


def test_it_stands_where_it_fits():
    decision, why_not = decided(SIZES, LARGE, CoverageSettings(), Coverage.FULL)
    assert (decision.coverage, why_not) == (Coverage.FULL, ())


def test_a_load_that_asks_for_it_is_refused_with_the_numbers():
    with pytest.raises(OverBudget, match="20,000 tokens"):
        decided(SIZES, SMALL, CoverageSettings(), Coverage.FULL, strict=True)


def test_after_a_restart_what_fits_stands_instead_with_a_notice():
    decision, (why_not,) = decided(SIZES, SMALL, CoverageSettings(), Coverage.FULL)
    assert decision.coverage is Coverage.MAP
    assert why_not.startswith("coverage full was forced, but 20,000 tokens do not fit")


def test_a_tier_that_is_not_made_for_the_codex_gives_way_too():
    decision, (why_not,) = decided(SIZES, LARGE, CoverageSettings(), Coverage.SKELETON)
    assert decision.coverage is Coverage.FULL
    assert "skeleton" in why_not
