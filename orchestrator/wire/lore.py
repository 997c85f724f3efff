"""The `lore` object: what an answer says about itself."""

from typing import Literal

from pydantic import Field

from orchestrator.wire.shapes import ReplyShape

BARE = "none"  # the codex of a question that names none: the bare model answers
Block = Literal["identity", "codex", "environment", "karma", "state", "query"]
Source = Literal["vram", "ram", "disk", "computed"]


class IdentityState(ReplyShape):
    """The persona that answered."""

    name: str = Field(description="its name")
    version: str = Field(description="12 hex digits of what it says and of the tools that it tells of")
    preparing: str | None = Field(None, description="the version that follows when its prefix is computed")
    fault: str = Field("", description="why its newest version cannot be read")


class CodexInAnswer(ReplyShape):
    """The codex that was asked, in the state that the answer saw."""

    name: str = Field(description="its name")
    root: str = Field(description="the first folder, file or URL that it was loaded from")
    generation: int = Field(description="counts up with every load that changed it")
    branch: str | None = Field(None, description="git's, as seen last")
    revision: str | None = Field(None, description="git's, as seen last")
    amendments: tuple[str, ...] = Field((), description="files that changed since, told behind the generation")
    removed: tuple[str, ...] = Field((), description="those of them that are gone; their last text is still there")
    indexing: bool = Field(False, description="a load of it, or what changed in it, was being taken in")


class StrategyState(ReplyShape):
    """How the codex reached the model, and why."""

    name: str = Field(description="CAG, HYBRID, RAG, RAG+GRAPH or NONE")
    tier: str = Field(description="what of the codex stands in the cached prefix: full, skeleton+hot, map or none")
    retrieval: str = Field(description="what is fetched for this question")
    task: str = Field(description="what kind of question it was taken for")
    confidence: float = Field(description="of the decision, 0 to 1")
    reason: str = Field(description="in words and numbers")
    window: int = Field(description="tokens of prompt and answer together")
    content_tokens: int = Field(description="tokens of the whole codex")
    available_tokens: int = Field(description="tokens that it could have taken")
    used_tokens: int = Field(description="tokens of the prompt without what is fetched, with the answer's")
    retrieval_budget: int = Field(description="tokens that may be fetched")
    steps: tuple[str, ...] = Field((), description="what was tried before")


class BlockState(ReplyShape):
    """One block of the prompt."""

    kind: Block = Field(description="which of the six")
    tokens: int = Field(description="in it")
    cached: int = Field(description="of these: needed no computing")
    source: Source = Field(
        "computed", alias="from", description="where most of the cached ones were; RAM without a GPU"
    )


class Break(ReplyShape):
    """Where this turn's prompt left the previous one of its conversation, and why."""

    block: Block = Field(description="the first that differs")
    item: str = Field(description="what in it")
    why: str = Field(description="in words")


class PromptState(ReplyShape):
    """The whole prompt in tokens."""

    tokens: int = Field(description="in all")
    cached: int = Field(description="needed no computing")
    computed: int = Field(description="the others")


class GovernorState(ReplyShape):
    """What the machine allowed."""

    level: str = Field(description="of the memory: calm, elevated, high, critical or unknown")
    kv_bytes: int = Field(description="of KV that the prompt takes")
    budget_tokens: int = Field(description="prompt and answer may have together")
    actions: tuple[str, ...] = Field((), description="what was left out or shortened to fit, and what was not seen")


class Timings(ReplyShape):
    """Milliseconds since the question arrived."""

    assemble_ms: float = Field(0.0, description="preparing the prompt")
    queue_ms: float = Field(0.0, description="waiting in the engine")
    ttft_ms: float = Field(0.0, description="until the first token")
    total_ms: float = Field(0.0, description="until the end")
    tokens_per_second: float = Field(0.0, description="of the answer")


