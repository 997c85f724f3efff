"""What of the settings of loading is impossible with a model, told before it is loaded; and which GPU takes what."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_models import GEMMA_4B, GEMMA_12B, GEMMA_27B

from governor.architectures import windows_have_ranges
from governor.budget import Demand, plan_budget
from governor.footprint import KvPlan, kv_cost, working_bytes
from governor.gguf import read_gguf
from governor.model_shape import ModelShape, shape_of
from governor.offload import (
    CLEARLY_MORE,
    ENOUGH_WINDOW,
    Offload,
    fitting_layers,
    flash_attention,
    idle,
    impossible,
    layers_by_gpu,
    parts,
    shares_of,
    with_windows,
)
from governor.readings import MemoryReading
from governor.settings import GIB, MIB, MemorySettings

PLAIN = Offload(KvPlan())
QUANTISED = Offload(KvPlan("q8_0", "q8_0"))


@pytest.fixture
def llama(tiny_model: Callable[..., Path]) -> ModelShape:
    return shape_of(read_gguf(tiny_model("llama")))


def unflashed(chosen: Offload) -> Offload:
    return replace(chosen, plan=replace(chosen.plan, flash_attention=False))


def settings_named(shape: ModelShape, chosen: Offload, gpus: int | None = 0) -> list[str]:
    return [one.setting for one in impossible(shape, chosen, gpus)]


def test_the_defaults_are_possible_with_any_number_of_gpus(llama: ModelShape) -> None:
    assert [impossible(llama, PLAIN, gpus) for gpus in (None, 0, 1, 4)] == [()] * 4
    assert [idle(PLAIN, gpus) for gpus in (None, 0, 1, 4)] == [()] * 4


def test_quantised_values_need_flash_attention_and_an_architecture_that_has_it(llama: ModelShape) -> None:
    assert settings_named(llama, QUANTISED) == []
    assert settings_named(llama, unflashed(QUANTISED)) == ["model.kv_type_v"]
    assert settings_named(llama, unflashed(Offload(KvPlan("q8_0", "f16")))) == []
    assert settings_named(replace(llama, architecture="grok"), QUANTISED) == ["model.kv_type_v"]


def test_flash_attention_is_for_gpus_and_quantised_values_unless_it_is_set() -> None:
    assert [flash_attention(None, values, on_gpu=False) for values in ("f16", "f32", "bf16", "q8_0")] == [
        False, False, False, True,
    ]  # fmt: skip
    assert flash_attention(None, "f16", on_gpu=True) is True
    assert [flash_attention(asked, "f16", on_gpu=not asked) for asked in (True, False)] == [True, False]


def test_a_model_with_sliding_windows_has_flash_attention_on_a_cpu_too_unless_it_is_off(llama: ModelShape) -> None:
    windowed = replace(llama, window=512)
    for asked, shape, wanted in ((None, llama, False), (None, windowed, True), (False, windowed, False)):
        assert Offload(KvPlan(), flash=asked).for_shape(shape).plan.flash_attention is wanted
    assert Offload(KvPlan(), on_gpu=True).for_shape(llama).plan.flash_attention is True


@pytest.mark.parametrize(
    ("architecture", "flash", "ranges"),
    [("gemma3", True, True), ("gemma3", False, False), ("llama4", True, False), ("deepseek4", True, False)],
)
def test_windows_have_ranges_where_they_slide_and_a_step_is_one_batch(
    architecture: str, flash: bool, ranges: bool
) -> None:
    assert windows_have_ranges(architecture, flash_attention=flash) is ranges


def test_a_kv_type_whose_blocks_do_not_divide_a_head_names_those_that_do(tiny_model: Callable[..., Path]) -> None:
    widths = {"attention.key_length": 48, "attention.value_length": 32}
    shape = shape_of(read_gguf(tiny_model("llama", **widths)))
    (one,) = impossible(shape, QUANTISED, 0)
    assert (one.setting, one.instead) == ("model.kv_type_k", "use one of: f32, f16, bf16")
    assert settings_named(shape, Offload(KvPlan("f16", "q8_0"))) == []


def test_a_context_is_bounded_by_what_was_trained_or_what_the_files_rope_scaling_reaches(
    llama: ModelShape, tiny_model: Callable[..., Path]
) -> None:
    assert settings_named(llama, replace(PLAIN, context=llama.trained)) == []
    (one,) = impossible(llama, replace(PLAIN, context=llama.trained + 1), 0)
    assert one.setting == "model.context"
    assert f"{llama.trained:,}" in one.why
    scaling = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": llama.trained,
    }
    scaled = shape_of(read_gguf(tiny_model("llama", **scaling)))
    assert scaled.trained == 4 * llama.trained
    assert settings_named(scaled, replace(PLAIN, context=4 * llama.trained)) == []


def test_more_shares_than_gpus_and_a_gpu_that_is_not_there_are_refused(llama: ModelShape) -> None:
    three = replace(PLAIN, shares=(1.0, 1.0, 1.0))
    assert [settings_named(llama, three, gpus) for gpus in (None, 0, 2, 3)] == [[], [], ["model.tensor_split"], []]
    assert [settings_named(llama, replace(PLAIN, main=1), gpus) for gpus in (None, 1, 2)] == [
        [],
        ["model.main_gpu"],
        [],
    ]


def test_a_split_of_tensors_needs_flash_attention(llama: ModelShape) -> None:
    assert settings_named(llama, unflashed(replace(PLAIN, split="tensor")), 2) == ["model.split_mode"]


def test_what_does_nothing_is_said_and_not_refused() -> None:
    chosen = replace(PLAIN, gpu_layers=5, shares=(1.0,), main=1)
    assert [one.partition(" ")[0] for one in idle(chosen, 0)] == [
        "model.gpu_layers",
        "model.tensor_split",
        "model.main_gpu",
    ]
    assert idle(replace(PLAIN, shares=(1.0, 1.0)), 1) == ("model.tensor_split has no effect: there is one GPU",)
    assert idle(replace(PLAIN, shares=(1.0, 1.0), split="none"), 2) != ()


# ---- over several GPUs -------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 200).flatmap(lambda layers: st.tuples(st.just(layers), st.integers(1, layers))),
    st.lists(st.integers(0, 10**12), min_size=1, max_size=8),
)
def test_every_layer_has_one_gpu_and_each_gpu_about_its_share(layers: tuple[int, int], free: list[int]) -> None:
    whole, taken = layers
    shares = shares_of(PLAIN, free)
    counts = layers_by_gpu(whole, taken, shares)
    assert sum(counts) == taken
    assert all(abs(count - share * taken) <= 1.001 for count, share in zip(counts, shares, strict=True))


def test_layers_stand_where_llama_cpp_puts_them() -> None:
    """The rule of `get_layer_buft_list`: the first share that ends behind (layer - first) / taken."""
    assert layers_by_gpu(33, 33, (0.75, 0.25)) == (25, 8)
    assert layers_by_gpu(33, 10, (0.5, 0.5)) == (5, 5)
    assert layers_by_gpu(33, 33, (0.0, 1.0)) == (0, 33)
    assert shares_of(replace(PLAIN, shares=(3.0, 1.0)), (8, 8)) == (0.75, 0.25)
    assert shares_of(PLAIN, (24, 8)) == (0.75, 0.25)
    assert shares_of(replace(PLAIN, split="none", main=1), (24, 8)) == (0.0, 1.0)


@pytest.mark.parametrize("split", ["layer", "none", "row", "tensor"])
def test_what_the_gpus_hold_is_the_whole_model_but_its_input(llama: ModelShape, split: str) -> None:
    layers = len(llama.layers) + 1
    held = parts(llama, replace(PLAIN, split=split), layers, (24, 8), 4096)
    output = llama.output + (llama.input if llama.tied else 0)
    whole = sum(layer.weights for layer in llama.layers) + output
    assert sum(part.weights for part in held) == pytest.approx(whole, abs=2)
    assert sum(part.kv for part in held) == pytest.approx(kv_cost(llama, KvPlan(), 4096), abs=2)


def test_as_many_layers_as_fit_fit_on_every_gpu_and_one_more_does_not(llama: ModelShape) -> None:
    layers = len(llama.layers) + 1
    working = working_bytes(llama, KvPlan(), llama.trained)
    assert fitting_layers(llama, PLAIN, (1 << 40,), 4096) == layers
    assert fitting_layers(llama, PLAIN, (1 << 40, 1 << 40), 4096) == layers
    assert fitting_layers(llama, PLAIN, (working,), 4096) == 0
    (whole,) = parts(llama, PLAIN, layers, (1,), 4096)
    room = whole.weights + whole.kv + working
    assert fitting_layers(llama, PLAIN, (room,), 4096) == layers
    some = fitting_layers(llama, PLAIN, (room - 1,), 4096)
    assert some == layers - 1
    (held,) = parts(llama, PLAIN, some, (1,), 4096)
    assert held.weights + held.kv + working < room


def test_as_many_layers_as_fit_are_those_that_the_budget_plans_with(llama: ModelShape) -> None:
    settings = MemorySettings(margin_bytes=0, margin_share=0.0)
    for mib in (1, 5, 7, 9, 11, 15, 40, 200):
        memory = MemoryReading("VRAM", mib * MIB, mib * MIB, 0)
        budget = plan_budget(0, memory, Demand(llama, KvPlan()), settings, None)
        assert fitting_layers(llama, PLAIN, (mib * MIB,), settings.smallest_window) == budget.gpu_layers


# ---- the cache of sliding layers -------------------------------------------------------------------------------------


def on_gpu(model: ModelShape, gigabytes: int, asked: Offload) -> tuple[str, int, int]:
    """Which cache is chosen on an empty GPU, its sequences and its longest context in thousands of tokens."""
    memory = MemoryReading("VRAM", gigabytes * GIB, gigabytes * GIB, 0)

    def window(plan: KvPlan) -> int:
        return plan_budget(0, memory, Demand(model, plan), MemorySettings(), None).window

    plan = with_windows(asked.for_shape(model), model, window).plan
    return "small" if plan.small_windows else "full", plan.pool_sequences, window(plan) // 1000


@pytest.mark.parametrize(
    ("model", "gigabytes", "context", "full", "small", "chosen"),
    [
        (GEMMA_4B, 8, None, 33, (9, 131), "full"),
        (GEMMA_4B, 12, None, 60, (9, 131), "full"),
        (GEMMA_4B, 24, None, 131, (9, 131), "full"),
        (GEMMA_4B, 24, 100_000, 131, (9, 131), "full"),
        (GEMMA_12B, 8, None, 0, (5, 0), "full"),
        (GEMMA_12B, 12, None, 10, (5, 34), "small"),
        (GEMMA_12B, 16, None, 19, (9, 69), "small"),
        (GEMMA_12B, 24, None, 38, (9, 131), "full"),
        (GEMMA_12B, 24, 100_000, 38, (9, 131), "small"),
        (GEMMA_27B, 24, None, 13, (7, 42), "small"),
        (GEMMA_27B, 24, 100_000, 13, (5, 53), "small"),
        (GEMMA_27B, 32, None, 27, (9, 121), "small"),
    ],
)
def test_small_windows_leave_several_times_the_tokens_in_as_many_sequences_as_leave_what_is_asked_for(
    model: ModelShape, gigabytes: int, context: int | None, full: int, small: tuple[int, int], chosen: str
) -> None:
    asked = Offload(KvPlan(sequences=32), context=context, on_gpu=True)
    assert on_gpu(model, gigabytes, replace(asked, windows="full")) == ("full", 32, full)
    assert on_gpu(model, gigabytes, replace(asked, windows="small")) == ("small", *small)
    assert on_gpu(model, gigabytes, asked)[0] == chosen


def test_the_cache_of_windows_is_the_one_that_is_set_where_there_are_two() -> None:
    for model, windows, chosen in (
        (GEMMA_27B, "full", "full"),
        (GEMMA_4B, "small", "small"),
        (replace(GEMMA_27B, architecture="llama4"), "small", "full"),
        (replace(GEMMA_27B, architecture="llama"), "small", "full"),
    ):
        assert on_gpu(model, 24, Offload(KvPlan(sequences=32), windows=windows, on_gpu=True))[0] == chosen


@given(st.integers(0, 200_000), st.integers(0, 200_000), st.integers(512, 131_072) | st.none())
def test_a_full_cache_gives_way_to_clearly_more_alone(full: int, small: int, context: int | None) -> None:
    asked = Offload(KvPlan(sequences=32), context=context)
    chosen = with_windows(asked, GEMMA_27B, lambda plan: small if plan.small_windows else full)
    enough = min(GEMMA_27B.trained, context or ENOUGH_WINDOW)
    assert bool(chosen.plan.small_windows) is (full < enough and small > CLEARLY_MORE * full)


@given(
    st.integers(256, 131_072),
    st.integers(256, 131_072),
    st.integers(512, 131_072) | st.none(),
    # From 0.95 to 1.05 is a tenth, for each cache by itself: their ratio may then differ by 1.22, below 1 / STAYS.
    st.lists(st.tuples(st.floats(0.95, 1.05), st.floats(0.95, 1.05)), min_size=2, max_size=8),
)
def test_where_what_is_free_differs_by_a_tenth_from_start_to_start_the_cache_changes_once_at_most(
    full: int, small: int, context: int | None, starts: list[tuple[float, float]]
) -> None:
    asked, found = Offload(KvPlan(sequences=32), context=context), [""]
    for one, other in starts:
        windows = {False: min(GEMMA_27B.trained, int(full * one)), True: min(GEMMA_27B.trained, int(small * other))}
        plan = with_windows(asked, GEMMA_27B, lambda plan, of=windows: of[plan.small_windows > 0], found[-1]).plan
        found.append("small" if plan.small_windows else "full")
    changes = [pair for pair in pairwise(found[1:]) if pair[0] != pair[1]]
    assert changes in ([], [("small", "full")]), "to a full-size cache that holds all that the model was trained for"
