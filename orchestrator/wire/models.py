"""Replies about models: those at hand, what one costs here, what its types of KV lose, how long a text it follows, and the
change to another."""

from typing import Literal

from pydantic import Field

from orchestrator.wire.answers import KvLoss, Lore
from orchestrator.wire.base import ReplyShape, SparseReply


class ModelCard(ReplyShape):
    """OpenAI's."""

    id: str = Field(description="lore/NAME: a codex; else the bare model")
    object: Literal["model"] = Field(description="OpenAI's word")
    created: int = Field(description="0")
    owned_by: str = Field(description="lorekeep")
    context_length: int | None = Field(
        None, description="tokens of a client's messages and the answer together; null before that is known"
    )
    max_model_len: int | None = Field(None, description="the same, by vLLM's word")


class ModelCards(ReplyShape):
    """OpenAI's list."""

    object: Literal["list"] = Field(description="OpenAI's word")
    data: tuple[ModelCard, ...] = Field(description="codices, then the bare model")


class ModelRow(SparseReply):
    """A model at hand."""

    id: str = Field(description="its name")
    path: str = Field(description="its file")
    loaded: bool = Field(description="it answers now")
    bytes: int = Field(description="of weights")
    fits: bool | None = Field(description="this machine; none: not known")
    context: int | None = Field(description="tokens that would fit")
    words: str = Field(description="the same in words")


class AdvisedModel(ReplyShape):
    """A published model that fits this machine, by the project's own table."""

    name: str = Field(description="as lore up --model takes it")
    title: str = Field(description="its makers' name")
    source: str = Field(description="as lore model get takes it")
    page: str = Field(description="where a person reads of it")
    file: str = Field(description="its file's name")
    bytes: int = Field(description="of the file")
    sha256: str = Field(description="of the file when the table was checked; empty: unknown")
    licence: str = Field(description="of its weights")
    window: int = Field(description="tokens of prompt and answer that would fit now")
    words: str = Field(description="the same in words")


class ModelAdvice(ReplyShape):
    """What is recommended for this machine."""

    machine: str = Field(description="the memory that counts, in words")
    models: tuple[AdvisedModel, ...] = Field(description="the best first; none where none fits")


class BroughtUp(ReplyShape):
    """What `lore up` made, at its end."""

    event: Literal["up"] = Field(description="what kind of event")
    model: str = Field(description="that is in use")
    codex: str = Field(description="that was loaded")
    answer: str | None = Field(description="to the first question; null: none was asked")
    lore: Lore | None = Field(None, description="how the answer was made; null: none was asked")


class ModelRows(ReplyShape):
    """Models at hand."""

    models: tuple[ModelRow, ...] = Field(description="the loaded one first")


class ModelWeights(ReplyShape):
    """What a model's weights take."""

    total: int = Field(description="bytes")
    by_type: dict[str, int] = Field(description="bytes of each type of tensor")


class KvLossProgress(ReplyShape):
    """How far a measurement is."""

    event: Literal["measuring"] = Field(description="what kind of event")
    kind: str = Field(description="type of KV")
    done: int = Field(description="tokens")
    total: int = Field(description="in all")


class KvLossEvent(ReplyShape):
    """What was measured, the last event."""

    event: Literal["measured"] = Field(description="what kind of event")
    kind: str = Field(description="type of KV")
    loss: KvLoss = Field(description="what it changes")


class KvType(ReplyShape):
    """One type that KV can be kept in."""

    bytes_per_token: int = Field(description="that it costs")
    context: int | None = Field(description="tokens that would fit with it")


class KvCosts(ReplyShape):
    """What the KV cache takes."""

    bytes_per_token: int | None = Field(description="as configured; none where the types do not suit the model")
    types: dict[str, KvType] = Field(description="each type that suits the model, by its name")
    window: int | None = Field(description="tokens that sliding layers keep; none where there are none")
    losses: dict[str, KvLoss] = Field({}, description="what was measured, by type")


class KvRanges(ReplyShape):
    """Whether what precedes a change can be kept."""

    cut: bool = Field(description="it can be cut in ranges")
    why: str = Field(description="why not")


class GpuShare(ReplyShape):
    """What one GPU would hold."""

    name: str = Field(description="the product's")
    free: int = Field(description="bytes now")
    layers: int = Field(description="of the model")
    weights: int = Field(description="bytes")
    kv_bytes: int = Field(description="of the KV cache")


class PlannedMemory(ReplyShape):
    """What a model that talks would take."""

    where: str = Field(description="RAM or VRAM: where KV lies")
    kv_bytes: int = Field(description="that KV may take")
    cells: int = Field(description="tokens that fit there")
    bound: Literal["trained", "context", "measured", "kv", "ram", "server"] = Field(
        description="what ends the context that fits: the model's training, what was measured of it, KV's memory, or RAM "
        "for layers on the CPU"
    )
    reason: str = Field(description="the same in words, with the numbers")
    gpu_layers: int = Field(description="layers on a GPU")
    layers: int = Field(description="in all, the output's among them")
    buffers: int = Field(description="bytes to compute with")
    gpus: tuple[GpuShare, ...] = Field(description="none where nothing goes there")


