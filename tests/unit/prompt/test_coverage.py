"""How much of a codex stands in the prefix."""

from dataclasses import replace

import pytest

from governor.settings import PressureSettings
from orchestrator.errors import InvalidRequest, OverBudget
from orchestrator.prompt.coverage import (
    Coverage,
    CoverageSizes,
    FloorRoom,
    Pending,
    available,
    change_due,
    coverage_named,
    decide_coverage,
    limit_of,
    redecide,
)

SIZES = CoverageSizes(full=60_000, skeleton=12_000, map=5_000)
ROOM = FloorRoom(window=100_000, identity=200, kv_tokens=1_000_000, kv_bytes_per_token=131_072)


def room(**changes: object) -> FloorRoom:
    return replace(ROOM, **changes)  # type: ignore[arg-type]


def test_the_limit_is_the_least_of_available_share_and_kv() -> None:
    assert limit_of(ROOM) == 70_000
    assert limit_of(room(identity=20_000)) == 55_000
    assert limit_of(room(kv_tokens=10)) == 10
    assert available(room(identity=200_000)) == 0
    assert limit_of(room(kv_tokens=-5)) == 0


def test_a_codex_that_fits_stands_whole() -> None:
    decision = decide_coverage(SIZES, ROOM)
    assert (decision.coverage, decision.row, decision.tokens) == (Coverage.FULL, 1, 60_000)
    assert decision.reason == "full, because its 60,000 tokens fit in 70,000 of a window of 100,000"


def test_exactly_fitting_is_fitting() -> None:
    assert decide_coverage(replace(SIZES, full=70_000), ROOM).coverage is Coverage.FULL
    assert decide_coverage(replace(SIZES, full=70_001), ROOM).coverage is Coverage.SKELETON


def test_the_hot_bodies_fill_what_the_skeleton_leaves() -> None:
    decision = decide_coverage(replace(SIZES, full=90_000), ROOM)
    assert (decision.coverage, decision.row, decision.tokens, decision.hot_tokens) == (
        Coverage.SKELETON,
        2,
        70_000,
        58_000,
    )


@pytest.mark.parametrize(("window", "tier"), [(16_000, Coverage.SKELETON), (15_999, Coverage.MAP)])
def test_a_skeleton_needs_a_window_of_16000(window: int, tier: Coverage) -> None:
    assert decide_coverage(replace(SIZES, skeleton=4_000), room(window=window)).coverage is tier


@pytest.mark.parametrize(("window", "tier"), [(4_000, Coverage.MAP), (3_999, Coverage.NONE)])
def test_a_map_needs_a_window_of_4000(window: int, tier: Coverage) -> None:
    assert decide_coverage(SIZES, room(window=window)).coverage is tier


def test_a_map_takes_at_most_a_tenth_of_the_window() -> None:
    assert decide_coverage(SIZES, room(window=8_000)).tokens == 800
    assert decide_coverage(replace(SIZES, map=300), room(window=8_000)).tokens == 300


def test_without_any_kv_nothing_stands() -> None:
    assert decide_coverage(SIZES, room(kv_tokens=0)).coverage is Coverage.NONE


def test_a_tier_that_is_not_made_is_not_chosen() -> None:
    assert decide_coverage(CoverageSizes(full=90_000, map=5_000), ROOM).coverage is Coverage.MAP
    assert decide_coverage(CoverageSizes(full=90_000), ROOM).coverage is Coverage.NONE


def test_missing_kv_is_told_in_bytes_with_what_would_help() -> None:
    decision = decide_coverage(CoverageSizes(full=100_000, map=5_000), room(window=200_000, kv_tokens=54_000))
    assert decision.reason == "map, because 100k tokens need 12.2 GiB of KV and 6.6 GiB are free"
    assert decision.hint == "KV type q8_0 would make it fit"


def test_where_a_smaller_kv_type_does_not_help_the_missing_bytes_are_told() -> None:
    decision = decide_coverage(CoverageSizes(full=100_000), room(window=200_000, kv_tokens=50_000))
    assert decision.hint == "6.1 GiB more for KV would make it fit"


def test_a_small_window_is_told_in_tokens_with_the_window_that_would_do() -> None:
    decision = decide_coverage(CoverageSizes(full=100_000, map=5_000), ROOM)
    assert decision.reason == "map, because 100,000 tokens do not fit in the 70,000 that a window of 100,000 leaves"
    assert decision.hint == "a model with a window of 142,858 would hold it"
    assert decide_coverage(CoverageSizes(full=100_000), room(window=142_858)).coverage is Coverage.FULL


@pytest.mark.parametrize(
    ("trained", "hint"),
    [
        (142_857, "a model with a window of 142,858 would hold it"),
        (142_858, "the setting model.context = 142858 would hold it"),
    ],
)
def test_a_window_that_the_model_was_trained_for_is_a_matter_of_a_setting(trained: int, hint: str) -> None:
    assert decide_coverage(CoverageSizes(full=100_000, map=5_000), replace(ROOM, trained=trained)).hint == hint


@pytest.mark.parametrize("tier", list(Coverage))
def test_a_forced_tier_that_fits_is_taken(tier: Coverage) -> None:
    decision = decide_coverage(SIZES, ROOM, forced=tier)
    assert (decision.coverage, decision.row) == (tier, 0)


