"""What the report of one model is made of: its weights, its KV, where they would go, its template, its settings."""

from typing import Literal

from pydantic import Field

from orchestrator.wire.shapes import Shape


class ModelWeights(Shape):
    """What a model's weights take."""

    total: int = Field(description="bytes")
    by_type: dict[str, int] = Field(description="bytes of each type of tensor")


class KvType(Shape):
    """One type that KV can be kept in."""

    bytes_per_token: int = Field(description="that it costs")
    context: int | None = Field(description="tokens that would fit with it")


class KvCosts(Shape):
    """What the KV cache takes."""

    bytes_per_token: int | None = Field(description="as configured; none where the types do not suit the model")
    types: dict[str, KvType] = Field(description="each type that suits the model, by its name")
    window: int | None = Field(description="tokens that sliding layers keep; none where there are none")


class KvRanges(Shape):
    """Whether what precedes a change can be kept."""

    cut: bool = Field(description="it can be cut in ranges")
    why: str = Field(description="why not")


class GpuShare(Shape):
    """What one GPU would hold."""

    name: str = Field(description="the product's")
    free: int = Field(description="bytes now")
    layers: int = Field(description="of the model")
    weights: int = Field(description="bytes")
    kv_bytes: int = Field(description="of the KV cache")


class PlannedMemory(Shape):
    """What a model that talks would take."""

    where: str = Field(description="RAM or VRAM: where KV lies")
    kv_bytes: int = Field(description="that KV may take")
    cells: int = Field(description="tokens that fit there")
    gpu_layers: int = Field(description="layers on a GPU")
    layers: int = Field(description="in all, the output's among them")
    buffers: int = Field(description="bytes to compute with")
    gpus: tuple[GpuShare, ...] = Field(description="none where nothing goes there")


class EmbeddingMemory(Shape):
    """What a model that embeds would take by itself."""

    weights: int = Field(description="bytes")
    buffers: int = Field(description="bytes to compute with")


class EmbeddingShape(Shape):
    """What a model that embeds takes and gives."""

    dimensions: int = Field(description="of a vector")
    window: int = Field(description="tokens of one text")


class TemplatePlacement(Shape):
    """Where a model's chat template puts the six blocks."""

    way: Literal["system", "first_user", "none"] = Field(description="which of the ways that we know holds")
    words: str = Field(description="the same in words")
    reason: str = Field(description="why not one that comes before it")
    keeps_answers: bool = Field(description="an answer stays where it is once it is a turn")
    no_think: Literal["nothing", "tail", "floor"] = Field(
        description="what asking it not to think changes: floor would lose the whole prefix"
    )


class LoadingChoice(Shape):
    """One setting of loading beside this model."""

    setting: str = Field(description="its key")
    value: str = Field(description="as it is set")
    suits: bool = Field(description="false: loading would fail, or the setting do nothing")
    costs: str = Field(description="in words")
    note: str = Field(description="what must be known of it")
