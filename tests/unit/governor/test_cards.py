"""What models that people run are granted on the cards that people have: the table of docs/governor.md is this."""

from pathlib import Path

import pytest
from published_models import CARDS, MODELS, granted, plan_of, planned

from governor.budget import Bound
from governor.footprint import kv_cost
from governor.model_shape import ModelShape
from governor.pressure import pressure_of, thresholds
from governor.readings import MemoryReading
from governor.settings import GIB, MIB, PressureSettings

PAGE = Path(__file__).resolve().parents[3] / "docs" / "governor.md"
KINDS = ("f16", "q8_0")


def cell(shape: ModelShape, card: int) -> str:
    """Thousands of tokens with both kinds of KV, and how much of the model is on the card where that is not all of it."""
    budgets = [granted(shape, card, kind) for kind in KINDS]
    windows = " / ".join(dict.fromkeys(f"{budget.window / 1000:.0f}k" for budget in budgets))
    partly = any(budget.gpu_layers < budget.layers for budget in budgets)
    return f"{windows}, {budgets[0].gpu_layers} of {budgets[0].layers}" if partly else windows


def row(shape: ModelShape) -> str:
    return "| " + " | ".join([shape.name, *(cell(shape, card) for card in CARDS)]) + " |"


@pytest.mark.parametrize("shape", MODELS, ids=lambda shape: shape.name)
def test_the_page_shows_what_each_model_is_granted(shape: ModelShape) -> None:
    assert row(shape) in PAGE.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("shape", MODELS, ids=lambda shape: shape.name)
def test_a_window_has_no_less_than_085_of_what_is_there_beside_weights_and_buffers(
    shape: ModelShape, card: int
) -> None:
    for kind in KINDS:
        budget = granted(shape, card, kind)
        if budget.cells >= shape.trained:
            continue
        there, plan = budget.ours - budget.fixed, plan_of(shape, card, kind)
        here = shape.layers[budget.layers - budget.gpu_layers :]
        assert kv_cost(shape, plan, budget.window + 256, here) > 0.85 * there
        assert budget.fixed + kv_cost(shape, plan, budget.window, here) <= budget.ours


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("shape", MODELS, ids=lambda shape: shape.name)
def test_a_desktop_of_up_to_a_gigabyte_leaves_a_card_calm_that_holds_the_whole_model(
    shape: ModelShape, card: int
) -> None:
    calm = thresholds(PressureSettings())[0]
    for others in (400 * MIB, 700 * MIB, GIB):
        budget = planned(shape, card, plan_of(shape, card, "f16"), others)
        if budget.gpu_layers == budget.layers:
            memory = MemoryReading("VRAM", budget.total, budget.total - others, 0)
            assert pressure_of(memory, budget.ceiling, budget.fixed) < calm


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("shape", MODELS, ids=lambda shape: shape.name)
def test_a_larger_card_makes_a_window_longer_where_memory_binds_it_alone(shape: ModelShape, card: int) -> None:
    plan = plan_of(shape, card, "f16")
    here, twice = planned(shape, card, plan), planned(shape, 2 * card, plan)
    if here.bound is Bound.TRAINED:
        assert (here.window, twice.window) == (shape.trained, shape.trained)
    elif here.gpu_layers == here.layers:
        assert (here.bound, here.window < twice.window) == (Bound.KV, True)


@pytest.mark.parametrize(
    ("name", "kind", "tokens"),
    [
        ("Qwen2.5 14B", "f16", 62_000),
        ("Qwen2.5 14B", "q8_0", 117_000),
        ("Mistral Small 24B", "f16", 44_000),
        ("Mistral Small 24B", "q8_0", 84_000),
        ("Qwen3 30B-A3B", "f16", 34_000),
        ("Qwen3 30B-A3B", "q8_0", 64_000),
        ("Qwen2.5 32B", "f16", 9_000),
        ("Qwen2.5 32B", "q8_0", 17_000),
    ],
)
def test_a_24_gb_card_with_a_desktop_on_it_is_used_to_its_end(name: str, kind: str, tokens: int) -> None:
    shape = next(shape for shape in MODELS if shape.name == name)
    assert tokens <= granted(shape, 24, kind).window < 1.15 * tokens
