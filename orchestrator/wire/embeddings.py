"""The body of POST /v1/embeddings."""

from typing import Annotated, Literal

from pydantic import Field

from orchestrator.wire.shapes import Request

Text = Annotated[str, Field(min_length=1)]


class EmbeddingsBody(Request):
    """OpenAI's, with texts; ids of tokens are another model's and not taken."""

    input: Text | Annotated[tuple[Text, ...], Field(min_length=1, max_length=2048)] = Field(
        description="a text, or up to 2048"
    )
    model: str = Field("", description="not looked at: the settings name the one that embeds")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="numbers, or little-endian float32 in base64"
    )
    dimensions: int | None = Field(None, description="the model's own; another number is refused")
    user: str = Field("", description="not looked at")
