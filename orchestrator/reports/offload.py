"""What each setting of loading costs with a model, and whether it suits it. Pure.

Figures of what flash attention and quantised KV cost on a CPU were measured with llama.cpp 0c1e5709 on two cores.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from governor.budget import Budget, weights_on_gpu
from governor.errors import FootprintError
from governor.fit import short_count, size
from governor.footprint import KvPlan, bytes_per_token, kv_cost, kv_types, working_bytes
from governor.shape import ModelShape

QUANTISED_ON_CPU = "on a CPU quantised KV has no tiles: prompts are computed 5 (q8_0) to 10 (q4_0) times slower"
NEEDS_FLASH = "quantised values need flash attention: set model.flash_attention = true, or kv_type_v = f16"
WITHOUT_FLASH = "without it the scores of a step are held whole: 150 instead of 20 MiB of buffers at 8k, and growing"
FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True)
class Chosen:
    """The settings of loading. `context` None: auto; `gpu_layers` -1: as many as fit."""

    plan: KvPlan
    flash_attention: bool = True
    context: int | None = None
    gpu_layers: int = -1


@dataclass(frozen=True)
class Choice:
    """One setting beside a model. `suits` is False where loading would fail or the setting do nothing."""

    setting: str
    value: str
    suits: bool
    costs: str
    note: str = ""


def choices(shape: ModelShape, chosen: Chosen, budget: Budget | None, gpus: Sequence[str] = ()) -> tuple[Choice, ...]:
    """`gpus`: names of those that the engine may use; none: everything runs on the CPU."""
    return (
        gpu_layers(shape, chosen, budget, bool(gpus)),
        split(gpus),
        kv_type("k", shape, chosen, bool(gpus)),
        kv_type("v", shape, chosen, bool(gpus)),
        flash_attention(shape, chosen),
        context(shape, chosen, budget),
        batch(shape, chosen),
        sequences(shape, chosen),
    )


def gpu_layers(shape: ModelShape, chosen: Chosen, budget: Budget | None, on_gpu: bool) -> Choice:
    value = "all that fit" if chosen.gpu_layers < 0 else str(chosen.gpu_layers)
    layers = len(shape.layers) + 1
    if not on_gpu:
        note = "there is no GPU that the engine can use" if chosen.gpu_layers > 0 else ""
        return Choice("model.gpu_layers", value, not note, "no VRAM: everything runs on the CPU", note)
    taken = budget.gpu_layers if budget is not None and budget.where == "VRAM" else 0
    costs = f"{taken} of {layers} layers: {size(weights_on_gpu(shape, taken))} of weights in VRAM"
    away = layers - taken
    note = f"{away} layers stay in RAM and slow every token" if away else ""
    return Choice("model.gpu_layers", value, True, costs, note)


def split(gpus: Sequence[str]) -> Choice:
    if len(gpus) < 2:
        return Choice("GPUs", gpus[0] if gpus else "none", True, "nothing is split")
    note = "memory is planned with the first one: hide the others with CUDA_VISIBLE_DEVICES"
    return Choice("GPUs", f"{len(gpus)}", True, "layers are split over all by what is free there", note)


def kv_type(side: str, shape: ModelShape, chosen: Chosen, on_gpu: bool) -> Choice:
    name = chosen.plan.keys if side == "k" else chosen.plan.values
    setting = f"model.kv_type_{side}"
    if name not in FLOATS and side == "v" and not chosen.flash_attention:
        return Choice(setting, name, False, "loading fails", NEEDS_FLASH)
    try:
        per_token = bytes_per_token(shape, chosen.plan)
    except FootprintError as error:
        return Choice(setting, name, False, "loading fails", str(error))
    slow = name not in FLOATS and not on_gpu
    return Choice(setting, name, True, f"{per_token:,} B a token, keys and values", QUANTISED_ON_CPU if slow else "")


def flash_attention(shape: ModelShape, chosen: Chosen) -> Choice:
    if not chosen.flash_attention:
        return Choice("model.flash_attention", "off", True, WITHOUT_FLASH)
    buffers = working_bytes(shape, chosen.plan, min(shape.trained, 8192))
    return Choice("model.flash_attention", "on", True, f"about {size(buffers)} of buffers a pool at 8k")


def context(shape: ModelShape, chosen: Chosen, budget: Budget | None) -> Choice:
    fits = budget.window if budget is not None else 0
    if chosen.context is None:
        return Choice("model.context", "auto", True, f"{short_count(fits)} tokens: what fits now")
    value = f"{chosen.context:,}"
    if chosen.context > shape.trained:
        note = f"the model was trained for {shape.trained:,}: the window stays there"
        return Choice("model.context", value, False, kv_of(shape, chosen, shape.trained), note)
    note = f"only {fits:,} tokens fit now" if fits < chosen.context else ""
    return Choice("model.context", value, not note, kv_of(shape, chosen, chosen.context), note)


def batch(shape: ModelShape, chosen: Chosen) -> Choice:
    logits = chosen.plan.ubatch * 4 * shape.vocabulary
    return Choice("model.batch", str(chosen.plan.ubatch), True, f"{size(logits)} of buffers for logits")


def sequences(shape: ModelShape, chosen: Chosen) -> Choice:
    count = chosen.plan.sequences
    state = sum(layer.state for layer in shape.layers) * 4 * count
    more = f", {size(state)} of recurrent state" if state else ""
    costs = f"{size(count * shape.vocabulary * 4)} of output buffer a pool{more}"
    return Choice("model.sequences", str(count), True, costs)


def kv_of(shape: ModelShape, chosen: Chosen, tokens: int) -> str:
    try:
        return f"{size(kv_cost(shape, chosen.plan, tokens).total)} of KV"
    except FootprintError as error:
        return str(error)


def per_type(shape: ModelShape, plan: KvPlan) -> Iterator[tuple[str, int, KvPlan]]:
    """Each KV type the model's heads can be kept in, with its bytes per token and its plan, largest first."""
    for name in kv_types(shape):
        with_it = replace(plan, keys=name, values=name)
        yield name, bytes_per_token(shape, with_it), with_it
