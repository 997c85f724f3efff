"""Replies of the chat route in OpenAI's shape; and the plan."""

from typing import Any, Literal

from pydantic import Field

from orchestrator.wire.lore import (
    BlockState,
    Break,
    CodexState,
    Drafts,
    GovernorState,
    PromptState,
    Shape,
    StrategyState,
)
from orchestrator.wire.lore import Lore as LoreObject


class PromptDetails(Shape):
    """OpenAI's place for it."""

    cached_tokens: int = Field(description="of the prompt: needed no computing")


class Usage(Shape):
    """Tokens of one answer."""

    prompt_tokens: int = Field(description="of the prompt")
    completion_tokens: int = Field(description="of the answer")
    total_tokens: int = Field(description="both")
    prompt_tokens_details: PromptDetails = Field(description="how many were cached")


class AnswerMessage(Shape):
    """The answer."""

    role: Literal["assistant"] = Field(description="OpenAI's word")
    content: str | None = Field(description="the text; none where only tools are called")
    reasoning_content: str = Field("", description="what a thinking model thought; left out where it did not")
    tool_calls: tuple[dict[str, Any], ...] = Field((), description="calls of the client's tools; left out where none")


class Choice(Shape):
    """The one answer."""

    index: int = Field(description="0")
    message: AnswerMessage = Field(description="the answer")
    logprobs: dict[str, Any] | None = Field(None, description="log-probabilities of its tokens, where asked for")
    finish_reason: str = Field(description="stop, length or tool_calls")


class CompletionReply(Shape):
    """A whole answer."""

    id: str = Field(description="of this answer")
    object: Literal["chat.completion"] = Field(description="OpenAI's word")
    created: int = Field(description="seconds since 1970")
    model: str = Field(description="as it was asked for")
    choices: tuple[Choice, ...] = Field(description="one")
    usage: Usage = Field(description="in tokens")
    lore: LoreObject = Field(description="what the answer says of itself")


class ChunkChoice(Shape):
    """A piece of the answer."""

    index: int = Field(description="0")
    delta: dict[str, Any] = Field(description="role, content, reasoning_content or tool_calls: what is added")
    logprobs: dict[str, Any] | None = Field(None, description="of the piece's tokens, where asked for")
    finish_reason: str | None = Field(description="stop, length or tool_calls in the last one")


class Chunk(Shape):
    """One event of a stream; `[DONE]` ends it. Comments between events tell what is waited for."""

    id: str = Field(description="of this answer")
    object: Literal["chat.completion.chunk"] = Field(description="OpenAI's word")
    created: int = Field(description="seconds since 1970")
    model: str = Field(description="as it was asked for")
    choices: tuple[ChunkChoice, ...] = Field(description="one; none in the chunk of include_usage")
    usage: Usage | None = Field(None, description="in the last one")
    lore: LoreObject | None = Field(None, description="in the last one")


class Intent(Shape):
    """What the question was taken for."""

    task: str = Field(description="its kind")
    because: str = Field(description="the words that say so")


class RetrievalPlan(Shape):
    """What would be fetched."""

    retrieval: str = Field(description="none, look-ups, search or graph")
    budget: int = Field(description="tokens that may be fetched")
    passages: tuple[str, ...] = Field(description="path:start-end of what was found already")


class Need(Shape):
    """Why the question would be refused."""

    tier: str = Field(description="that the strategy asked for needs")
    cost: str = Field(description="in words")


class Predicted(Shape):
    """What asking would cost."""

    ttft_ms: float | None = Field(description="until the first token; null where nothing was measured yet")
    kv_bytes: int = Field(description="of the prompt")
    context_pressure: float = Field(description="share of the window that the conversation takes")


class PlanMemory(Shape):
    """How the memory is planned."""

    where: str = Field(description="RAM or VRAM")
    kv_bytes: int = Field(description="for KV")
    weights: int = Field(description="bytes of the model's")
    embedding_bytes: int = Field(description="kept for the model that embeds")


class PlanTimings(Shape):
    """Milliseconds."""

    assemble_ms: float = Field(description="preparing the prompt")


class PlanReply(Shape):
    """Everything decided for a question."""

    session: str | None = Field(None, description="the conversation")
    model: str = Field(description="as the settings name it")
    notice: str = Field(description="what must be known of the model")
    notices: tuple[str, ...] = Field(description="what was asked for and has no effect yet")
    codex: CodexState | None = Field(description="none: the bare model")
    strategy: StrategyState = Field(description="how the codex would reach the model")
    blocks: tuple[BlockState, ...] = Field(description="six; `cached` is what stands now")
    broke_at: Break | None = Field(description="where the prompt leaves the last one")
    prompt: PromptState = Field(description="in tokens")
    governor: GovernorState = Field(description="what the machine allows")
    drafts: Drafts = Field(description="zeros")
    timings: PlanTimings = Field(description="of planning")
    relevance: None = Field(description="not computed yet")
    intent: Intent = Field(description="what the question was taken for")
    retrieval_plan: RetrievalPlan = Field(description="what would be fetched")
    needs: Need | None = Field(description="none where it would be answered")
    predicted: Predicted = Field(description="what asking would cost")
    memory: PlanMemory | None = Field(None, description="how it is planned")
    text: str = Field("", description="with `prompt`: the exact text that the engine would get")
