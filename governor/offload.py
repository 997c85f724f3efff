"""How to load a model, and which settings are impossible with it, before anything is loaded. Pure.

Follows the refusals of `llama_init_from_model` and the placing of layers in llama-model.cpp of llama.cpp 0c1e5709. Knows
shapes and numbers of GPUs; no file, no sensor.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from governor.architectures import windows_have_own_cells
from governor.budget import weights_on_gpu
from governor.footprint import KvPlan, kv_cost, kv_types, misfit, working_bytes
from governor.model_shape import ModelShape

FLOATS = ("f32", "f16", "bf16")
NO_FLASH = frozenset({"grok"})  # llama.cpp turns flash attention off for these, whatever is asked


@dataclass(frozen=True)
class Offload:
    """The settings of loading. `context` None: what fits; `gpu_layers` -1: as many as fit. `flash` None:
    `for_shape` chooses flash attention, by the model's window and `on_gpu`.

    `windows`: the cache of sliding layers, full, small or auto; `with_windows` chooses it. `kv_auto`: the types of KV may
    be others than `plan` has; `kv_reason`: why they are.

    `split` over the GPUs: whole layers, rows or tensors of each layer, or none (all on GPU `main`). `shares` are what
    each GPU takes, in any unit; none: by what is free there.
    """

    plan: KvPlan
    context: int | None = None
    gpu_layers: int = -1
    split: str = "layer"
    shares: tuple[float, ...] = ()
    main: int = 0
    flash: bool | None = None
    windows: str = "auto"
    on_gpu: bool = False
    kv_auto: bool = False
    kv_reason: str = ""

    def for_shape(self, shape: ModelShape) -> "Offload":
        """The same for one model: before, `plan` knows nothing of flash attention. Windows are full until
        `with_windows`."""
        flash = flash_attention(self.flash, self.plan.values, on_gpu=self.on_gpu, window=shape.window)
        return replace(self, plan=replace(self.plan, flash_attention=flash, small_windows=0))


@dataclass(frozen=True)
class Impossible:
    """A setting that loading would fail with: why, and what to set instead."""

    setting: str
    why: str
    instead: str


def impossible(shape: ModelShape, chosen: Offload, gpus: int | None) -> tuple[Impossible, ...]:
    """All settings that loading would fail with. `gpus`: the number that the engine can use; None where it is unknown."""
    return (*_kv(shape, chosen), *_context(shape, chosen), *_split(chosen, gpus))


def idle(chosen: Offload, gpus: int | None) -> tuple[str, ...]:
    """Settings without effect here, each with the reason."""
    if gpus == 0:
        asked = {
            "model.gpu_layers": chosen.gpu_layers > 0,
            "model.tensor_split": bool(chosen.shares),
            "model.main_gpu": chosen.main > 0,
        }
        return tuple(
            f"{name} has no effect: there is no GPU that the engine can use" for name, on in asked.items() if on
        )
    if gpus is not None and chosen.shares and (gpus == 1 or chosen.split == "none"):
        why = "there is one GPU" if gpus == 1 else "model.split_mode is none"
        return (f"model.tensor_split has no effect: {why}",)
    return ()


def flash_attention(asked: bool | None, values: str, *, on_gpu: bool, window: int = 0) -> bool:
    """Whether to use llama.cpp's flash attention. `asked` None: the best choice. `window`: tokens that sliding layers see.

    1. On a GPU it is faster and takes less memory.
    2. Quantised values need it.
    3. It does not read what lies behind a sliding window, and plain attention does.
    4. Else plain attention is up to three times faster on a CPU for the few rows of answers and questions, and no slower
       for prompts (decision 0008); computed a few rows at a time, it takes no more memory.
    """
    if asked is not None:
        return asked
    return on_gpu or values not in FLOATS or window > 0


ENOUGH_WINDOW = 32_768  # tokens: a small cache is not taken by itself where a full-size one holds as many
CLEARLY_MORE = 1.5  # of a full-size cache's tokens: for less nobody gives up ranges
# What is free at one start and at the next differs, and checkpoints made with one cache are of no use to the other. So
# the cache that a model had before stays until the bounds are passed by a fifth.
STAYS = 0.8
# One sequence carries states, and an answer needs two: four, three or two answers at once.
SMALL_SEQUENCES = (9, 7, 5)


def with_windows(chosen: Offload, shape: ModelShape, window_of: Callable[[KvPlan], int], before: str = "") -> Offload:
    """The same with the cache of sliding layers chosen. `window_of`: tokens of the longest sequence that a plan leaves.
    `before`: the cache that the model had when it was loaded last, full or small; "" where nobody knows.

    1. A full-size cache, which has ranges: where it is set, where no small one is possible, or where it holds
       what is asked for, `context` or ENOUGH_WINDOW.
    2. A small one where it is set, or where it holds CLEARLY_MORE. Of as many sequences as leave what is asked for.
    """
    full, favour = chosen.plan, {"full": STAYS, "small": 1 / STAYS}.get(before, 1.0)
    if chosen.windows == "full" or not has_small_windows(shape):
        return chosen
    asked = min(shape.trained, chosen.context or ENOUGH_WINDOW)
    if chosen.windows == "auto" and window_of(full) >= min(shape.trained, favour * asked):
        return chosen
    plans = small_plans(full)
    small = next((plan for plan in plans if window_of(plan) >= asked), plans[-1])
    if chosen.windows == "small" or window_of(small) > CLEARLY_MORE / favour * window_of(full):
        return replace(chosen, plan=small)
    return chosen


def small_plans(full: KvPlan) -> list[KvPlan]:
    """The same with small caches, the one of most sequences first."""
    return [replace(full, small_windows=min(full.sequences, most)) for most in SMALL_SEQUENCES]


def has_small_windows(shape: ModelShape) -> bool:
    """Whether llama.cpp has two caches for the model, one of them for layers that slide."""
    slides = [layer.slides for layer in shape.layers]
    return windows_have_own_cells(shape.architecture) and any(slides) and not all(slides) and not shape.unpredictable


def _kv(shape: ModelShape, chosen: Offload) -> Iterator[Impossible]:
    keys, values = chosen.plan.keys, chosen.plan.values
    if values not in FLOATS and not chosen.plan.flash_attention:
        yield Impossible(
            "model.kv_type_v",
            f"quantised values ({values}) need flash attention",
            "set model.flash_attention = true, or model.kv_type_v = f16",
        )
    if values not in FLOATS and shape.architecture in NO_FLASH:
        yield Impossible(
            "model.kv_type_v",
            f"quantised values ({values}) need flash attention, and {shape.architecture} has none",
            "set model.kv_type_v = f16",
        )
    if why := misfit(shape, chosen.plan):
        setting = "model.kv_type_v" if keys in FLOATS else "model.kv_type_k"
        yield Impossible(setting, why, f"use one of: {', '.join(kv_types(shape))}")


def _context(shape: ModelShape, chosen: Offload) -> Iterator[Impossible]:
    if chosen.context is not None and chosen.context > shape.trained:
        yield Impossible(
            "model.context",
            f"{chosen.context:,} tokens are more than {shape.name} was trained for ({shape.trained:,}), "
            "and its file states no rope scaling that reaches further",
            f"set model.context = {shape.trained} or auto",
        )


def _split(chosen: Offload, gpus: int | None) -> Iterator[Impossible]:
    if chosen.split == "tensor" and not chosen.plan.flash_attention:
        yield Impossible(
            "model.split_mode",
            "tensor needs flash attention",
            "set model.flash_attention = true, or split_mode = layer",
        )
    if not gpus:
        return
    there = "one GPU" if gpus == 1 else f"{gpus} GPUs"
    if len(chosen.shares) > gpus:
        yield Impossible(
            "model.tensor_split", f"it names {len(chosen.shares)} shares, and there is {there}", f"name at most {gpus}"
        )
    if chosen.main >= gpus:
        yield Impossible(
            "model.main_gpu",
            f"there is no GPU {chosen.main}: there is {there}, counted from 0",
            "set model.main_gpu = 0",
        )


# ---- which GPU holds what --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GpuPart:
    """What one GPU takes: layers (the output counts as one), bytes of weights and of KV."""

    layers: int
    weights: int
    kv: int


def parts(shape: ModelShape, chosen: Offload, gpu_layers: int, free: Sequence[int], cells: int) -> tuple[GpuPart, ...]:
    """One for each GPU. `free`: bytes on each, by which is shared where no shares are set. Rows and tensors of a layer are
    shared by the same measure.

    FootprintError where the KV cannot be predicted.
    """
    layers = len(shape.layers) + 1
    first = layers - gpu_layers
    shares = shares_of(chosen, free)
    if chosen.split in ("row", "tensor"):
        whole = _part(shape, chosen.plan, range(first, layers), cells)
        return tuple(GpuPart(whole.layers, int(whole.weights * share), int(whole.kv * share)) for share in shares)
    counts = layers_by_gpu(layers, gpu_layers, shares)
    starts = accumulate(counts, initial=first)
    return tuple(
        _part(shape, chosen.plan, range(start, start + count), cells)
        for start, count in zip(starts, counts, strict=False)
    )


def fitting_layers(shape: ModelShape, chosen: Offload, rooms: Sequence[int], cells: int) -> int:
    """The most layers (the output counts as one) that fit with the KV of so many tokens. `rooms`: bytes to be had on each
    GPU. FootprintError where the KV cannot be predicted."""
    working = working_bytes(shape, chosen.plan, max(cells, shape.trained))
    for count in range(len(shape.layers) + 1, 0, -1):
        held = parts(shape, chosen, count, rooms, cells)
        if all(not one.layers or one.weights + one.kv + working <= room for one, room in zip(held, rooms, strict=True)):
            return count
    return 0


def shares_of(chosen: Offload, free: Sequence[int]) -> tuple[float, ...]:
    """What each GPU takes of the whole; they sum up to 1. GPUs without a share of their own take none."""
    if chosen.split == "none":
        given: list[float] = [float(at == chosen.main) for at in range(len(free))]
    else:
        given = [*chosen.shares, *[0.0] * len(free)][: len(free)] if chosen.shares else [float(one) for one in free]
    total = sum(given)
    return tuple(one / total for one in given) if total > 0 else tuple(1 / len(free) for _ in free)


def layers_by_gpu(layers: int, gpu_layers: int, shares: Sequence[float]) -> tuple[int, ...]:
    """How many of the last `gpu_layers` of `layers` each GPU gets: `get_layer_buft_list`, in its single precision."""
    ends = array("f", accumulate(array("f", shares)))
    counts = [0] * len(shares)
    for at in range(gpu_layers):
        place = array("f", [at / gpu_layers])[0]
        counts[min(bisect_right(ends, place), len(shares) - 1)] += 1
    assert sum(counts) == gpu_layers <= layers
    return tuple(counts)


def _part(shape: ModelShape, plan: KvPlan, held: range, cells: int) -> GpuPart:
    own = [shape.layers[at] for at in held if at < len(shape.layers)]
    weights = sum(layer.weights for layer in own)
    if len(shape.layers) in held:
        weights += weights_on_gpu(shape, 1)
    return GpuPart(len(held), weights, kv_cost(shape, plan, cells, own))
