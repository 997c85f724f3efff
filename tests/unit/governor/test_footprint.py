"""What a model costs, held against what llama.cpp itself allocates."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.real_engine import ask, engine, load

from governor.footprint import (
    KvPlan,
    binding_bytes,
    bytes_per_token,
    cells_within,
    kv_cost,
    kv_types,
    rows_together,
    working_bytes,
)
from governor.gguf import read_gguf
from governor.model_shape import FootprintError, ModelShape, shape_of
from orchestrator.engine.model import EngineSpec

MIB = 1024 * 1024
CELLS = 16_384
PLANS = (
    KvPlan(),
    KvPlan(sequences=8),
    KvPlan("q8_0", "q8_0"),
    KvPlan("q8_0", "q4_0", sequences=2),
    KvPlan("f32", "f32"),
    KvPlan(small_windows=3),
    KvPlan("q8_0", "q8_0", small_windows=7),
)
LOGGED = 0.0051 * 3  # llama.cpp logs two decimals of a MiB, and up to three buffers add up


@pytest.fixture(scope="module")
def shapes(recipes: dict[str, Any], tiny_model: Callable[..., Path]) -> dict[str, tuple[Path, ModelShape]]:
    paths = {name: tiny_model(name) for name in recipes}
    return {name: (path, shape_of(read_gguf(path))) for name, path in paths.items()}


@pytest.fixture(scope="module")
def real(shapes: dict[str, tuple[Path, ModelShape]]) -> dict[str, list[list[float] | None]]:
    """What llama.cpp allocates for every model and plan."""
    asked = [(path, [(plan, CELLS) for plan in PLANS]) for path, _ in shapes.values()]
    return dict(zip(shapes, measured(asked), strict=True))


def measured(asked: Sequence[tuple[Path, Sequence[tuple[KvPlan, int]]]]) -> list[list[list[float] | None]]:
    """For each file and each plan with its cells: MiB of KV, of states and of buffers; None where llama.cpp refuses."""
    lines = [
        json.dumps({"path": str(path), "plans": [asdict(plan) | {"cells": cells} for plan, cells in plans]})
        for path, plans in asked
    ]
    script = Path(__file__).with_name("measure_kv.py")
    environment = os.environ | {"GGML_NO_BACKTRACE": "1"}
    done = subprocess.run(
        [sys.executable, script], input="\n".join(lines), capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return list(map(json.loads, done.stdout.splitlines()))


def test_predicted_kv_and_state_are_what_llama_cpp_allocates_for_every_architecture(
    shapes: dict[str, tuple[Path, ModelShape]], real: dict[str, list[list[float] | None]]
) -> None:
    wrong = []
    for name, (_, shape) in shapes.items():
        for plan, seen in zip(PLANS, real[name], strict=True):
            predicted = _predicted(shape, plan)
            if (seen is None) != (predicted is None) or (seen and predicted and not _near(predicted, seen)):
                wrong.append((name, plan, predicted, seen))
    assert wrong == []
    assert len(shapes) >= 50


def _predicted(shape: ModelShape, plan: KvPlan) -> list[float] | None:
    try:
        state = kv_cost(shape, plan, 0)
        return [(kv_cost(shape, plan, CELLS) - state) / MIB, state / MIB]
    except FootprintError:
        return None


def _near(predicted: list[float], seen: list[float]) -> bool:
    return all(abs(one - other) <= LOGGED for one, other in zip(predicted, seen, strict=False))


def test_the_largest_pool_within_a_size_fits_and_one_step_more_does_not(
    shapes: dict[str, tuple[Path, ModelShape]],
) -> None:
    small = KvPlan(small_windows=5)
    for name, plan in (
        ("llama", KvPlan()),
        ("gemma3", KvPlan()),
        ("gemma3", small),
        ("deepseek2", KvPlan()),
        ("jamba", KvPlan()),
    ):
        shape = shapes[name][1]
        for size in (0, 100_000, 1_000_000, 5_000_000, 9_000_000, 77_777_777):
            cells = cells_within(shape, plan, size)
            assert cells is not None
            assert cells == 0 or kv_cost(shape, plan, cells) <= size
            assert kv_cost(shape, plan, cells + 256) > size


def test_a_purely_recurrent_model_has_no_limit_of_cells_once_its_state_fits(
    shapes: dict[str, tuple[Path, ModelShape]],
) -> None:
    shape = shapes["mamba"][1]
    state = kv_cost(shape, KvPlan(), 256)
    assert cells_within(shape, KvPlan(), state) is None
    assert cells_within(shape, KvPlan(), state - 1) == 0
    assert bytes_per_token(shape, KvPlan()) == 0


def test_a_token_behind_the_window_costs_as_much_as_one_within(shapes: dict[str, tuple[Path, ModelShape]]) -> None:
    shape = shapes["gemma2"][1]
    assert kv_cost(shape, KvPlan(), 2 * CELLS) == 2 * kv_cost(shape, KvPlan(), CELLS)
    assert bytes_per_token(shape, KvPlan()) == 2 * sum(layer.keys + layer.values for layer in shape.layers)


def test_an_unknown_architecture_says_that_it_cannot_be_predicted(tiny_model: Callable[..., Path]) -> None:
    shape = shape_of(read_gguf(tiny_model("llama9", "llama")))
    assert shape.weights > 0
    with pytest.raises(FootprintError, match="newer than this version's tables"):
        kv_cost(shape, KvPlan(), 512)


def test_sparse_attention_is_named_as_the_reason_it_is_not_predicted(tiny_model: Callable[..., Path]) -> None:
    shape = shape_of(read_gguf(tiny_model("deepseek32", "llama")))
    with pytest.raises(FootprintError, match="keeps an index beside the KV"):
        kv_cost(shape, KvPlan(), 512)


def test_a_kv_type_whose_blocks_do_not_divide_a_head_is_refused_with_those_that_do(
    tiny_model: Callable[..., Path],
) -> None:
    keys = {"attention.key_length": 48, "attention.value_length": 48}
    shape = shape_of(read_gguf(tiny_model("llama", **keys)))
    assert kv_types(shape) == ("f32", "f16", "bf16")
    with pytest.raises(FootprintError, match=r"needs heads of a multiple of 32, .* has 48; use one of: f32, f16, bf16"):
        kv_cost(shape, KvPlan("q8_0", "q8_0"), 512)


def test_a_name_that_is_no_kv_type_is_refused_with_the_names(shapes: dict[str, tuple[Path, ModelShape]]) -> None:
    with pytest.raises(FootprintError, match="'q9' is no KV type; use one of: f32, f16"):
        kv_cost(shapes["llama"][1], KvPlan("q9", "q9"), 512)


def test_weights_are_counted_by_place_and_add_up_to_the_files_tensors(tiny_model: Callable[..., Path]) -> None:
    header = read_gguf(tiny_model("llama"))
    shape = shape_of(header)
    assert shape.weights == sum(tensor.size for tensor in header.tensors) == sum(shape.by_type.values())
    assert shape.input == 128 * 320 * 4
    assert shape.tied
    assert len({layer.weights for layer in shape.layers}) == 1


def test_a_header_without_layers_is_no_language_model(tiny_model: Callable[..., Path]) -> None:
    header = read_gguf(tiny_model("llama", block_count=None))
    with pytest.raises(FootprintError, match="block_count is missing"):
        shape_of(header)


@pytest.mark.parametrize("said", [7, 1000, 2**31 - 1])
def test_a_header_that_claims_layers_without_tensors_is_refused_before_anything_is_made_for_each(
    tiny_model: Callable[..., Path], said: int
) -> None:
    header = read_gguf(tiny_model("llama", block_count=said))
    with pytest.raises(FootprintError, match=f"block_count says {said:,} layers, and there are tensors of 6"):
        shape_of(header)


def test_a_per_layer_list_of_another_length_is_refused(tiny_model: Callable[..., Path]) -> None:
    header = read_gguf(tiny_model("llama", **{"attention.head_count_kv": [2, 2]}))
    with pytest.raises(FootprintError, match="head_count_kv has 2 values for 6 layers"):
        shape_of(header)


def test_without_flash_attention_so_many_rows_are_computed_together_as_their_scores_have_room() -> None:
    assert [rows_together(512, 32, cells) for cells in (256, 16_384, 1 << 20)] == [512, 32, 16]


@pytest.mark.parametrize("cells", [512, 8_192, 32_768, 131_072])
def test_the_engine_computes_as_many_rows_together_as_were_planned(cells: int) -> None:
    from orchestrator.engine.llama.model_files import context_parameters

    plain, flash = (EngineSpec("", threads=1, flash_attention=wanted) for wanted in (False, True))
    assert context_parameters(plain, cells, 1, heads=32).n_ubatch == rows_together(512, 32, cells)
    assert context_parameters(flash, cells, 1, heads=32).n_ubatch == KvPlan().ubatch


def test_buffers_are_predicted_for_vocabularies_of_150_000_and_260_000_words(
    qwen_model: Path, gemma_model: Path
) -> None:
    """Most of them are for logits, which llama.cpp computes for few rows of a batch."""
    plans = [
        (KvPlan(sequences=sequences, flash_attention=flash), cells)
        for flash in (True, False)
        for sequences, cells in ((34, 2_048), (8, 8_192), (32, 32_768))
    ]
    models = (qwen_model, gemma_model)
    for path, found in zip(models, measured([(path, plans) for path in models]), strict=True):
        shape = shape_of(read_gguf(path))
        for (plan, cells), seen in zip(plans, found, strict=True):
            assert seen is not None
            predicted = working_bytes(shape, plan, cells) / MIB
            assert predicted == pytest.approx(seen[2], rel=0.15), (path.name, plan, cells)


@pytest.mark.anyio
@pytest.mark.parametrize("model", ["qwen_model", "gemma_model"])
async def test_what_binds_answers_takes_what_was_planned_from_the_first_schema_on(
    request: pytest.FixtureRequest, model: str
) -> None:
    path: Path = request.getfixturevalue(model)
    async with engine(path) as client:
        await load(client)
        await ask(client, 15)
        assert client.pid is not None
        child = psutil.Process(client.pid)
        before, bound = child.memory_info().rss, client.snapshot.binds
        await ask(client, 15, schema='{"type": "boolean"}')
        took, planned = child.memory_info().rss - before, binding_bytes(shape_of(read_gguf(path)))
        assert (bound, client.snapshot.binds) == (False, True)
        assert took == pytest.approx(planned, rel=0.15)


def test_working_memory_grows_with_the_batch_and_with_the_pool(shapes: dict[str, tuple[Path, ModelShape]]) -> None:
    shape = shapes["llama"][1]
    small = working_bytes(shape, KvPlan(ubatch=64), 4_096)
    assert small < working_bytes(shape, KvPlan(ubatch=512), 4_096) < working_bytes(shape, KvPlan(ubatch=512), 65_536)
