"""Whether a model would fit this machine, from its header and the sensors, without loading it. Pure.

What our own model holds now counts as free: another one would take its place.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from governor.budget import Demand, MemoryBudget, plan_budget, weights_on_gpu
from governor.footprint import KvPlan, bytes_per_token, kv_cost, kv_types, rows_together, working_bytes
from governor.offload import FLOATS, Offload, idle, impossible, parts, shares_of
from governor.readings import MemoryReading
from governor.settings import MemorySettings, short_count, size
from governor.shape import FootprintError, ModelShape
from orchestrator.settings.model import KvType
from orchestrator.wire.replies import GpuShare, LoadingChoice

LEAST_CONTEXT = 512  # tokens: the shortest window that may be set
QUANTISED_ON_CPU = "on a CPU quantised KV has no tiles: prompts are computed 5 (q8_0) to 10 (q4_0) times slower"
SLOW_ON_CPU = "on a CPU a question or an answer takes up to three times longer with it"


@dataclass(frozen=True)
class MachineMemory:
    """The machine: the memory that counts, the user's limit, RAM for layers that a GPU cannot take, and what the embedding
    model takes beside any model."""

    memory: MemoryReading | None
    settings: MemorySettings
    limit: int | None = None
    host_free: int = 0
    embedding_bytes: int = 0


@dataclass(frozen=True)
class Fitting:
    """`fits` is None where it cannot be known; `context` is one sequence's limit in tokens."""

    fits: bool | None
    context: int | None
    words: str
    budget: MemoryBudget | None = None


def fitting(shape: ModelShape, plan: KvPlan, ground: MachineMemory, gpu_layers: int = -1) -> Fitting:
    """`gpu_layers` -1: as many as fit."""
    if ground.memory is None:
        return Fitting(None, None, "unknown: how much memory there is cannot be read")
    wanted = None if gpu_layers < 0 else gpu_layers
    demand = Demand(
        shape,
        plan,
        gpu_layers=wanted,
        host_free=ground.host_free,
        embedding_bytes=ground.embedding_bytes,
    )
    try:
        budget = plan_budget(0, ground.memory, demand, ground.settings, ground.limit)
    except FootprintError as error:
        return Fitting(None, None, f"unknown: {error}")
    if budget.window < min(LEAST_CONTEXT, shape.trained):
        return Fitting(False, None, f"no: {too_large(budget, shape)}", budget)
    return Fitting(True, budget.window, f"yes, context {short_count(budget.window)}{partly(budget)}", budget)


def too_large(budget: MemoryBudget, shape: ModelShape) -> str:
    """Everything that the plan takes off before there is room for KV."""
    needed = size(shape.weights + budget.working + budget.embedding_bytes)
    what = "weights, buffers and the embedding model" if budget.embedding_bytes else "weights and buffers"
    return f"{what} need {needed} and {size(budget.ours)} of {budget.where} can be had"


def partly(budget: MemoryBudget) -> str:
    if budget.where == "RAM" or budget.gpu_layers == budget.layers:
        return ""
    return f", {budget.gpu_layers} of {budget.layers} layers on the GPU"


@dataclass(frozen=True)
class Gpu:
    """One that the engine may use; `free` bytes on it."""

    name: str
    free: int


def choices(
    shape: ModelShape, chosen: Offload, budget: MemoryBudget | None, gpus: Sequence[Gpu] = ()
) -> tuple[LoadingChoice, ...]:
    """`gpus`: those that the engine may use; none: everything runs on the CPU."""
    made = (
        gpu_layers(shape, chosen, budget, bool(gpus)),
        *split(chosen, gpus),
        kv_type("k", shape, chosen, bool(gpus)),
        kv_type("v", shape, chosen, bool(gpus)),
        flash_attention(shape, chosen, bool(gpus)),
        context(shape, chosen, budget),
        batch(shape, chosen),
        sequences(shape, chosen),
    )
    wrong = {one.setting: f"{one.why}: {one.instead}" for one in impossible(shape, chosen, len(gpus))}
    useless = {one.partition(" ")[0]: one for one in idle(chosen, len(gpus))}
    return tuple(judged(one, wrong.get(one.setting, ""), useless.get(one.setting, "")) for one in made)


def choice(setting: str, value: str, costs: str, note: str = "", *, suits: bool = True) -> LoadingChoice:
    return LoadingChoice(setting=setting, value=value, suits=suits, costs=costs, note=note)


def judged(one: LoadingChoice, wrong: str, useless: str) -> LoadingChoice:
    if wrong:
        return one.model_copy(update={"suits": False, "costs": "loading is refused", "note": wrong})
    return one.model_copy(update={"suits": False, "note": useless}) if useless else one


