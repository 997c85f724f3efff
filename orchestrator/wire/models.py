"""Replies about models, and what a change of the model tells."""

from typing import Literal

from pydantic import Field

from orchestrator.wire.model_parts import (
    EmbeddingMemory,
    EmbeddingShape,
    KvCosts,
    KvRanges,
    LoadingChoice,
    ModelWeights,
    PlannedMemory,
    TemplatePlacement,
)
from orchestrator.wire.shapes import Shape


class ModelCard(Shape):
    """OpenAI's."""

    id: str = Field(description="lore/NAME: a codex; else the bare model")
    object: Literal["model"] = Field(description="OpenAI's word")
    created: int = Field(description="0")
    owned_by: str = Field(description="lorekeep")


class ModelCards(Shape):
    """OpenAI's list."""

    object: Literal["list"] = Field(description="OpenAI's word")
    data: tuple[ModelCard, ...] = Field(description="codices, then the bare model")


class ModelRow(Shape):
    """A model at hand."""

    id: str = Field(description="its name")
    path: str = Field(description="its file")
    loaded: bool = Field(description="it answers now")
    bytes: int = Field(description="of weights")
    fits: bool | None = Field(description="this machine; none: not known")
    context: int | None = Field(description="tokens that would fit")
    words: str = Field(description="the same in words")


class ModelRows(Shape):
    """Models at hand."""

    models: tuple[ModelRow, ...] = Field(description="the loaded one first")


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


class ModelReply(Shape):
    """One model."""

    model: ModelReport = Field(description="in full")


class ColdFloor(Shape):
    """A floor that stood with the model before."""

    name: str = Field(description="the codex")
    tokens: int = Field(description="in it")


class ModelNames(Shape):
    """A model by its names."""

    name: str = Field(description="as the settings name it")
    path: str = Field(description="its file")
    notice: str = Field(description="what must be known of it")


class ModelChange(Shape):
    """What came of a change."""

    model: ModelNames = Field(description="that answers now")
    changed: bool = Field(description="false: it answered before")
    cold: tuple[ColdFloor, ...] = Field(description="floors to be computed, unless they were before with this model")


class ChangedEvent(ModelChange):
    """The model is loaded; what follows tells of raising codices."""

    event: Literal["changed"] = Field(description="what kind of event")