class EmbeddingMemory(ReplyShape):
    """What a model that embeds would take by itself."""

    weights: int = Field(description="bytes")
    buffers: int = Field(description="bytes to compute with")


class EmbeddingShape(ReplyShape):
    """What a model that embeds takes and gives."""

    dimensions: int = Field(description="of a vector")
    window: int = Field(description="tokens of one text")


class TemplatePlacement(ReplyShape):
    """Where a model's chat template puts the six blocks."""

    way: Literal["system", "first_user", "none"] = Field(description="which of the ways that we know holds")
    words: str = Field(description="the same in words")
    reason: str = Field(description="why not one that comes before it")
    keeps_answers: bool = Field(description="an answer stays where it is once it is a turn")
    no_think: Literal["nothing", "tail", "floor"] = Field(
        description="what asking it not to think changes: floor would lose the whole prefix"
    )


class LoadingChoice(ReplyShape):
    """One setting of loading beside this model."""

    setting: str = Field(description="its key")
    value: str = Field(description="as it is set")
    suits: bool = Field(description="false: loading would fail, or the setting do nothing")
    costs: str = Field(description="in words")
    note: str = Field(description="what must be known of it")


class ModelReport(ModelRow):
    """One model in full. A model that is not made yet has only the first of these; one that embeds has no KV."""

    name: str = Field("", description="as its file has it")
    architecture: str = Field("", description="as its file has it")
    layers: int = Field(0, description="without the output")
    heads: int | None = Field(None, description="of attention, in the layer that has most")
    kv_heads: int | None = Field(None, description="of keys and values, in the layer that has most")
    quantisation: str = Field("", description="of the weights")
    trained_context: int = Field(0, description="tokens")
    vocabulary: int = Field(0, description="tokens")
    weights: ModelWeights | None = Field(None, description="what they take")
    kv: KvCosts | None = Field(None, description="what the KV cache takes")
    ranges: KvRanges | None = Field(None, description="whether its memory can be cut, and why not")
    memory: PlannedMemory | EmbeddingMemory | None = Field(
        None, description="what it would take, and where; none where it does not fit"
    )
    template: TemplatePlacement | None = Field(None, description="where its chat template puts the blocks")
    settings: tuple[LoadingChoice, ...] = Field((), description="each setting of loading, and whether it suits")
    embedding: EmbeddingShape | None = Field(None, description="only of one that embeds")


class ModelReply(ReplyShape):
    """One model."""

    model: ModelReport = Field(description="in full")


class ColdFloor(ReplyShape):
    """A floor that was resident with the previous model."""

    name: str = Field(description="the codex")
    tokens: int = Field(description="in it")


class ModelNames(ReplyShape):
    """A model by its names."""

    name: str = Field(description="as the settings name it")
    path: str = Field(description="its file")
    notice: str = Field(description="what must be known of it")


class ModelChange(ReplyShape):
    """What came of a change."""

    model: ModelNames = Field(description="that answers now")
    changed: bool = Field(description="false: it answered before")
    cold: tuple[ColdFloor, ...] = Field(description="floors to be computed, unless they were before with this model")


class ChangedEvent(ModelChange):
    """The model is loaded; the events that follow report the building of codices."""

    event: Literal["changed"] = Field(description="what kind of event")


# -- how long a text the loaded model follows


class LengthReport(ReplyShape):
    """What a model found in texts of one length: the share of right answers, null where not all were asked."""

    length: int = Field(description="tokens of the text")
    share: float | None = Field(description="of the kinds that count, or of all where none does")
    depths: tuple[float | None, ...] = Field(description="the same by depth")
    kinds: dict[str, float | None] = Field(description="by kind: single, several, chain")


class MeasureEstimate(ReplyShape):
    """What is left to do, at most: nothing is asked beyond the first length that is lost."""

    tokens: int = Field(description="of prompts, to be computed")
    answers: int = Field(description="to be asked for")
    seconds: float | None = Field(description="by what steps cost here; null before the engine has learned it")


class ContextReport(ReplyShape):
    """How long a text the loaded model follows."""

    model: str = Field(description="as the settings name it")
    kv: str = Field(description="its KV types, of keys and values")
    depths: tuple[float, ...] = Field(description="where needles stand, as shares of a length")
    lengths: tuple[LengthReport, ...] = Field(description="shortest first; none where the window is too short")
    counted: tuple[str, ...] = Field(description="kinds of questions that count: mastered in the shortest text")
    effective: int | None = Field(description="the longest length that is followed with all shorter ones, if known")
    limit: int | None = Field(description="where windows end because of it; null: it limits nothing")
    complete: bool = Field(description="whether nothing is left to measure")
    words: str = Field(description="the same in a sentence")
    left: MeasureEstimate = Field(description="what is left to measure")
    whole: MeasureEstimate = Field(description="what it would take to measure everything again")


class ContextReply(ReplyShape):
    """How long a text the loaded model follows, as far as it was measured."""

    context: ContextReport = Field(description="in full")


class MeasuredEvent(ContextReply):
    """The last event of a measurement."""

    event: Literal["measured"] = Field(description="what kind of event")
