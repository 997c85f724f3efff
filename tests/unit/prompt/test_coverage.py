"""How much of a codex stands in the prefix."""

from dataclasses import replace

import pytest

from governor.budget import Bound
from governor.settings import PressureSettings
from orchestrator.errors import InvalidRequest, OverBudget
from orchestrator.prompt.coverage import (
    Coverage,
    CoverageSettings,
    CoverageSizes,
    FloorRoom,
    Pending,
    available,
    change_due,
    coverage_named,
    decide_coverage,
    direction,
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
    assert (decision.coverage, decision.row, decision.tokens) == (Coverage.SKELETON, 2, 70_000)
    least = decide_coverage(replace(SIZES, full=90_000, skeleton=70_000), ROOM)
    assert (least.coverage, least.tokens) == (Coverage.SKELETON, 70_000)


@pytest.mark.parametrize(("window", "tier"), [(5_715, Coverage.SKELETON), (5_714, Coverage.MAP)])
def test_a_skeleton_needs_what_the_whole_needs_room_within_the_limit(window: int, tier: Coverage) -> None:
    assert decide_coverage(replace(SIZES, skeleton=4_000), room(window=window)).coverage is tier


@pytest.mark.parametrize(("window", "tier"), [(4_000, Coverage.MAP), (3_999, Coverage.NONE)])
def test_a_map_needs_a_window_of_4000(window: int, tier: Coverage) -> None:
    assert decide_coverage(SIZES, room(window=window)).coverage is tier


@pytest.mark.parametrize(("window", "tokens"), [(4_000, 400), (8_000, 1_800), (16_000, 7_800), (32_000, 16_000)])
def test_a_map_takes_half_of_the_window_and_leaves_room_for_evidence_but_always_a_tenth(
    window: int, tokens: int
) -> None:
    large = CoverageSizes(full=900_000, map=900_000)
    assert decide_coverage(large, room(window=window)).tokens == tokens
    assert decide_coverage(replace(large, map=300), room(window=window)).tokens == 300
    assert decide_coverage(large, room(window=window), CoverageSettings(map_share=0.05)).tokens == window * 0.05
    assert decide_coverage(large, room(window=window), CoverageSettings(map_share=0.9)).tokens == tokens
    assert decide_coverage(large, room(window=window, kv_tokens=77)).tokens == 77


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


def test_where_the_window_is_what_memory_holds_the_window_that_is_needed_is_told_in_bytes() -> None:
    """The codex itself would fit in the cells, but a window has room for answers too."""
    tight = room(window=110_000, kv_tokens=110_000, trained=262_144)
    decision = decide_coverage(CoverageSizes(full=100_000, map=5_000), tight)
    assert decision.reason == "map, because 100k tokens need a window of 142,858, 17.4 GiB of KV and 13.4 GiB are free"
    assert decision.hint == "KV type q8_0 would make it fit"
    assert decide_coverage(CoverageSizes(full=100_000), replace(tight, kv_type="q8_0")).hint == (
        "4.0 GiB more for KV would make it fit"
    )


@pytest.mark.parametrize(
    ("limits", "bound", "hint"),
    [
        (
            {"trained": 100_000, "bound": Bound.TRAINED},
            ", the length that the model was trained for",
            "a model with a window of 142,858 would hold it",
        ),
        (
            {"trained": 200_000, "bound": Bound.CONTEXT},
            ", as model.context allows",
            "the setting model.context = 142858 would hold it",
        ),
        (
            {"trained": 200_000, "bound": Bound.CONTEXT, "kv_tokens": 120_000},
            ", as model.context allows",
            "the setting model.context = 142858 and KV type q8_0 would make it fit",
        ),
    ],
)
def test_a_reason_names_what_bounds_the_window_and_the_hint_all_that_is_in_the_way(
    limits: dict[str, object], bound: str, hint: str
) -> None:
    decision = decide_coverage(CoverageSizes(full=100_000, map=5_000), room(**limits))
    left = "map, because 100,000 tokens do not fit in the 70,000 that a window of 100,000 leaves"
    assert (decision.reason, decision.hint) == (left + bound, hint)


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
    assert stays == replace(ON_MAP, reason=stays.reason, hint=stays.hint)
    assert ("2.4 GiB are free" in stays.reason, stays.hint) == (True, "4.9 GiB more for KV would make it fit")


@pytest.mark.parametrize(("kv_tokens", "tier"), [(60_000, "map"), (65_999, "map"), (66_000, "full")])
def test_stepping_up_needs_a_tenth_of_room_beyond_the_limit(kv_tokens: int, tier: str) -> None:
    decision = redecide(ON_MAP, SMALL, room(kv_tokens=kv_tokens))
    assert decision.coverage == tier
    assert decision.reason


def test_the_reason_for_not_stepping_up_has_the_numbers() -> None:
    decision = redecide(ON_MAP, SMALL, room(kv_tokens=61_000))
    assert decision.reason == "stays map: full needs 10% more room than its 60,000 tokens, and 61,000 are there"
    assert decision.hint == ""


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
    down, up = Pending(Coverage.MAP, False, 100.0), Pending(Coverage.FULL, True, 100.0)
    assert change_due(None, ON_FULL, ON_MAP, 100.0, *DWELL) == (down, 10.0)
    assert change_due(down, ON_FULL, ON_MAP, 109.9, *DWELL) == (down, pytest.approx(0.1))
    assert change_due(down, ON_FULL, ON_MAP, 110.0, *DWELL) == (down, 0.0)
    assert change_due(up, ON_MAP, ON_FULL, 159.9, *DWELL) == (up, pytest.approx(0.1))
    assert change_due(up, ON_MAP, ON_FULL, 160.0, *DWELL) == (up, 0.0)


def test_a_wish_that_changes_or_ends_starts_again() -> None:
    down = Pending(Coverage.MAP, False, 100.0)
    nothing = decide_coverage(SMALL, room(kv_tokens=0))
    assert change_due(down, ON_FULL, ON_FULL, 120.0, *DWELL) == (None, 0.0)
    assert change_due(down, ON_FULL, nothing, 120.0, *DWELL) == (Pending(Coverage.NONE, False, 120.0), 10.0)


LARGE = CoverageSizes(full=900_000, map=900_000)
GRADED = decide_coverage(LARGE, ROOM)


def test_a_map_that_no_longer_fits_is_made_smaller_and_one_that_fits_is_kept() -> None:
    assert GRADED.tokens == 50_000
    assert redecide(GRADED, LARGE, room(kv_tokens=50_000)).tokens == 50_000
    smaller = redecide(GRADED, LARGE, room(kv_tokens=49_999))
    assert (smaller.coverage, smaller.tokens, direction(GRADED, smaller)) == (Coverage.MAP, 49_999, -1)


def test_a_map_is_made_again_only_for_twice_its_tokens_and_below_high_pressure() -> None:
    small = decide_coverage(LARGE, room(window=40_000))
    assert small.tokens == 20_000
    kept = redecide(small, LARGE, room(window=79_998))
    assert (kept.tokens, direction(small, kept)) == (20_000, 0)
    larger = redecide(small, LARGE, room(window=80_000))
    assert (larger.tokens, direction(small, larger)) == (40_000, 1)
    assert redecide(larger, LARGE, room(window=80_000)).tokens == 40_000
    assert redecide(small, LARGE, room(window=80_000), "high").tokens == 20_000


def test_levels_of_an_earlier_start_are_kept_while_they_fit_and_not_twice_as_much_would() -> None:
    assert GRADED.keeps(49_000, 50_000)
    assert GRADED.keeps(70_000, 70_000)
    assert not GRADED.keeps(70_001, 70_001)
    assert GRADED.keeps(24_000, 25_001)
    assert not GRADED.keeps(24_000, 25_000)


def test_a_forced_tier_that_is_less_than_what_would_fit_does_not_call_that_its_reason():
    forced = decide_coverage(CoverageSizes(full=136, map=50), ROOM, forced=Coverage.NONE)
    assert forced.reason.startswith("none as forced, though 136 tokens would fit in ")
    large = decide_coverage(CoverageSizes(full=1_000_000, map=50), ROOM, forced=Coverage.NONE)
    assert large.reason.startswith("none as forced, because ")
