"""The body of POST /v1/embeddings."""

from typing import Annotated, Literal

from pydantic import Field

from orchestrator.wire.chat import Request

Text = Annotated[str, Field(min_length=1)]


class EmbeddingsBody(Request):
    """OpenAI's, with texts; ids of tokens are another model's and not taken. `model` and `user` are not looked at."""

    input: Text | Annotated[tuple[Text, ...], Field(min_length=1, max_length=2048)]
    model: str = ""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str = ""
