"""Small replies of the routes: done, dropped, renamed, ready; search; vectors."""

from typing import Literal

from pydantic import Field

from orchestrator.wire.shapes import Shape


class Fault(Shape):
    """What went wrong, where, and what to do."""

    type: str = Field(description="OpenAI's kind of it")
    code: str = Field(description="one of the codes below")
    message: str = Field(description="what is wrong, and where")
    hint: str = Field(description="what to do; may be empty")


class Refusal(Shape):
    """The body of every error, and the last event of a stream that failed."""

    error: Fault = Field(description="what went wrong")


class Cancelled(Shape):
    """What was stopped."""

    cancelled: str = Field(description="the codex")
    what: Literal["load", "floor"] = Field(
        description="its load, or the computing of the floor that a load left behind"
    )


class Dropped(Shape):
    """What was forgotten."""

    dropped: str = Field(description="its name")


class Renamed(Shape):
    """A conversation under its new name."""

    renamed: str = Field(description="the name before")
    name: str = Field(description="the name now")


class Alive(Shape):
    """The daemon runs."""

    ok: bool = Field(description="true")


class Ready(Shape):
    """Whether an answer can be given."""

    ready: bool = Field(description="true with status 200, false with 503")
    detail: str = Field(description="what it waits for, or what failed")


class SearchHit(Shape):
    """A passage of the archive."""

    path: str = Field(description="the file")
    start: int = Field(description="first line, from 1")
    end: int = Field(description="last line")
    symbol: str = Field(description="the definition that holds it; may be empty")
    score: float = Field(description="by which hits are ordered")
    scores: dict[str, float] = Field(description="the parts of the score, by kind")
    snippet: str = Field(description="its most telling lines")
    line: int = Field(description="on which the snippet begins")
    exact: bool = Field(False, description="it holds what was quoted as it is; others were found by its words")
    near: str = Field("", description="of what `graph` adds: from which hit it was reached, and by what")
    branch: str | None = Field(None, description="git's, that the codex stands on, or the revision that was asked for")


class SearchReply(Shape):
    """Places that match."""

    hits: tuple[SearchHit, ...] = Field(description="best first")
    notices: tuple[str, ...] = Field(description="what the search may not have seen")


class EmbeddingRow(Shape):
    """One text's vector."""

    object: Literal["embedding"] = Field(description="OpenAI's word")
    index: int = Field(description="of the text, from 0")
    embedding: list[float] | str = Field(description="length 1; base64 where asked for")


class EmbeddingUsage(Shape):
    """Tokens of all texts."""

    prompt_tokens: int = Field(description="read")
    total_tokens: int = Field(description="the same")


class EmbeddingCut(Shape):
    """What did not fit."""

    cut: tuple[int, ...] = Field(description="tokens of each text that were not read")


class EmbeddingsReply(Shape):
    """OpenAI's list of vectors."""

    object: Literal["list"] = Field(description="OpenAI's word")
    data: tuple[EmbeddingRow, ...] = Field(description="one a text, in order")
    model: str = Field(description="the model that embeds")
    usage: EmbeddingUsage = Field(description="in tokens")
    lore: EmbeddingCut = Field(description="what the protocol has no words for")
