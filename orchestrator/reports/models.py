"""`lore model list` and `show`: what a model is and costs, whether it would fit here, and whether the settings suit it.

All of it is read from a file's header and the sensors; nothing is loaded and nothing is made. What our own model holds now
counts as free: another one would take its place.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_args

from formatters.template import Placement, Way
from governor.architectures import windows_have_ranges
from governor.budget import MemoryBudget, weights_on_gpu
from governor.embedding import embedding_cost
from governor.footprint import KvPlan, bytes_per_token, kv_cost, kv_types, rows_together, window_bytes, working_bytes
from governor.gguf import Gguf
from governor.model_shape import FootprintError, ModelShape, no_chat, no_embedding, quantisation_of, vector_length
from governor.offload import FLOATS, Offload, has_small_windows, idle, impossible, parts, shares_of, small_plans
from governor.settings import short_count, size
from orchestrator.codices.state_store import kept_sizes
from orchestrator.engine.embedding.port import BATCH_TEXTS, batch_tokens
from orchestrator.errors import NotFound, instead
from orchestrator.model.conditions import Gpu, LoadingConditions, conditions_here
from orchestrator.model.kv_losses import KvLosses
from orchestrator.model.model_file import (
    DEFAULT,
    AtHand,
    FileHeader,
    at_hand,
    builtins,
    chosen,
    header_of,
    lying_at,
    placement_of,
)
from orchestrator.settings.model import KvType as KvTypeName
from orchestrator.settings.model import Settings
from orchestrator.settings.paths import Paths
from orchestrator.wire.answers import KvLoss
from orchestrator.wire.models import (
    EmbeddingMemory,
    EmbeddingShape,
    GpuShare,
    KvCosts,
    KvRanges,
    KvType,
    LoadingChoice,
    ModelReport,
    ModelRow,
    ModelWeights,
    PlannedMemory,
    TemplatePlacement,
)
from orchestrator.wire.places import path_of

LEAST_CONTEXT = 512  # tokens: the shortest window that may be set
NOT_MADE = "unknown: it is made on first need, with lore serve --model {}"
EMBEDS = "for embedding.model alone: it gives vectors of texts and writes none"
QUANTISED_ON_CPU = "on a CPU quantised KV has no tiles: prompts are computed 5 (q8_0) to 10 (q4_0) times slower"
SMALL_COSTS = "prompts share what they have in common up to the end of the codex or of a turn, and nothing is drafted"
SLOW_ON_CPU = "on a CPU a question or an answer takes up to three times longer with it"
WORDS = {
    Way.SYSTEM: "one system message holds Identity to Karma",
    Way.FIRST_USER: "Identity to Karma stand at the head of the first user message",
    Way.NONE: "the template is not used; plain role lines stand in for it",
}


@dataclass(frozen=True)
class Fitting:
    """`fits` is None where it cannot be known; `context` is one sequence's limit in tokens."""

    fits: bool | None
    context: int | None
    words: str
    budget: MemoryBudget | None = None


# -- without a daemon


def models_here(settings: Settings, paths: Paths) -> list[ModelRow]:
    """`lore model list` without a daemon: one row a model, the configured one first. Reads every file's header."""
    here = conditions_here(settings, paths, partial(kept_sizes, paths.codices))
    return [row(one, header_of(one), here, loaded=False) for one in known_here(settings, paths.models)]


def model_here(name: str, settings: Settings, paths: Paths) -> ModelReport:
    """`lore model show` without a daemon. `name` '' is the configured model. Raises NotFound."""
    known = known_here(settings, paths.models)
    found = model_named(known, name, anywhere=True) if name else known[0]
    here = conditions_here(settings, paths, partial(kept_sizes, paths.codices))
    return described(found, header_of(found), here, KvLosses(paths.data), loaded=False)


def model_named(known: Sequence[AtHand], name: str, *, anywhere: bool) -> AtHand:
    """`anywhere`: also a file outside the models folder, by its full path. Raises NotFound."""
    found = chosen(known, name) or (lying_at(name) if anywhere else None)
    if found is None:
        raise NotFound(f"no model {name}", instead(name, [one.id for one in known], "", "`lore model list`"))
    return found


def known_here(settings: Settings, folder: Path) -> tuple[AtHand, ...]:
    """Each file once, the configured model first."""
    wanted = settings.model.path or DEFAULT
    own = next((one for one in builtins(folder) if one.id == wanted), AtHand(wanted, path_of(wanted)))
    return at_hand(folder, own)


# -- one model


def row(model: AtHand, header: FileHeader, here: LoadingConditions, *, loaded: bool) -> ModelRow:
    """One line of the list."""
    weights = header.shape.weights if header.shape else model.about
    known = answer(model, header, here, loaded=loaded)
    return ModelRow.of(known, id=model.id, path=str(model.path), loaded=loaded, bytes=weights)