class DraftCounts(ReplyShape):
    """Tokens that were guessed from the text before them and verified together."""

    drafted: int = Field(0, description="guessed")
    accepted: int = Field(0, description="that the model then said itself")


class Citation(ReplyShape):
    """A place that an answer names or quotes."""

    path: str = Field(description="the file, as the codex names it")
    start: int = Field(description="first line, from 1")
    end: int = Field(description="last line")
    valid: bool = Field(description="it exists and was shown to the model")
    why: str = Field("", exclude_if=lambda why: not why, description="what is wrong; left out where it is valid")


class QuestionReport(ReplyShape):
    """What was decided for one question, answered or only planned."""

    session: str | None = Field(None, description="the conversation that it belongs to")
    model: str = Field("", description="as the settings name it")
    notice: str = Field("", description="what must be known of the model, such as that none was configured")
    notices: tuple[str, ...] = Field((), description="what has no effect yet, and what the answer may not have seen")
    identity: IdentityState | None = Field(None, description="the persona; none from an older daemon")
    codex: CodexInAnswer | None = Field(None, description="none: the bare model answers")
    strategy: StrategyState = Field(description="how the codex reaches the model")
    blocks: tuple[BlockState, ...] = Field(description="six, in their order; `cached` of a plan is what is cached now")
    broke_at: Break | None = Field(None, description="none where the prompt goes on where the last one ended")
    prompt: PromptState = Field(description="in tokens")
    governor: GovernorState = Field(description="what the machine allows")
    drafts: DraftCounts = Field(DraftCounts(), description="guessed tokens; zeros in a plan")


class Lore(QuestionReport):
    """What an answer says about itself."""

    trace: str | None = Field(None, description="names this answer; traces are not kept yet. None for a private one")
    began: bool = Field(False, description="the conversation began with this answer")
    not_kept: str = Field(
        "", exclude_if=lambda why: not why, description="why this turn was not saved; left out if it was"
    )
    timings: Timings = Field(Timings(), description="in milliseconds")
    citations: tuple[Citation, ...] = Field((), description="checked against the files and what was shown")


class Intent(ReplyShape):
    """What the question was taken for."""

    task: str = Field(description="its kind")
    because: str = Field(description="the words that say so")


class RetrievalPlan(ReplyShape):
    """What would be fetched."""

    retrieval: str = Field(description="none, look-ups, search or graph")
    budget: int = Field(description="tokens that may be fetched")
    passages: tuple[str, ...] = Field(description="path:start-end of what was found already")


class Need(ReplyShape):
    """Why the question would be refused."""

    tier: str = Field(description="that the strategy asked for needs")
    cost: str = Field(description="in words")


class Predicted(ReplyShape):
    """What asking would cost."""

    ttft_ms: float | None = Field(description="until the first token; null where nothing was measured yet")
    kv_bytes: int = Field(description="of the prompt")
    context_pressure: float = Field(description="share of the window that the conversation takes")


class PlanMemory(ReplyShape):
    """How the memory is planned."""

    where: str = Field(description="RAM or VRAM")
    kv_bytes: int = Field(description="for KV")
    weights: int = Field(description="bytes of the model's")
    embedding_bytes: int = Field(description="kept for the model that embeds")


class PlanTimings(ReplyShape):
    """Milliseconds."""

    assemble_ms: float = Field(description="preparing the prompt")


class PlanReply(QuestionReport):
    """Everything decided for a question."""

    timings: PlanTimings = Field(description="of planning")
    relevance: None = Field(None, description="not computed yet")
    intent: Intent = Field(description="what the question was taken for")
    retrieval_plan: RetrievalPlan = Field(description="what would be fetched")
    needs: Need | None = Field(description="none where it would be answered")
    predicted: Predicted = Field(description="what asking would cost")
    memory: PlanMemory | None = Field(None, description="how it is planned")
    text: str = Field(
        "",
        exclude_if=lambda text: not text,
        description="with `prompt`: the exact text that the engine would get; else left out",
    )
