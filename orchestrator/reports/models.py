"""`lore model list` and `show`: what a model is and costs, and whether it would fit here. Pure but for what it is given."""

from collections.abc import Sequence

from formatters.conversation import Way
from formatters.probe import Placement
from governor.budget import MemoryBudget
from governor.embedding import embedding_cost
from governor.footprint import bytes_per_token, working_bytes
from governor.gguf import Gguf
from governor.offload import Offload
from governor.shape import FootprintError, ModelShape, no_chat, no_embedding, quantisation_of, vector_length
from orchestrator.engine.embedding.port import BATCH_TEXTS, batch_tokens
from orchestrator.model.folder import AtHand, FileHeader
from orchestrator.model.model_file import placement_of
from orchestrator.reports.fits import Fitting, Gpu, MachineMemory, choices, fitting, per_type, placed
from orchestrator.wire.replies import (
    EmbeddingMemory,
    EmbeddingShape,
    KvCosts,
    KvRanges,
    KvType,
    ModelReport,
    ModelRow,
    ModelWeights,
    PlannedMemory,
    TemplatePlacement,
)

NOT_MADE = "unknown: it is made on first need, with lore serve --model {}"
EMBEDS = "for embedding.model alone: it gives vectors of texts and writes none"


WORDS = {
    Way.SYSTEM: "one system message holds Identity to Karma",
    Way.FIRST_USER: "Identity to Karma stand at the head of the first user message",
    Way.NONE: "the template is not used; plain role lines stand in for it",
}


def row(model: AtHand, header: FileHeader, chosen: Offload, ground: MachineMemory, *, loaded: bool) -> ModelRow:
    """One line of the list."""
    known = answer(model, header, chosen, ground)
    return ModelRow(
        id=model.id,
        path=str(model.path),
        loaded=loaded,
        bytes=header.shape.weights if header.shape else model.about,
        fits=known.fits,
        context=known.context,
        words=known.words,
    )


def answer(model: AtHand, header: FileHeader, chosen: Offload, ground: MachineMemory) -> Fitting:
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
    return fitting(header.shape, chosen.plan, ground, chosen.gpu_layers)


def described(
    model: AtHand, header: FileHeader, chosen: Offload, ground: MachineMemory, *, gpus: Sequence[Gpu], loaded: bool
) -> ModelReport:
    """Everything about one model."""
    common = dict(row(model, header, chosen, ground, loaded=loaded))
    if model.embeds and model.about:
        from orchestrator.engine.builtin import words  # loads gguf and numpy, which the daemon starts without

        return ModelReport(**common, embedding=EmbeddingShape(dimensions=words.WIDTH, window=words.WINDOW))
    if header.shape is None or header.gguf is None:
        return ModelReport(**common)
    gguf, shape, budget = header.gguf, header.shape, answer(model, header, chosen, ground).budget
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
        kv=kv_report(shape, chosen, ground),
        ranges=ranges(shape),
        memory=memory_report(shape, chosen, budget, gpus) if budget is not None else None,
        template=placement_report(placement_of(gguf)),
        settings=tuple(choices(shape, chosen, budget, gpus)),
    )


def memory_report(shape: ModelShape, chosen: Offload, budget: MemoryBudget, gpus: Sequence[Gpu]) -> PlannedMemory:
    return PlannedMemory(
        where=budget.where,
        kv_bytes=budget.kv,
        cells=budget.cells,
        gpu_layers=budget.gpu_layers,
        layers=budget.layers,
        buffers=working_bytes(shape, chosen.plan, budget.window),
        gpus=placed(shape, chosen, budget, gpus),
    )


def embeds(gguf: Gguf) -> bool:
    """Whether a model gives vectors and cannot talk."""
    return bool(no_chat(gguf)) and not no_embedding(gguf)


def kv_report(shape: ModelShape, chosen: Offload, ground: MachineMemory) -> KvCosts:
    """Bytes of one token as configured, and for each type what it costs and how much would fit with it."""
    try:
        now: int | None = bytes_per_token(shape, chosen.plan)
        types = {
            name: KvType(bytes_per_token=cost, context=fitting(shape, plan, ground, chosen.gpu_layers).context)
            for name, cost, plan in per_type(shape, chosen.plan)
        }
    except FootprintError:
        now, types = None, {}
    return KvCosts(bytes_per_token=now, types=types, window=shape.window or None)


def ranges(shape: ModelShape) -> KvRanges:
    """Whether KV can be cut in ranges, which checkpoints of tails, and keeping what precedes a change, need."""
    if any(layer.state for layer in shape.layers):
        return KvRanges(cut=False, why="recurrent layers keep one state a sequence: it cannot be cut")
    if shape.window:
        why = f"sliding layers keep {shape.window:,} tokens: what lies further back is gone"
        return KvRanges(cut=False, why=why)
    return KvRanges(cut=True, why="")


def placement_report(placement: Placement) -> TemplatePlacement:
    return TemplatePlacement(
        way=placement.way.value,
        words=WORDS[placement.way],
        reason=placement.reason,
        keeps_answers=placement.keeps_answers,
        no_think=placement.no_think.value,
    )
