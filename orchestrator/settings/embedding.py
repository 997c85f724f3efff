"""Settings of the model that embeds."""

from pydantic import Field

from orchestrator.settings.slices import Slice, unit


class EmbeddingSettings(Slice):
    """The model that search by meaning goes by; without one search goes by words and names."""

    model: str = Field("", description="a GGUF file that embeds texts; empty: none; builtin:words for trying out")
    window: int = Field(
        0,
        ge=0,
        le=131_072,
        description="tokens of a text that are read; 0: what the model was trained for, at most 2048",
        json_schema_extra=unit("tokens"),
    )
    threads: int = Field(0, ge=0, le=1024, description="CPU threads; 0: half of the cores")
    gpu_layers: int = Field(
        -1,
        ge=-1,
        le=10_000,
        description="layers on the GPU; -1: all where the model that answers leaves room for them, else none",
    )
    query_prefix: str = Field("", description="stands before a question, where the model's makers ask for it")
    text_prefix: str = Field("", description="the same before what is searched; changing it embeds everything anew")