def answer(model: AtHand, header: FileHeader, here: LoadingConditions, *, loaded: bool) -> Fitting:
    if model.embeds and model.about:
        return Fitting(None, None, f"{EMBEDS}; it is made on first need")
    if model.about:
        return Fitting(None, None, NOT_MADE.format(model.id))
    if header.shape is None or header.gguf is None:
        return Fitting(False, None, f"no: {header.fault}")
    if embeds(header.gguf):
        return Fitting(False, None, EMBEDS)
    if why := no_chat(header.gguf):
        return Fitting(False, None, f"no: {why}")
    here = here.for_model(model.path, header.shape, loaded=loaded)
    return fitting(header.shape, here.offload.plan, here)


def described(
    model: AtHand, header: FileHeader, here: LoadingConditions, losses: KvLosses | None = None, *, loaded: bool
) -> ModelReport:
    """Everything about one model. `losses`: what types of KV change, as measured."""
    common = dict(row(model, header, here, loaded=loaded))
    if model.embeds and model.about:
        from orchestrator.engine.builtin import words  # loads gguf and numpy, which the daemon starts without

        return ModelReport(**common, embedding=EmbeddingShape(dimensions=words.WIDTH, window=words.WINDOW))
    if header.shape is None or header.gguf is None:
        return ModelReport(**common)
    here = here.for_model(model.path, header.shape, loaded=loaded)
    gguf, shape = header.gguf, header.shape
    budget = answer(model, header, here, loaded=loaded).budget
    common |= {
        "name": shape.name,
        "architecture": shape.architecture,
        "layers": len(shape.layers),
        "quantisation": quantisation_of(gguf),
        "vocabulary": shape.vocabulary,
    }
    if embeds(gguf):  # it has no KV, no context to share out and no template; its memory is as it is loaded by itself
        cost = embedding_cost(shape, batch_tokens(shape.trained, 0), BATCH_TEXTS)
        return ModelReport(
            **common,
            embedding=EmbeddingShape(dimensions=vector_length(gguf), window=shape.trained),
            memory=EmbeddingMemory(weights=cost.weights, buffers=cost.buffers),
        )
    return ModelReport(
        **common,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        trained_context=shape.trained,
        weights=ModelWeights(total=shape.weights, by_type=dict(shape.by_type)),
        kv=kv_report(shape, here, losses.of(model.path, shape) if losses else {}),
        ranges=ranges(shape, here.offload.plan),
        memory=memory_report(shape, here, budget) if budget is not None else None,
        template=placement_report(placement_of(gguf)),
        settings=choices(shape, here, budget),
    )


def memory_report(shape: ModelShape, here: LoadingConditions, budget: MemoryBudget) -> PlannedMemory:
    """With the layers and the window of this budget; no GPU's share where nothing goes there."""
    held = (
        parts(shape, here.offload, budget.gpu_layers, [gpu.free for gpu in here.gpus], budget.window)
        if here.gpus and budget.gpu_layers
        else ()
    )
    return PlannedMemory.of(
        budget,
        kv_bytes=budget.kv,
        buffers=working_bytes(shape, here.offload.plan, budget.window),
        gpus=tuple(
            GpuShare(name=gpu.name, free=gpu.free, layers=part.layers, weights=part.weights, kv_bytes=part.kv)
            for gpu, part in zip(here.gpus, held, strict=False)
        ),
    )


def embeds(gguf: Gguf) -> bool:
    """Whether a model gives vectors and cannot talk."""
    return bool(no_chat(gguf)) and not no_embedding(gguf)


def kv_report(shape: ModelShape, here: LoadingConditions, losses: Mapping[str, KvLoss]) -> KvCosts:
    """Bytes of one token as configured; what each type that can be set and suits the model's heads costs, the largest
    first, and how much would fit with it."""
    plan = here.offload.plan
    try:
        now: int | None = bytes_per_token(shape, plan)
        plans = {
            name: replace(plan, keys=name, values=name) for name in kv_types(shape) if name in get_args(KvTypeName)
        }
        types = {
            name: KvType(bytes_per_token=bytes_per_token(shape, one), context=fitting(shape, one, here).context)
            for name, one in plans.items()
        }
    except FootprintError:
        now, types = None, {}
    return KvCosts(bytes_per_token=now, types=types, window=shape.window or None, losses=dict(losses))


def ranges(shape: ModelShape, plan: KvPlan) -> KvRanges:
    """Whether KV can be cut in ranges, which checkpoints of tails, and keeping what precedes a change, need."""
    if any(layer.state for layer in shape.layers):
        return KvRanges(cut=False, why="recurrent layers keep one state a sequence: it cannot be cut")
    if shape.window and plan.small_windows:
        return KvRanges(cut=False, why=f"sliding layers keep {shape.window:,} tokens of each sequence (small cache)")
    if shape.window and not windows_have_ranges(shape.architecture, flash_attention=plan.flash_attention):
        why = f"sliding layers keep {shape.window:,} tokens: what lies further back is gone"
        return KvRanges(cut=False, why=why)
    return KvRanges(cut=True, why="")


