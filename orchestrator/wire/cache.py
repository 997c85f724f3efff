"""The reply about the caches: counters since the engine started."""

from pydantic import Field

from orchestrator.wire.shapes import Shape


class CacheTier(Shape):
    """Where cached KV lay."""

    memory: str = Field(description="VRAM, RAM or disk: where this tier is on this machine")
    tokens: int = Field(description="of prompts that were taken from there")
    hit_rate: float | None = Field(description="their share of all prompt tokens; none before the first")
    bytes: int = Field(description="that lie there now")


class CacheTiers(Shape):
    """The three tiers, the fastest first."""

    vram: CacheTier = Field(description="the live caches; without a GPU in RAM")
    ram: CacheTier = Field(description="checkpoints in memory")
    disk: CacheTier = Field(description="checkpoints on disk")


class CacheTokens(Shape):
    """Tokens by what became of them."""

    prompt: int = Field(description="of all prompts")
    cached: int = Field(description="of these: needed no computing")
    computed: int = Field(description="the others")
    generated: int = Field(description="of answers")
    padded: int = Field(description="computed to fill a step")


class Evictions(Shape):
    """What had to go."""

    vram_tokens: int = Field(description="of live caches")
    ram_segments: int = Field(description="checkpoints in memory")
    disk_segments: int = Field(description="checkpoints on disk")


class Restores(Shape):
    """What came back into a live cache."""

    ram_segments: int = Field(description="checkpoints from memory")
    disk_segments: int = Field(description="checkpoints from disk")
    bytes: int = Field(description="of both")


class CacheFaults(Shape):
    """What went wrong; each costs computing, no answer."""

    misses: int = Field(description="checkpoints that were gone when they were wanted")
    damaged: int = Field(description="checkpoints that did not read as they were written")
    write_failures: int = Field(description="checkpoints that could not be written")
    broken_pools: int = Field(description="live caches thrown away because their books did not balance")
    failed_steps: int = Field(description="live caches made anew after a step that failed")


class DraftFigures(Shape):
    """Tokens that were guessed from the text before them."""

    answers: int = Field(description="steps that verified a guess, counted once for each answer in them")
    drafted: int = Field(description="tokens guessed")
    accepted: int = Field(description="of these: what the model then said itself")
    rate: float | None = Field(description="accepted of all guessed; none before the first")


class CacheReply(Shape):
    """What the caches held, gave back and saved since the engine started."""

    tiers: CacheTiers = Field(description="what each gave")
    tokens: CacheTokens = Field(description="of all prompts and answers")
    hit_rate: float | None = Field(description="cached of all prompt tokens")
    segments: int = Field(description="checkpoints")
    evictions: Evictions = Field(description="what had to go")
    restores: Restores = Field(description="what came back")
    faults: CacheFaults = Field(description="what went wrong")
    drafts: DraftFigures = Field(description="guessed tokens")
    ms_per_token: float = Field(description="of computing a prompt, as measured")
    saved_ms: int = Field(description="that cached tokens would have taken, less what it took to bring them back")
    note: str = Field(description="what the model's memory cannot do")
