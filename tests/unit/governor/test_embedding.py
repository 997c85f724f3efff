"""What a model that embeds costs, where it runs, and when it makes room."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.shapes import shape

from governor.budget import Ours, Outlook, next_outlook
from governor.embedding import EmbeddingCost, Placed, context_bytes, embedding_cost, placed, why_away
from governor.gguf import read_gguf
from governor.model_shape import Layer, shape_of
from governor.pressure import Level, PressureState, ThresholdSwitch
from governor.readings import SensorSnapshot
from governor.sensors import HostSensor
from governor.settings import GIB, MIB, GovernorSettings

# A small encoder: 6 layers of 384, as all-MiniLM-L6-v2 has them in f16.
ENCODER = shape(
    architecture="bert",
    trained=512,
    embedding=384,
    vocabulary=30_522,
    feed_forward=1_536,
    heads=12,
    layers=(Layer(3_550_000),) * 6,
    input=23_800_000,
    output=3_000,
    tied=True,
    unpredictable="it has no KV cache",
)


def test_an_encoder_costs_what_llama_cpp_was_measured_to_take() -> None:
    """70 MiB of resident memory a context at 512 tokens, after one full batch (llama.cpp 0c1e5709, CPU)."""
    assert context_bytes(ENCODER, 512, 64) == pytest.approx(70 * MIB, rel=0.1)
    cost = embedding_cost(ENCODER, 512, 64)
    assert cost.ram == cost.weights + cost.buffers == ENCODER.weights + 2 * context_bytes(ENCODER, 512, 64)
    assert (cost.gpu, cost.layers) == (0, 0)


def test_what_reads_one_way_has_a_cache_besides(tiny_model: Callable[..., Path]) -> None:
    shape = shape_of(read_gguf(tiny_model("llama")))
    assert context_bytes(shape, 512, 64) > context_bytes(replace(shape, unpredictable="none"), 512, 64)


def test_on_a_gpu_the_token_embedding_stays_in_ram() -> None:
    cost = embedding_cost(ENCODER, 512, 64, layers=7)
    assert cost.gpu + cost.ram == cost.weights + cost.buffers
    assert cost.here(on_gpu=True) == cost.gpu
    assert cost.elsewhere(on_gpu=True) == cost.ram
    assert cost.here(on_gpu=False) == cost.gpu + cost.ram
    assert cost.elsewhere(on_gpu=False) == 0


@pytest.mark.parametrize("asked", [-1, 0])
def test_without_a_gpu_it_runs_on_the_cpu_and_nothing_is_said_of_it(asked: int) -> None:
    assert placed(ENCODER, 512, 64, asked, None) == Placed(0)


def test_layers_that_were_asked_for_without_a_gpu_are_told_to_do_nothing() -> None:
    found = placed(ENCODER, 512, 64, 3, None)
    assert found.layers == 0
    assert "embedding.gpu_layers has no effect" in found.why


def test_all_of_it_goes_to_a_gpu_with_room_and_none_to_one_without() -> None:
    assert placed(ENCODER, 512, 64, -1, 8 * GIB) == Placed(7)
    assert placed(ENCODER, 512, 64, -1, 100 * MIB) == Placed(0)


def test_layers_that_were_asked_for_and_do_not_fit_are_told_with_the_numbers() -> None:
    assert placed(ENCODER, 512, 64, 99, 8 * GIB) == Placed(7)
    found = placed(ENCODER, 512, 64, 7, 100 * MIB)
    assert found.layers == 0
    assert "the model that answers leaves 100 MiB" in found.why


@given(st.integers(-1, 9), st.integers(0, 400))
def test_what_is_placed_fits(asked: int, room: int) -> None:
    found = placed(ENCODER, 512, 64, asked, room * MIB)
    assert embedding_cost(ENCODER, 512, 64, found.layers).gpu <= room * MIB


def outlook(level: Level, ram: Level) -> Outlook:
    blank = next_outlook(None, SensorSnapshot(0.0, (), HostSensor().read(frozenset(), 0.0)), Ours(), GovernorSettings())
    return replace(blank, state=standing(level), ram=standing(ram))


def standing(level: Level) -> PressureState:
    first, second, third = (ThresholdSwitch(level.rank > at) for at in range(3))
    return PressureState((first, second, third))


@pytest.mark.parametrize(
    ("cost", "on_gpu", "level", "ram", "why"),
    [
        (EmbeddingCost(7, GIB, 0, GIB, 0), True, Level.HIGH, Level.CALM, "memory is scarce (pressure high)"),
        (EmbeddingCost(7, GIB, 0, GIB, 0), True, Level.ELEVATED, Level.CRITICAL, ""),
        (EmbeddingCost(0, 0, GIB, GIB, 0), True, Level.CRITICAL, Level.CALM, ""),
        (EmbeddingCost(0, 0, GIB, GIB, 0), True, Level.CALM, Level.CRITICAL, "RAM is scarce (pressure critical)"),
        (EmbeddingCost(0, 0, GIB, GIB, 0), False, Level.HIGH, Level.CALM, "memory is scarce (pressure high)"),
    ],
)
def test_it_leaves_for_the_sake_of_the_memory_that_it_lies_in(
    cost: EmbeddingCost, on_gpu: bool, level: Level, ram: Level, why: str
) -> None:
    found = why_away(outlook(level, ram), cost, on_gpu=on_gpu)
    assert found.startswith(why)
    assert bool(found) == bool(why)