def placement_report(placement: Placement) -> TemplatePlacement:
    return TemplatePlacement.of(placement, words=WORDS[placement.way])


# -- whether it fits


def fitting(shape: ModelShape, plan: KvPlan, here: LoadingConditions) -> Fitting:
    """`plan` instead of the one that is configured."""
    try:
        budget = here.budget(shape, plan)
    except FootprintError as error:
        return Fitting(None, None, f"unknown: {error}")
    if budget is None:
        return Fitting(None, None, "unknown: how much memory there is cannot be read")
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


# -- whether the settings of loading suit it


def choices(shape: ModelShape, here: LoadingConditions, budget: MemoryBudget | None) -> tuple[LoadingChoice, ...]:
    offload, on_gpu = here.offload, bool(here.gpus)
    made = (
        gpu_layers(shape, offload, budget, on_gpu),
        *split(offload, here.gpus),
        kv_type("k", shape, offload, on_gpu),
        kv_type("v", shape, offload, on_gpu),
        flash_attention(shape, offload, on_gpu),
        *window_cache(shape, here),
        context(shape, offload, budget),
        batch(shape, offload),
        sequences(shape, offload),
    )
    wrong = {one.setting: f"{one.why}: {one.instead}" for one in impossible(shape, offload, len(here.gpus))}
    useless = {one.partition(" ")[0]: one for one in idle(offload, len(here.gpus))}
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
    value = f"{name} (auto)" if chosen.kv_auto else name
    return choice(setting, value, per_token, QUANTISED_ON_CPU if slow else chosen.kv_reason)


def flash_attention(shape: ModelShape, chosen: Offload, on_gpu: bool) -> LoadingChoice:
    cells = min(shape.trained, 8192)
    buffers = f"about {size(working_bytes(shape, chosen.plan, cells))} of buffers a pool at 8k"
    if chosen.plan.flash_attention:
        slow = "" if on_gpu or shape.window else SLOW_ON_CPU
        return choice("model.flash_attention", "on", buffers, slow)
    rows = rows_together(chosen.plan.ubatch, shape.heads, cells)
    return choice("model.flash_attention", "off", f"{buffers}, {rows} rows of a prompt at a time")


def window_cache(shape: ModelShape, here: LoadingConditions) -> Iterator[LoadingChoice]:
    """Which cache sliding layers have, with the tokens of the other; nothing where there is one kind alone."""
    if not has_small_windows(shape):
        return
    plan = here.offload.plan
    other = replace(plan, small_windows=0) if plan.small_windows else small_plans(plan)[-1]
    fits, others = here.window(shape, plan), here.window(shape, other)
    if plan.small_windows:
        costs = f"{short_count(fits)} tokens fit, {short_count(others)} with full"
        note = f"{SMALL_COSTS}; {plan.small_windows} sequences a pool, whose windows take {size(window_bytes(shape, plan))}"
        yield choice("model.window_cache", "small", costs, note)
    else:
        yield choice("model.window_cache", "full", f"{short_count(fits)} tokens fit, {short_count(others)} with small")


def context(shape: ModelShape, chosen: Offload, budget: MemoryBudget | None) -> LoadingChoice:
    fits = budget.window if budget is not None else 0
    if chosen.context is None:
        why = f": {budget.reason}" if budget is not None else ""
        return choice("model.context", "auto", f"{short_count(fits)} tokens{why}")
    note = f"only {fits:,} tokens fit now" if fits < chosen.context else ""
    return choice("model.context", f"{chosen.context:,}", kv_of(shape, chosen, chosen.context), note, suits=not note)


def batch(shape: ModelShape, chosen: Offload) -> LoadingChoice:
    logits = chosen.plan.ubatch * 4 * shape.vocabulary
    return choice("model.batch", str(chosen.plan.ubatch), f"{size(logits)} of buffers for logits")


def sequences(shape: ModelShape, chosen: Offload) -> LoadingChoice:
    count = chosen.plan.pool_sequences
    state = sum(layer.state for layer in shape.layers) * 4 * count
    more = f", {size(state)} of recurrent state" if state else ""
    costs = f"{size(count * shape.vocabulary * 4)} of output buffer a pool{more}"
    return choice("model.sequences", str(count), costs)


def kv_of(shape: ModelShape, chosen: Offload, tokens: int) -> str:
    try:
        return f"{size(kv_cost(shape, chosen.plan, tokens))} of KV"
    except FootprintError as error:
        return str(error)