def gpu_layers(shape: ModelShape, chosen: Offload, budget: MemoryBudget | None, on_gpu: bool) -> LoadingChoice:
    value = "all that fit" if chosen.gpu_layers < 0 else str(chosen.gpu_layers)
    layers = len(shape.layers) + 1
    if not on_gpu:
        return choice("model.gpu_layers", value, "no VRAM: everything runs on the CPU")
    taken = budget.gpu_layers if budget is not None and budget.where == "VRAM" else 0
    costs = f"{taken} of {layers} layers: {size(weights_on_gpu(shape, taken))} of weights in VRAM"
    away = layers - taken
    note = f"{away} layers stay in RAM and slow every token" if away else ""
    return choice("model.gpu_layers", value, costs, note)


def split(chosen: Offload, gpus: Sequence[Gpu]) -> Iterator[LoadingChoice]:
    if len(gpus) < 2:
        yield choice("model.split_mode", chosen.split, f"nothing is split: {gpus[0].name if gpus else 'no GPU'}")
    else:
        words = {"layer": "whole layers, each with its KV", "none": f"all on {gpus[chosen.main % len(gpus)].name}"}
        costs = words.get(chosen.split, f"a part of each {chosen.split}: GPUs exchange results at every layer")
        yield choice("model.split_mode", chosen.split, costs)
    given = ", ".join(f"{share:g}" for share in chosen.shares) or "by what is free"
    shares = ", ".join(f"{share:.0%}" for share in shares_of(chosen, [gpu.free for gpu in gpus])) if gpus else "nothing"
    yield choice("model.tensor_split", given, f"{shares} on {len(gpus)} GPUs" if len(gpus) > 1 else "nothing")
    yield choice("model.main_gpu", str(chosen.main), "nothing" if chosen.split != "none" else "takes all")


def kv_type(side: str, shape: ModelShape, chosen: Offload, on_gpu: bool) -> LoadingChoice:
    name = chosen.plan.keys if side == "k" else chosen.plan.values
    setting = f"model.kv_type_{side}"
    try:
        per_token = f"{bytes_per_token(shape, chosen.plan):,} B a token, keys and values"
    except FootprintError as error:
        return choice(setting, name, "not known before it is loaded", str(error))
    slow = name not in FLOATS and not on_gpu
    return choice(setting, name, per_token, QUANTISED_ON_CPU if slow else "")


def flash_attention(shape: ModelShape, chosen: Offload, on_gpu: bool) -> LoadingChoice:
    cells = min(shape.trained, 8192)
    buffers = f"about {size(working_bytes(shape, chosen.plan, cells))} of buffers a pool at 8k"
    if chosen.plan.flash_attention:
        slow = "" if on_gpu else SLOW_ON_CPU
        return choice("model.flash_attention", "on", buffers, slow)
    rows = rows_together(shape, chosen.plan, cells)
    return choice("model.flash_attention", "off", f"{buffers}, {rows} rows of a prompt at a time")


def context(shape: ModelShape, chosen: Offload, budget: MemoryBudget | None) -> LoadingChoice:
    fits = budget.window if budget is not None else 0
    if chosen.context is None:
        return choice("model.context", "auto", f"{short_count(fits)} tokens: what fits now")
    note = f"only {fits:,} tokens fit now" if fits < chosen.context else ""
    return choice("model.context", f"{chosen.context:,}", kv_of(shape, chosen, chosen.context), note, suits=not note)


def batch(shape: ModelShape, chosen: Offload) -> LoadingChoice:
    logits = chosen.plan.ubatch * 4 * shape.vocabulary
    return choice("model.batch", str(chosen.plan.ubatch), f"{size(logits)} of buffers for logits")


def sequences(shape: ModelShape, chosen: Offload) -> LoadingChoice:
    count = chosen.plan.sequences
    state = sum(layer.state for layer in shape.layers) * 4 * count
    more = f", {size(state)} of recurrent state" if state else ""
    costs = f"{size(count * shape.vocabulary * 4)} of output buffer a pool{more}"
    return choice("model.sequences", str(count), costs)


def kv_of(shape: ModelShape, chosen: Offload, tokens: int) -> str:
    try:
        return f"{size(kv_cost(shape, chosen.plan, tokens).total)} of KV"
    except FootprintError as error:
        return str(error)


def per_type(shape: ModelShape, plan: KvPlan) -> Iterator[tuple[str, int, KvPlan]]:
    """Each KV type that can be set and suits the model's heads, with its bytes per token and its plan, largest first."""
    for name in [one for one in kv_types(shape) if one in get_args(KvType)]:
        with_it = replace(plan, keys=name, values=name)
        yield name, bytes_per_token(shape, with_it), with_it


def placed(shape: ModelShape, chosen: Offload, budget: MemoryBudget, gpus: Sequence[Gpu]) -> tuple[GpuShare, ...]:
    """What each GPU would hold with the layers and the window of this budget; none where nothing goes there."""
    if not gpus or not budget.gpu_layers:
        return ()
    held = parts(shape, chosen, budget.gpu_layers, [gpu.free for gpu in gpus], budget.window)
    return tuple(
        GpuShare(name=gpu.name, free=gpu.free, layers=part.layers, weights=part.weights, kv_bytes=part.kv)
        for gpu, part in zip(gpus, held, strict=True)
    )
