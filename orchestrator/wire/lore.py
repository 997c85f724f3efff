"""The `lore` object: what an answer says about itself."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Block = Literal["identity", "codex", "environment", "karma", "state", "query"]
Source = Literal["vram", "ram", "disk", "computed"]


class Shape(BaseModel):
    """Base of all wire shapes: frozen, and keys of a newer peer are ignored, so that both sides may grow."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, serialize_by_alias=True)


class CodexState(Shape):
    name: str
    root: str
    generation: int
    branch: str | None = None
    revision: str | None = None
    amendments: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()  # those of `amendments` that are gone from the disk; their last text is still there
    indexing: bool = False


class StrategyState(Shape):
    name: str
    tier: str
    retrieval: str
    task: str
    confidence: float
    reason: str
    window: int
    content_tokens: int
    available_tokens: int
    used_tokens: int
    retrieval_budget: int
    steps: tuple[str, ...] = ()


class BlockState(Shape):
    """Tokens of one block and how many of them needed no computing; `source` is that of its largest cached part."""

    kind: Block
    tokens: int
    cached: int
    source: Source = Field("computed", alias="from")


class Break(Shape):
    """Where this turn's prompt left the previous one of its conversation, and why."""

    block: Block
    item: str
    why: str


class PromptState(Shape):
    tokens: int
    cached: int
    computed: int


class GovernorState(Shape):
    level: str
    kv_bytes: int
    budget_tokens: int
    actions: tuple[str, ...] = ()


class Timings(Shape):
    assemble_ms: float = 0.0
    queue_ms: float = 0.0
    ttft_ms: float = 0.0
    total_ms: float = 0.0
    tokens_per_second: float = 0.0


class Drafts(Shape):
    """Tokens of the answer that were guessed from the text before it, and those that the model then said itself."""

    drafted: int = 0
    accepted: int = 0


class Citation(Shape):
    """A place that an answer names or quotes. `why` says what is wrong with one that is not valid; else it is left out."""

    path: str
    start: int
    end: int
    valid: bool
    why: str = Field("", exclude_if=lambda why: not why)


class Lore(Shape):
    trace: str | None = None
    session: str | None = None
    model: str = ""
    notice: str = ""
    codex: CodexState | None = None
    strategy: StrategyState
    blocks: tuple[BlockState, ...]
    broke_at: Break | None = None
    prompt: PromptState
    governor: GovernorState
    timings: Timings = Timings()
    drafts: Drafts = Drafts()
    citations: tuple[Citation, ...] = ()
