"""Plain text to and from a model, without chat, codex and memory: what clients of llama-server and vLLM ask of a server."""

from typing import Annotated, Literal

from pydantic import Field

from orchestrator.wire.answers import Usage
from orchestrator.wire.base import ReplyShape, RequestShape, SparseReply

MOST_CHARACTERS = 2_000_000  # of a text to be counted: the reply has up to as many ids
MOST_IDS = 2_000_000


class TokenizeBody(RequestShape):
    """A text, by llama-server's or by vLLM's word for it."""

    content: Annotated[str, Field(max_length=MOST_CHARACTERS)] | None = Field(
        None, description="the text, at most 2,000,000 characters; no control token comes of it, whatever it holds"
    )
    prompt: Annotated[str, Field(max_length=MOST_CHARACTERS)] | None = Field(None, description="the same")


class Tokenized(ReplyShape):
    """A text in tokens."""

    tokens: tuple[int, ...] = Field(description="their ids")
    count: int = Field(description="how many")
    max_model_len: int | None = Field(description="tokens of prompt and answer together; null before that is known")


class DetokenizeBody(RequestShape):
    """Tokens of the loaded model."""

    tokens: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**32)], ...], Field(max_length=MOST_IDS)] = Field(
        description="ids, at most 2,000,000"
    )


class Detokenized(ReplyShape):
    """The text that tokens stand for; control tokens stand for none."""

    content: str = Field(description="llama-server's word")
    prompt: str = Field(description="vLLM's word for the same")


class GenerationDefaults(ReplyShape):
    """Part of what llama-server tells of its slots."""

    n_ctx: int = Field(description="tokens of prompt and answer together")


class Modalities(ReplyShape):
    """What a model reads beside text."""

    vision: Literal[False] = Field(False, description="no pictures")
    audio: Literal[False] = Field(False, description="no sound")


class PropsReply(ReplyShape):
    """What llama-server tells of itself."""

    default_generation_settings: GenerationDefaults = Field(description="of a question")
    total_slots: int = Field(description="answers that may run at once in one codex")
    model_path: str = Field(description="the model, as the settings name it")
    model_alias: str = Field(description="the model's own name")
    chat_template: str = Field(description="the model's own; empty: it carries none")
    bos_token: str = Field(description="that begins a text")
    eos_token: str = Field(description="that ends one")
    modalities: Modalities = Field(Modalities(), description="text alone")
    build_info: str = Field(description="lorekeep and its version")


class TextChoice(ReplyShape):
    """The one text, or in a stream a piece of it."""

    index: int = Field(description="0")
    text: str = Field(description="what is added")
    logprobs: None = Field(None, description="none")
    finish_reason: str | None = Field(description="stop or length; null in a stream before its end")


class TextNotes(ReplyShape):
    """What a text that was continued says of itself."""

    notices: tuple[str, ...] = Field((), description="what of the request had no effect")


class TextReply(SparseReply):
    """A text that was continued; in a stream one event, and `[DONE]` ends it."""

    ends = "[DONE]"
    id: str = Field(description="of this text")
    object: Literal["text_completion"] = Field(description="OpenAI's word")
    created: int = Field(description="seconds since 1970")
    model: str = Field(description="as it was asked for")
    choices: tuple[TextChoice, ...] = Field(description="one; none in the chunk of include_usage")
    usage: Usage | None = Field(None, description="in tokens; of a stream in the last event")
    lore: TextNotes | None = Field(None, description="beside the usage")