def test_a_forced_tier_that_cannot_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(OverBudget) as refusal:
        decide_coverage(SIZES, room(kv_tokens=1_000), forced=Coverage.FULL)
    assert refusal.value.message == "coverage full was forced, but 60k tokens need 7.3 GiB of KV and 125 MiB are free"


def test_a_forced_tier_that_is_not_made_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        decide_coverage(CoverageSizes(full=10), ROOM, forced=Coverage.SKELETON)


@pytest.mark.parametrize(
    ("name", "tier"),
    [
        ("FULL", Coverage.FULL),
        ("skeleton", Coverage.SKELETON),
        ("Skeleton+Hot", Coverage.SKELETON),
        ("none", Coverage.NONE),
    ],
)
def test_a_tier_is_named_in_any_case(name: str, tier: Coverage) -> None:
    assert coverage_named(name) is tier


def test_a_name_that_is_no_tier_is_refused_with_the_names() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        coverage_named("half")
    assert refusal.value.hint == "one of: full, skeleton+hot, map, none, auto"


# ---- moves ---------------------------------------------------------------------------------------------------------

SMALL = CoverageSizes(full=60_000, map=5_000)
ON_MAP = decide_coverage(SMALL, room(kv_tokens=30_000))
ON_FULL = decide_coverage(SMALL, ROOM)


def test_a_floor_steps_down_when_it_no_longer_fits() -> None:
    assert redecide(ON_FULL, SMALL, room(kv_tokens=30_000)) == ON_MAP


def test_a_floor_that_fits_stays_as_it_is_and_says_so_with_the_numbers_of_now() -> None:
    assert redecide(ON_FULL, SMALL, ROOM) == ON_FULL
    stays = redecide(ON_MAP, SMALL, room(kv_tokens=20_000))
    assert stays == replace(ON_MAP, reason=stays.reason)
    assert "2.4 GiB are free" in stays.reason


@pytest.mark.parametrize(("kv_tokens", "tier"), [(60_000, "map"), (65_999, "map"), (66_000, "full")])
def test_stepping_up_needs_a_tenth_of_room_beyond_the_limit(kv_tokens: int, tier: str) -> None:
    decision = redecide(ON_MAP, SMALL, room(kv_tokens=kv_tokens))
    assert decision.coverage == tier
    assert decision.reason


def test_the_reason_for_not_stepping_up_has_the_numbers() -> None:
    decision = redecide(ON_MAP, SMALL, room(kv_tokens=61_000))
    assert decision.reason == "stays map: full needs 10% more room than its 60,000 tokens, and 61,000 are there"


@pytest.mark.parametrize("level", ["high", "critical"])
def test_under_high_pressure_no_codex_steps_up(level: str) -> None:
    assert redecide(ON_MAP, SMALL, ROOM, level).coverage is Coverage.MAP


@pytest.mark.parametrize("level", ["calm", "elevated"])
def test_below_high_pressure_a_codex_may_step_up(level: str) -> None:
    assert redecide(ON_MAP, SMALL, ROOM, level).coverage is Coverage.FULL


def test_at_critical_floors_step_down() -> None:
    assert redecide(ON_FULL, SMALL, room(kv_tokens=30_000), "critical").coverage is Coverage.MAP


def test_a_codex_that_grew_within_its_tier_is_decided_anew() -> None:
    assert redecide(ON_FULL, replace(SMALL, full=61_000), ROOM).tokens == 61_000


DWELL = (PressureSettings().worse_s, PressureSettings().better_s)


def test_a_step_down_waits_ten_seconds_and_a_step_up_sixty() -> None:
    assert change_due(None, Coverage.FULL, Coverage.MAP, 100.0, *DWELL) == (Pending(Coverage.MAP, 100.0), False)
    down, up = Pending(Coverage.MAP, 100.0), Pending(Coverage.FULL, 100.0)
    assert change_due(down, Coverage.FULL, Coverage.MAP, 109.9, *DWELL) == (down, False)
    assert change_due(down, Coverage.FULL, Coverage.MAP, 110.0, *DWELL) == (down, True)
    assert change_due(up, Coverage.MAP, Coverage.FULL, 159.9, *DWELL) == (up, False)
    assert change_due(up, Coverage.MAP, Coverage.FULL, 160.0, *DWELL) == (up, True)


def test_a_wish_that_changes_or_ends_starts_again() -> None:
    down = Pending(Coverage.MAP, 100.0)
    assert change_due(down, Coverage.FULL, Coverage.FULL, 120.0, *DWELL) == (None, False)
    assert change_due(down, Coverage.FULL, Coverage.NONE, 120.0, *DWELL) == (Pending(Coverage.NONE, 120.0), False)


def test_a_forced_tier_that_is_less_than_what_would_fit_does_not_call_that_its_reason():
    forced = decide_coverage(CoverageSizes(full=136, map=50), ROOM, forced=Coverage.NONE)
    assert forced.reason.startswith("none as forced, though 136 tokens would fit in ")
    large = decide_coverage(CoverageSizes(full=1_000_000, map=50), ROOM, forced=Coverage.NONE)
    assert large.reason.startswith("none as forced, because ")
