"""The reply in which the daemon tells of itself: one page about now."""

from pydantic import Field

from orchestrator.wire.codices import CodexReport
from orchestrator.wire.sensors import SensorsReport
from orchestrator.wire.shapes import Shape


class RunningModel(Shape):
    """The model that answers."""

    name: str = Field(description="as the settings name it")
    path: str = Field(description="its file")
    notice: str = Field(description="what must be known of it")
    changed: bool = Field(description="its file is another since it was loaded")
    trained_context: int = Field(description="tokens that it was trained for")
    window: int | None = Field(description="tokens of prompt and answer that fit now")


class PrefillReport(Shape):
    """What is computed in advance now."""

    floor: str = Field(description="its own name, a hash")
    codex: str = Field(description="the codex; empty for an identity alone")
    tier: str | None = Field(description="in which the codex stands; none for a generation on its way")
    generation: int | None = Field(description="the codex's")
    done: int | None = Field(description="tokens; none while a question computes it")
    total: int | None = Field(description="tokens in all")


class PoolReport(Shape):
    """A live cache, of one codex under one identity. free + reserved + evictable + leased = size, in tokens."""

    name: str = Field(description="IDENTITY@VERSION/CODEX")
    size: int = Field(description="cells")
    free: int = Field(description="that hold nothing")
    reserved: int = Field(description="for answers that run")
    evictable: int = Field(description="that nobody uses now")
    leased: int = Field(description="in use")
    sequences: int = Field(description="in use")
    bytes: int = Field(description="of memory")


class EngineReport(Shape):
    """The engine's process."""

    state: str = Field(description="starting, ready, backoff, broken, …")
    reason: str = Field(description="why it is not ready")
    restarts: int = Field(description="since the daemon started")
    pid: int | None = Field(description="of the process")
    device: str | None = Field(description="CPU or a GPU's name")
    gpu_layers: int | None = Field(description="layers there")
    ranges: bool | None = Field(description="whether the model's memory can be cut")
    kv_bytes: int = Field(description="of all pools")
    answering: int = Field(description="answers being generated")
    prefills: int = Field(description="prompts being computed, floors among them")
    prefill: PrefillReport | None = Field(description="the floor of one of them; none where none has one")
    pools: tuple[PoolReport, ...] = Field(description="the live caches")
    cache: dict[str, float] = Field(description="the engine's counters since its start")


class GovernorReport(Shape):
    """The machine."""

    level: str = Field(description="calm, elevated, high, critical or unknown")
    power: str = Field(description="normal, low-power or throttled")
    pressure: float | None = Field(description="memory in use, as a share of what may be used")
    memory: str | None = Field(description="RAM or VRAM: where KV lies")
    kv_budget_bytes: int | None = Field(description="that KV may take")
    embedding_bytes: int | None = Field(description="kept for the model that embeds")
    cells: int | None = Field(description="tokens that fit there")
    window: int | None = Field(description="tokens of one prompt and answer")
    planned: str = Field(description="the same in words")
    unplanned: str = Field(description="why nothing can be planned")
    faults: tuple[str, ...] = Field(description="sensors that cannot be read")
    gpus: tuple[str, ...] = Field(description="their names")
    sensors: SensorsReport = Field(description="every reading of the GPUs and of the host")


class EmbeddingModel(Shape):
    """The model of the search by meaning. Its figures are those that are planned, whether it is loaded or not."""

    model: str = Field(description="as the settings name it; empty: none is configured")
    name: str = Field(description="what its vectors are kept under")
    dimensions: int | None = Field(description="of a vector; none without a file that can be used")
    fault: str = Field(description="why it cannot be used")
    notice: str = Field(description="what must be known of it")
    resting: str = Field(description="why it is kept out of the memory now")
    loaded: bool = Field(description="its weights are in the memory")
    gpu_layers: int | None = Field(description="layers on a GPU")
    weights: int | None = Field(description="bytes")
    buffers: int | None = Field(description="bytes")


class QueueReport(Shape):
    """Jobs of the engine."""

    running: int = Field(description="answered, or having their prompt computed")
    waiting: int = Field(description="for room")


class StatusReply(Shape):
    """One page about now."""

    version: str = Field(description="of the daemon")
    model: RunningModel = Field(description="that answers")
    engine: EngineReport = Field(description="its process")
    governor: GovernorReport = Field(description="the machine")
    codices: tuple[CodexReport, ...] = Field(description="what is loaded")
    sessions: int = Field(description="conversations kept")
    queue: QueueReport = Field(description="jobs of the engine")
    plugins: tuple[str, ...] = Field(description="formatters that cannot be used, and why")
    embedding: EmbeddingModel = Field(description="the model that embeds")
