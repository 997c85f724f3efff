"""The reply of the plan: what asking would do, without the model being asked."""

from pydantic import Field

from orchestrator.wire.lore import (
    BlockState,
    Break,
    CodexInAnswer,
    Drafts,
    GovernorState,
    IdentityState,
    PromptState,
    StrategyState,
)
from orchestrator.wire.shapes import Shape


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
    notices: tuple[str, ...] = Field(description="what has no effect yet, and what the answer may not have seen")
    identity: IdentityState | None = Field(None, description="the persona; none from an older daemon")
    codex: CodexInAnswer | None = Field(description="none: the bare model")
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
