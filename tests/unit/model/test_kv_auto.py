"""The type of KV that is chosen by itself: q8_0 where it holds clearly more of a codex, and never less."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_models import CARDS, GEMMA_27B, MODELS

from governor.footprint import KvPlan
from governor.model_shape import ModelShape
from governor.offload import Offload
from governor.readings import MemoryReading
from governor.settings import GIB, MemorySettings
from orchestrator.model.conditions import (
    CLEARLY_MORE,
    KV_TYPES,
    LoadingConditions,
    gain,
    remember_kv_type,
    remembered,
)
from orchestrator.prompt.coverage import Coverage, CoverageDecision, CoverageSizes, FloorRoom, decide_coverage

AUTO = Offload(KvPlan(sequences=32), on_gpu=True, kv_auto=True)
FILE = Path("/models/model.gguf")
QWEN_32B = next(shape for shape in MODELS if shape.name == "Qwen2.5 32B")


def here(gigabytes: int, sizes: dict[str, CoverageSizes], offload: Offload = AUTO) -> LoadingConditions:
    memory = MemoryReading("VRAM", gigabytes * GIB, gigabytes * GIB, 0)
    return LoadingConditions(offload, memory, MemorySettings(), host_free=64 * GIB, kept=lambda: sizes)


def covered(conditions: LoadingConditions, shape: ModelShape, plan: KvPlan, sizes: CoverageSizes) -> tuple[int, int]:
    budget = conditions.budget(shape, plan)
    assert budget is not None
    found = decide_coverage(sizes, FloorRoom(budget.window, 0, budget.cells))
    return found.coverage.rank, found.tokens


sizes_of_a_codex = st.integers(500, 2_000_000).flatmap(
    lambda full: st.builds(
        CoverageSizes, st.just(full), st.none() | st.integers(1, full), st.none() | st.integers(1, full)
    )
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(MODELS), st.sampled_from(CARDS), st.dictionaries(st.sampled_from("ab"), sizes_of_a_codex))
def test_no_codex_has_a_worse_coverage_than_with_f16_and_f16_is_kept_where_none_has_a_better_one(
    shape: ModelShape, card: int, sizes: dict[str, CoverageSizes]
) -> None:
    conditions = here(card, sizes)
    chosen = conditions.for_model(FILE, shape).offload
    plain = replace(conditions, offload=replace(AUTO, kv_auto=False)).for_model(FILE, shape).offload
    pairs = [
        (covered(conditions, shape, plain.plan, one), covered(conditions, shape, chosen.plan, one))
        for one in sizes.values()
    ]
    assert all(before <= after for before, after in pairs)
    assert (chosen.plan == plain.plan) is (not chosen.kv_reason)
    assert not chosen.kv_reason or any(before < after for before, after in pairs)
    assert conditions.for_model(FILE, shape).offload == chosen, "decided again, it is the same"


def test_a_codex_that_fits_whole_with_q8_0_alone_chooses_it_and_says_so() -> None:
    sizes = {"demo": CoverageSizes(18_000, 3_000, 1_000)}
    chosen = here(24, sizes).for_model(FILE, QWEN_32B).offload
    assert (chosen.plan.keys, chosen.plan.values, chosen.plan.flash_attention) == ("q8_0", "q8_0", True)
    assert chosen.kv_reason.startswith("codex demo fits as full, with f16 as ")
    small = {"demo": CoverageSizes(5_000, 3_000, 1_000)}
    assert here(24, small).for_model(FILE, QWEN_32B).offload.plan.keys == "f16"
    assert here(24, {}).for_model(FILE, QWEN_32B).offload.plan.keys == "f16"


def test_sizes_that_were_not_kept_have_no_say_and_those_beside_them_decide() -> None:
    """Of `whole` its whole alone was counted, as while it fitted; of a codex that is not among them nothing is known."""
    demo, whole = CoverageSizes(18_000, 3_000, 1_000), CoverageSizes(500_000, None, None)
    alone = here(24, {"whole": whole}).for_model(FILE, QWEN_32B).offload
    beside = here(24, {"demo": demo, "whole": whole}).for_model(FILE, QWEN_32B).offload
    assert (alone.plan.keys, alone.kv_reason) == ("f16", "")
    assert beside == here(24, {"demo": demo}).for_model(FILE, QWEN_32B).offload
    assert beside.kv_reason.startswith("codex demo fits as full")
    fitting = here(24, {"whole": replace(whole, full=demo.full)}).for_model(FILE, QWEN_32B).offload
    assert fitting.kv_reason == "codex whole fits as full, with f16 as none"


@pytest.mark.parametrize(
    "given",
    [
        replace(AUTO, kv_auto=False),
        replace(AUTO, on_gpu=False),
        replace(AUTO, flash=False),  # without it values cannot be quantised
    ],
)
def test_it_stays_f16_where_it_is_set_without_a_gpu_and_where_q8_0_cannot_be_loaded(given: Offload) -> None:
    sizes = {"demo": CoverageSizes(18_000, 3_000, 1_000)}
    assert here(24, sizes, given).for_model(FILE, QWEN_32B).offload.plan.keys == "f16"


def test_types_are_chosen_with_the_windows_that_each_would_have() -> None:
    """With q8_0 the full-size cache of this model is long enough, so a small one, which holds more, is not taken."""
    sizes = {"demo": CoverageSizes(60_000, 50_000, 1_000)}
    chosen = here(32, sizes).for_model(FILE, GEMMA_27B).offload
    assert (chosen.plan.keys, bool(chosen.plan.small_windows)) == ("f16", True)


def test_a_type_stays_until_f16_would_do_with_a_fifth_of_its_room_to_spare() -> None:
    budget = here(24, {}).budget(QWEN_32B, AUTO.for_shape(QWEN_32B).plan)
    assert budget is not None
    just = {"demo": CoverageSizes(int(0.69 * budget.window), 3_000, 1_000)}
    well = {"demo": CoverageSizes(int(0.5 * budget.window), 3_000, 1_000)}
    kinds = [
        replace(here(24, sizes), kv_types={str(FILE): before}).for_model(FILE, QWEN_32B).offload.plan.keys
        for before in ("f16", "q8_0")
        for sizes in (just, well)
    ]
    assert kinds == ["f16", "f16", "q8_0", "f16"]


def test_the_type_that_was_chosen_is_found_at_the_next_start(tmp_path: Path) -> None:
    chosen = here(24, {"demo": CoverageSizes(18_000, 3_000, 1_000)}).for_model(FILE, QWEN_32B).offload
    remember_kv_type(tmp_path, FILE, chosen)
    assert remembered(tmp_path / KV_TYPES, ("f16", "q8_0")) == {str(FILE): "q8_0"}
    remember_kv_type(tmp_path, FILE, replace(chosen, kv_auto=False, plan=replace(chosen.plan, keys="f16")))
    assert remembered(tmp_path / KV_TYPES, ("f16", "q8_0")) == {str(FILE): "q8_0"}, "what is set is not remembered"


decisions = st.builds(
    lambda coverage, tokens: CoverageDecision(coverage, 1, tokens, tokens, ""),
    st.sampled_from(list(Coverage)),
    st.integers(0, 10_000),
)


@given(st.dictionaries(st.sampled_from("abc"), st.tuples(decisions, decisions)))
def test_a_gain_is_a_larger_coverage_or_clearly_more_of_one_and_no_codex_loses(
    pairs: dict[str, tuple[CoverageDecision, CoverageDecision]],
) -> None:
    plain, small = ({name: pair[side] for name, pair in pairs.items()} for side in (0, 1))
    ranks = [[(one.coverage.rank, one.tokens) for one in pair] for pair in pairs.values()]
    loses = any(after < before for before, after in ranks)
    gains = any(
        after[0] > before[0] or (after[0] == before[0] and after[1] > CLEARLY_MORE * before[1])
        for before, after in ranks
    )
    assert bool(gain(plain, small)) is (gains and not loses)
    assert not gain(plain, plain)
