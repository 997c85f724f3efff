"""Replies of the chat route, in OpenAI's shape."""

from typing import Literal

from pydantic import Field

from orchestrator.wire.lore import Lore
from orchestrator.wire.shapes import ReplyShape


class PromptDetails(ReplyShape):
    """OpenAI's place for it."""

    cached_tokens: int = Field(description="of the prompt: needed no computing")


class Usage(ReplyShape):
    """Tokens of one answer."""

    prompt_tokens: int = Field(description="of the prompt")
    completion_tokens: int = Field(description="of the answer")
    total_tokens: int = Field(description="both")
    prompt_tokens_details: PromptDetails = Field(description="how many were cached")


class AnswerFunction(ReplyShape):
    """A tool of the client with its arguments."""

    name: str = Field(description="the tool")
    arguments: str = Field(description="JSON, as the model wrote it")


class AnswerToolCall(ReplyShape):
    """A tool that the client is to call."""

    id: str = Field(description="to be named with the result")
    type: Literal["function"] = Field(description="OpenAI's word")
    function: AnswerFunction = Field(description="what to call")


class StreamedCall(AnswerToolCall):
    """The same in a stream; a call is told whole."""

    index: int = Field(description="which of the answer's calls, from 0")


class TokenChance(ReplyShape):
    """A token and how likely it was."""

    token: str = Field(description="its text; a token may end within a character")
    logprob: float = Field(description="natural logarithm of its probability")
    bytes: tuple[int, ...] = Field(description="its text exactly")


class ChosenToken(TokenChance):
    """A token of the answer."""

    top_logprobs: tuple[TokenChance, ...] = Field(description="the likeliest ones in its place")


class Logprobs(ReplyShape):
    """Log-probabilities of tokens."""

    content: tuple[ChosenToken, ...] = Field(description="of the text, in order")
    refusal: None = Field(description="OpenAI's; none")


class AnswerMessage(ReplyShape):
    """The answer."""

    role: Literal["assistant"] = Field(description="OpenAI's word")
    content: str | None = Field(description="the text; none where only tools are called")
    reasoning_content: str = Field("", description="what a thinking model thought; left out where it did not")
    tool_calls: tuple[AnswerToolCall, ...] = Field((), description="calls of the client's tools; left out where none")


class Choice(ReplyShape):
    """The one answer."""

    index: int = Field(description="0")
    message: AnswerMessage = Field(description="the answer")
    logprobs: Logprobs | None = Field(None, description="log-probabilities of its tokens, where asked for")
    finish_reason: str = Field(description="stop, length or tool_calls")


class CompletionReply(ReplyShape):
    """A whole answer."""

    id: str = Field(description="of this answer")
    object: Literal["chat.completion"] = Field(description="OpenAI's word")
    created: int = Field(description="seconds since 1970")
    model: str = Field(description="as it was asked for")
    choices: tuple[Choice, ...] = Field(description="one")
    usage: Usage = Field(description="in tokens")
    lore: Lore = Field(description="what the answer says of itself")


class Delta(ReplyShape):
    """What a piece adds: one of these; the first piece has the role, the last nothing."""

    role: Literal["assistant"] | None = Field(None, description="OpenAI's word")
    content: str = Field("", description="text")
    reasoning_content: str = Field("", description="what a thinking model thinks")
    tool_calls: tuple[StreamedCall, ...] = Field((), description="a tool to call")


class ChunkChoice(ReplyShape):
    """A piece of the answer."""

    index: int = Field(description="0")
    delta: Delta = Field(description="what is added")
    logprobs: Logprobs | None = Field(None, description="of the piece's tokens, where asked for")
    finish_reason: str | None = Field(description="stop, length or tool_calls in the last one")


class CompletionChunk(ReplyShape):
    """One event of a stream; `[DONE]` ends it. Comments between events tell what is waited for."""

    id: str = Field(description="of this answer")
    object: Literal["chat.completion.chunk"] = Field(description="OpenAI's word")
    created: int = Field(description="seconds since 1970")
    model: str = Field(description="as it was asked for")
    choices: tuple[ChunkChoice, ...] = Field(description="one; none in the chunk of include_usage")
    usage: Usage | None = Field(None, description="in the last one")
    lore: Lore | None = Field(None, description="in the last one")
