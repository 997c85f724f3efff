"""The grant: margin and ceiling kept, others' growth shrinks it, RAM takes VRAM's place, layers spill from a small GPU."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.shapes import LLAMA_8B

from governor.budget import (
    Bound,
    Demand,
    MemoryBudget,
    Ours,
    Outlook,
    ceiling_of,
    checkpoint_bytes,
    next_outlook,
    plan_budget,
    room_of,
    served_budget,
    weights_on_gpu,
)
from governor.footprint import KvPlan, binding_bytes, kv_cost
from governor.gguf import read_gguf
from governor.model_shape import FootprintError, shape_of
from governor.pressure import Level
from governor.readings import HostReading, MemoryReading, SensorSnapshot
from governor.settings import GIB, MIB, GovernorSettings, MemorySettings, SettingError, StoreSettings, limit_bytes, size

SETTINGS = MemorySettings()


def vram(free: float, total: float = 24, own: float | None = 0) -> MemoryReading:
    return MemoryReading("VRAM", int(total * GIB), int(free * GIB), None if own is None else int(own * GIB))


def granted(memory: MemoryReading, limit: int | None = None, **demand: object) -> MemoryBudget:
    wanted = Demand(LLAMA_8B, KvPlan(), **demand)  # type: ignore[arg-type]
    return plan_budget(1, memory, wanted, SETTINGS, limit)


def test_an_empty_gpu_grants_the_planned_share_of_what_weights_and_buffers_leave() -> None:
    budget = granted(vram(24))
    assert budget.ceiling == int(24 * GIB * 0.95) + 1 or budget.ceiling == 24 * GIB - int(24 * GIB * 0.05)
    assert budget.others == 0
    assert budget.kv_hard == budget.ceiling - budget.weights - budget.working
    assert budget.kv == int(budget.kv_hard * 0.90)
    assert budget.gpu_layers == budget.layers == 33
    assert budget.cells % 256 == 0
    assert kv_cost(LLAMA_8B, KvPlan(), budget.cells) <= budget.kv
    assert budget.window == min(LLAMA_8B.trained, budget.cells)


def test_what_others_hold_is_not_granted_and_what_we_hold_is() -> None:
    empty = granted(vram(24))
    assert granted(vram(18)).others == 6 * GIB
    assert granted(vram(18)).cells < empty.cells
    assert granted(vram(18, own=6)).cells == empty.cells


def test_when_planning_ends_below_the_smallest_window_what_is_there_is_still_granted() -> None:
    budget = granted(vram(5.82), gpu_layers=33)
    assert int(budget.kv_hard * 0.90) < kv_cost(LLAMA_8B, KvPlan(), 4_096) <= budget.kv_hard
    assert budget.cells == 4_096


def test_buffers_that_were_seen_take_the_estimates_place_and_what_else_is_ours_is_fixed_too() -> None:
    estimated, seen = granted(vram(24)), granted(vram(24), buffers=300 * MIB, overhead=400 * MIB)
    assert estimated.working > 0
    assert (seen.weights, seen.working) == (estimated.weights, 700 * MIB)
    assert seen.kv_hard == seen.ceiling - seen.fixed


@given(st.floats(1, 30), st.integers(512, 200_000) | st.none(), st.floats(0, 8))
def test_a_window_ends_at_the_least_of_its_limits_and_says_at_which(
    free: float, context: int | None, ram: float
) -> None:
    budget = granted(vram(free, total=32), context=context, host_free=int(ram * GIB))
    assert budget.window == min(LLAMA_8B.trained, budget.cells, context or LLAMA_8B.trained)
    longest = {Bound.TRAINED: LLAMA_8B.trained, Bound.CONTEXT: context}.get(budget.bound, budget.cells)
    assert budget.window == longest
    assert (budget.bound is Bound.RAM) <= (0 < budget.gpu_layers < budget.layers or budget.gpu_layers == 0)


def test_the_reason_of_a_window_names_the_limit_with_its_numbers() -> None:
    assert granted(vram(80, total=80)).reason == "the model was trained for 131,072 tokens"
    assert granted(vram(80, total=80), context=8_192).reason == "model.context allows 8,192 tokens"
    measured = granted(vram(80, total=80), measured=16_384)
    assert measured.reason == "the model was measured to follow 16,384 tokens (lore doctor --context)"
    middle = granted(vram(12, total=12))
    assert (middle.bound, middle.window) == (Bound.KV, middle.cells)
    assert middle.reason == f"{size(middle.kv)} of VRAM are left for KV"
    spilled = granted(vram(3, total=3), host_free=2_150 * MIB)
    assert spilled.bound is Bound.RAM
    assert "of 33 on the GPU" in spilled.reason


@pytest.mark.parametrize(
    ("memory", "limit", "demand", "said"),
    [
        (vram(24), 1, {"gpu_layers": 33}, "the model takes 4.1 GiB of VRAM beside KV, and 0 KiB may be ours"),
        (vram(0.5, total=0.5), None, {"gpu_layers": 33}, "the model takes 4.1 GiB of VRAM beside KV, and 0 KiB may be"),
        (vram(3, total=3), None, {}, "RAM holds no more KV of the layers on the CPU ("),
        (vram(24), None, {}, ""),
    ],
)
def test_a_limit_that_cannot_be_met_and_a_model_larger_than_all_say_why_nothing_is_held(
    memory: MemoryReading, limit: int | None, demand: dict[str, int], said: str
) -> None:
    budget = granted(memory, limit, **demand)
    assert (budget.cells == 0) is bool(said)
    assert budget.shortage.startswith(said)
    assert budget.reason.startswith(said), "status says the same"


def test_another_context_is_another_grant() -> None:
    one, other = granted(vram(24), context=8_192), granted(vram(24), context=16_384)
    assert (one.cells, one.same_grant(other, 0.02)) == (other.cells, False)


def test_the_trained_length_bounds_the_window_but_not_the_pool() -> None:
    assert granted(vram(80, total=80)).window == LLAMA_8B.trained
    shared = replace(granted(vram(80, total=80)), number=1)
    assert shared.cells == 131_072


def test_without_gpu_ram_takes_its_place() -> None:
    memory = MemoryReading("RAM", 32 * GIB, 30 * GIB, 1 * GIB)
    budget = granted(memory)
    assert (budget.where, budget.gpu_layers) == ("RAM", 0)
    assert budget.weights == LLAMA_8B.weights
    assert budget.cells > 0


def test_what_binds_answers_is_in_ram_and_fixed_there_whether_it_was_made_or_not() -> None:
    memory, words = MemoryReading("RAM", 32 * GIB, 30 * GIB, 1 * GIB), LLAMA_8B.vocabulary
    assert granted(memory, buffers=300 * MIB).working == 300 * MIB + binding_bytes(LLAMA_8B)
    assert granted(vram(24), buffers=300 * MIB).working == 300 * MIB
    assert 40 * MIB < binding_bytes(LLAMA_8B) == words * binding_bytes(replace(LLAMA_8B, vocabulary=1))


def test_a_small_gpu_takes_the_last_layers_and_ram_bounds_the_rest() -> None:
    budget = granted(vram(3, total=3), host_free=64 * GIB)
    assert 0 < budget.gpu_layers < budget.layers
    assert budget.weights == weights_on_gpu(LLAMA_8B, budget.gpu_layers)
    assert budget.cells >= 4_096
    assert granted(vram(3, total=3), host_free=0).cells == 0


def test_weights_on_the_gpu_begin_with_the_output_and_end_with_all_layers() -> None:
    assert weights_on_gpu(LLAMA_8B, 0) == 0
    assert weights_on_gpu(LLAMA_8B, 1) == 128 * MIB
    assert weights_on_gpu(LLAMA_8B, 33) == LLAMA_8B.weights - LLAMA_8B.input
    assert weights_on_gpu(replace(LLAMA_8B, tied=True, output=0), 1) == LLAMA_8B.input


def test_an_architecture_that_cannot_be_predicted_is_said_so(tiny_model: Callable[..., Path]) -> None:
    shape = shape_of(read_gguf(tiny_model("llama9", "llama")))
    with pytest.raises(FootprintError, match="cannot be predicted"):
        plan_budget(1, vram(24), Demand(shape, KvPlan()), SETTINGS, None)


@given(st.floats(0, 24), st.floats(0, 24), st.none() | st.floats(0.1, 24))
def test_more_free_memory_never_grants_less_and_the_margin_is_never_planned_away(
    one: float, other: float, limit: float | None
) -> None:
    bound = None if limit is None else int(limit * GIB)
    less, more = (granted(vram(free), bound) for free in sorted((one, other)))
    assert less.kv_hard <= more.kv_hard or less.gpu_layers < more.gpu_layers
    assert less.gpu_layers <= more.gpu_layers
    for budget in (less, more):
        assert budget.ceiling <= 24 * GIB - max(512 * MIB, int(24 * GIB * 0.05))
        assert 0 <= budget.kv <= budget.kv_hard
        if budget.kv_hard:
            assert budget.others + budget.weights + budget.working + budget.kv_hard <= budget.ceiling
            assert bound is None or budget.weights + budget.working + budget.kv_hard <= bound


@given(st.floats(0, 24), st.floats(0, 24))
def test_with_layers_placed_more_free_memory_never_grants_fewer_cells(one: float, other: float) -> None:
    less, more = (granted(vram(free), gpu_layers=33) for free in sorted((one, other)))
    assert less.cells <= more.cells
    assert less.window <= more.window


def test_a_grant_that_moves_less_than_a_step_is_the_same_grant() -> None:
    budget = granted(vram(20), gpu_layers=33)
    assert budget.same_grant(replace(budget, number=9, cells=budget.cells - 256), 0.02)
    assert not budget.same_grant(replace(budget, cells=budget.cells // 2), 0.02)
    assert not budget.same_grant(replace(budget, gpu_layers=10), 0.02)


# ---- limits and checkpoints ---------------------------------------------------------------------------------------


def test_the_margin_is_the_larger_of_its_two() -> None:
    assert ceiling_of(4 * GIB, SETTINGS) == 4 * GIB - 512 * MIB
    assert ceiling_of(80 * GIB, SETTINGS) == 80 * GIB - int(80 * GIB * 0.05)
    assert ceiling_of(100 * MIB, SETTINGS) == 0


def test_the_users_limit_bounds_what_is_ours_and_not_what_others_hold() -> None:
    assert room_of(22 * GIB, 10 * GIB, 6 * GIB) == 6 * GIB
    assert room_of(22 * GIB, 18 * GIB, 6 * GIB) == 4 * GIB
    assert room_of(22 * GIB, 30 * GIB, 6 * GIB) == 0
    assert room_of(22 * GIB, 10 * GIB, None) == 12 * GIB
    share = limit_bytes("90%", 14 * GIB)
    assert granted(vram(14), limit=share, gpu_layers=33).ours == share
    assert (
        granted(vram(14), limit=8 * GIB, gpu_layers=33).cells == granted(vram(24), limit=8 * GIB, gpu_layers=33).cells
    )


def test_what_stands_beside_the_model_is_taken_from_its_kv() -> None:
    alone, beside = granted(vram(24), gpu_layers=33), granted(vram(24), gpu_layers=33, embedding_bytes=2 * GIB)
    assert beside.kv_hard == alone.kv_hard - 2 * GIB
    assert beside.kv == int(beside.kv_hard * 0.90)
    assert beside.others + beside.weights + beside.working + beside.embedding_bytes + beside.kv_hard == beside.ceiling


@pytest.mark.parametrize(("text", "bytes_"), [("90%", 9 * GIB), ("0.5%", GIB // 20), ("4096", 4_096)])
def test_a_limit_is_bytes_or_a_share_of_what_was_free(text: str, bytes_: int) -> None:
    assert limit_bytes(text, 10 * GIB) == bytes_


@pytest.mark.parametrize("text", ["", "much", "-1", "120%", "0", "0%", "12GiB", "1e9"])
def test_a_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        limit_bytes(text, 10 * GIB)


def test_checkpoints_take_a_share_of_what_is_free_on_disk_and_nothing_when_that_is_unknown() -> None:
    settings = StoreSettings()
    assert checkpoint_bytes(100 * 10**9, settings) == 20 * 10**9
    assert checkpoint_bytes(10**13, settings) == 50 * 10**9
    assert checkpoint_bytes(None, settings) == 0


def test_weights_that_are_pages_of_their_file_hide_nothing_else_that_is_ours_in_ram() -> None:
    """The kernel counts such pages as free, so that they are neither in what our processes use nor with what others do."""
    heaps, others, buffers, kv = GIB, 4 * GIB, 300 * MIB, 2 * GIB
    weights = LLAMA_8B.weights
    own = heaps + buffers + kv
    host = HostReading(ram_total=24 * GIB, ram_available=24 * GIB - others - own, ram_own=own)
    demand = Demand(LLAMA_8B, KvPlan(), buffers=buffers)
    ours = Ours(held=weights + buffers + kv, mapped=weights, demand=demand)
    outlook = next_outlook(None, SensorSnapshot(0.0, (), host), ours, GovernorSettings())
    budget = outlook.budget
    assert budget is not None
    assert (outlook.overhead, budget.others) == (heaps, others)
    assert budget.fixed == weights + buffers + heaps + binding_bytes(LLAMA_8B)


def served(before: Outlook | None, tokens: int, **more: Any) -> Outlook:
    """The outlook where a server with a context of so many tokens computes."""
    ours = Ours(served=tokens, **more)
    return next_outlook(before, SensorSnapshot(0.0, (), HostReading()), ours, GovernorSettings())


def test_where_a_server_computes_the_window_is_its_context_and_no_memory_is_asked_for() -> None:
    budget = served(None, 4096).budget
    assert budget is not None and budget == served_budget(1, 4096)
    assert (budget.window, budget.cells, budget.bound) == (4096, 4096, Bound.SERVER)
    assert budget.reason == "the server's context is 4,096 tokens" and budget.shortage == ""


def test_before_a_server_has_told_its_context_nothing_is_planned() -> None:
    outlook = served(None, 0)
    assert outlook.budget is None and "no server" in outlook.unplanned


def test_the_same_context_is_the_same_grant_and_a_measured_length_ends_its_window() -> None:
    first = served(None, 4096)
    assert served(first, 4096) == first
    measured = served(first, 4096, measured=2048).budget
    assert measured is not None
    assert (measured.number, measured.window, measured.longest, measured.bound) == (2, 2048, 4096, Bound.MEASURED)


def test_the_level_follows_the_servers_queue() -> None:
    settings, outlook = GovernorSettings(), served(None, 4096)
    for at in (0.0, 1000.0):
        snapshot = SensorSnapshot(at, (), HostReading())
        outlook = next_outlook(outlook, snapshot, Ours(served=4096, queue=0.85), settings)
    assert outlook.level is Level.HIGH
