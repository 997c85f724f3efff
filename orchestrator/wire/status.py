"""The daemon's report on its present state, and the events that report changes of it."""

from typing import Literal

from pydantic import Field

from orchestrator.wire.answers import Departure
from orchestrator.wire.base import ReplyShape
from orchestrator.wire.models import ModelNames
from orchestrator.wire.places import KeySource
from orchestrator.wire.replies import CodexReport, LoadReport


class RunningModel(ModelNames):
    """The model that answers."""

    changed: bool = Field(description="its file is another since it was loaded")
    trained_context: int = Field(description="tokens that it was trained for")
    window: int | None = Field(description="tokens of prompt and answer that fit now")


class PrefillReport(ReplyShape):
    """What is computed in advance now."""

    floor: str = Field(description="its own name, a hash")
    codex: str = Field(description="the codex; empty for an identity alone")
    tier: str | None = Field(description="the codex's coverage; none for a generation that is being built")
    generation: int | None = Field(description="the codex's")
    done: int | None = Field(description="tokens; none while a question computes it")
    total: int | None = Field(description="tokens in all")


class PoolReport(ReplyShape):
    """A live cache, of one codex under one identity. free + reserved + evictable + leased = size, in tokens."""

    name: str = Field(description="IDENTITY@VERSION/CODEX")
    size: int = Field(description="cells")
    free: int = Field(description="that hold nothing")
    reserved: int = Field(description="for answers that run")
    evictable: int = Field(description="that nobody uses now")
    leased: int = Field(description="in use")
    sequences: int = Field(description="in use")
    bytes: int = Field(description="of memory")


class StepReport(ReplyShape):
    """Steps of the engine's process by how long the model took for each."""

    bounds: tuple[float, ...] = Field(description="seconds: upper bounds of buckets, the last bucket has none")
    counts: tuple[int, ...] = Field(description="steps in each bucket")
    seconds: float = Field(description="of all together")


class ServerReport(ReplyShape):
    """A server that computes in the engine's place."""

    url: str = Field(description="where it is asked")
    kind: str = Field(description="llama-server, vLLM, SGLang, OpenAI-compatible, or unknown")
    state: str = Field(description="up, drained or down")
    reason: str = Field(description="why it is not up")
    running: int | None = Field(description="requests of all its clients; none where it does not tell")
    waiting: int | None = Field(description="of them, those that wait")
    cache: float | None = Field(description="the share of its cache that is in use, from 0 to 1")


class EngineReport(ReplyShape):
    """The engine's process."""

    state: str = Field(description="starting, ready, paused, backoff, broken, …")
    reason: str = Field(description="why it is not ready")
    restarts: int = Field(description="since the daemon started")
    pid: int | None = Field(description="of the process")
    device: str | None = Field(description="CPU or a GPU's name")
    gpu_layers: int | None = Field(description="layers there")
    ranges: bool | None = Field(description="whether the model's memory can be cut")
    kv_bytes: int = Field(description="of all pools")
    prefill_share: float = Field(description="of the time that answers leave of a round: for prompts beside them")
    answering: int = Field(description="answers being generated")
    prefills: int = Field(description="prompts being computed, floors among them")
    prefill: PrefillReport | None = Field(description="the floor of one of them; none where none has one")
    pools: tuple[PoolReport, ...] = Field(description="the live caches")
    cache: dict[str, int | float] = Field(description="the engine's counters since its start")
    steps: StepReport | None = Field(None, description="how long they took; none from an older daemon")
    servers: tuple[ServerReport, ...] = Field((), description="those that compute in its place")


class GpuSensors(ReplyShape):
    """One GPU."""

    index: int = Field(description="as the driver counts it")
    uuid: str = Field(description="as the driver names it")
    name: str = Field(description="the product's")
    total: int | None = Field(description="bytes of memory")
    used: int | None = Field(description="bytes that are not free")
    free: int | None = Field(description="bytes")
    own: int | None = Field(description="bytes of our processes")
    others: int | None = Field(description="bytes of all other processes")
    utilisation: float | None = Field(description="percent of time in which it computed")
    power: float | None = Field(description="watts now")
    power_limit: float | None = Field(description="watts, enforced now")
    power_default: float | None = Field(description="watts, as the board was made")
    temperature: float | None = Field(description="degrees Celsius")
    clock_reasons: tuple[str, ...] | None = Field(description="why its clocks are not at their highest")
    performance_state: int | None = Field(description="0 is the fastest, 15 the slowest")
    unified: bool = Field(description="it uses the host's RAM")


class HostSensors(ReplyShape):
    """The machine as the daemon may use it: a container's limits are respected."""

    ram_total: int | None = Field(description="bytes")
    ram_available: int | None = Field(description="bytes")
    ram_own: int | None = Field(description="bytes of our processes, without the files that they map")
    rss: int | None = Field(description="bytes of our processes in RAM")
    container_limit: int | None = Field(description="bytes; none also where there is no limit")
    swap_total: int | None = Field(description="bytes")
    swap_used: int | None = Field(description="bytes")
    stalled: float | None = Field(description="percent of the last 10 s in which some task waited for memory")
    disk_free: int | None = Field(description="bytes where checkpoints are written")
    on_battery: bool | None = Field(description="not on mains")
    battery: float | None = Field(description="percent")
    network_up: bool | None = Field(description="a network is there")


class SensorsReport(ReplyShape):
    """Every reading; one that is unknown is null, never 0."""

    age_s: float = Field(description="seconds since they were read")
    gpus: tuple[GpuSensors, ...] = Field(description="those that were there at the start; a lost one is unknown")
    host: HostSensors = Field(description="the machine")


class EstimateRow(ReplyShape):
    """What was estimated from the model's header, and what it is."""

    what: str = Field(description="weights, a token of KV, or the buffers of a pool")
    estimated: float = Field(description="bytes")
    real: float = Field(description="bytes, as llama.cpp allocated them")


class GovernorReport(ReplyShape):
    """The machine."""

    level: str = Field(description="calm, elevated, high, critical or unknown")
    power: str = Field(description="normal, low-power or throttled")
    saving: str = Field(description="why what nobody waits for is put off; empty: it is not")
    pressure: float | None = Field(description="memory in use, as a share of what weights and buffers leave")
    memory: str | None = Field(description="RAM or VRAM: where KV lies")
    fixed_bytes: int | None = Field(description="of ours that are no KV: weights, buffers, the model that embeds")
    kv_budget_bytes: int | None = Field(description="that KV may take")
    embedding_bytes: int | None = Field(description="kept for the model that embeds")
    cells: int | None = Field(description="tokens that fit there")
    window: int | None = Field(description="tokens of one prompt and answer")
    bound: Literal["trained", "context", "measured", "kv", "ram", "server"] | None = Field(
        description="what ends the window: the model's training, model.context, what was measured (lore doctor --context), "
        "KV's memory, or RAM for layers on the CPU"
    )
    bound_reason: str = Field(description="the same in words, with the numbers")
    kv_type: str | None = Field(description="of keys and values; none where nothing was loaded")
    kv_reason: str = Field(description="why another than f16 was chosen; empty where it was not, or one is set")
    planned: str = Field(description="the same in words")
    unplanned: str = Field(description="why nothing can be planned")
    faults: tuple[str, ...] = Field(description="sensors that cannot be read")
    gpus: tuple[str, ...] = Field(description="their names")
    sensors: SensorsReport = Field(description="every reading of the GPUs and of the host")
    estimates: tuple[EstimateRow, ...] = Field(description="of the loaded model; of buffers once a pool was open")


class EmbeddingModel(ReplyShape):
    """The model of the search by meaning. Its figures are those that are planned, whether it is loaded or not."""

    model: str = Field(description="as the settings name it; empty: none is configured")
    name: str = Field(description="what its vectors are kept under")
    dimensions: int | None = Field(description="of a vector; none without a file that can be used")
    fault: str = Field(description="why it cannot be used")
    notice: str = Field(description="what must be known of it")
    resting: str = Field(description="why it is not in memory now")
    loaded: bool = Field(description="its weights are in the memory")
    gpu_layers: int | None = Field(description="layers on a GPU")
    weights: int | None = Field(description="bytes")
    buffers: int | None = Field(description="bytes")


class QueueReport(ReplyShape):
    """Jobs of the engine."""

    running: int = Field(description="answered, or having their prompt computed")
    waiting: int = Field(description="for room")


class AwayReport(ReplyShape):
    """Why the model is out of the memory."""

    cause: Literal["pause", "pressure", "idle"] = Field(description="only a pause keeps it away from questions")
    why: str = Field(description="who paused it, or what made it leave")
    since: float = Field(description="seconds since 1970")
    until: float | None = Field(description="seconds since 1970; none where it does not come back by itself")
    gone: bool = Field(description="the engine's process has ended: none of the memory is ours")


class ArchivePlace(ReplyShape):
    """The object storage that the archive is on."""

    uri: str = Field(description="archive.uri")
    writes: bool = Field(description="whether this daemon may write to it, while nobody else does")
    fault: str = Field("", description="why it could not be reached when it was last asked; empty: it could")


class StatusReply(ReplyShape):
    """One page about now."""

    version: str = Field(description="of the daemon")
    model: RunningModel = Field(description="that answers")
    engine: EngineReport = Field(description="its process")
    governor: GovernorReport = Field(description="the machine")
    codices: tuple[CodexReport, ...] = Field(description="what is loaded")
    sessions: int = Field(description="kept, which `lore session list` lists")
    queue: QueueReport = Field(description="jobs of the engine")
    plugins: tuple[str, ...] = Field(description="plug-ins that cannot be used, and why")
    relevance: str = Field("", description="why every context node is fetched for every turn; empty: the gate decides")
    encrypted: KeySource = Field("off", description="where the key of what is kept on disk is; off: it is plain")
    embedding: EmbeddingModel = Field(description="the model that embeds")
    archive: ArchivePlace | None = Field(None, description="where the archive is; none: a folder of the daemon's")
    paused: AwayReport | None = Field(None, description="why the model is out of the memory")


class TicketReport(ReplyShape):
    """A job of the engine: a question's prompt and answer, or a prefix that is computed in advance."""

    ticket: int = Field(description="its number since the daemon's start")
    codex: str = Field(description="the codex; empty: the bare model, or a floor that is gone")
    phase: Literal["waiting", "restoring", "prefill", "answering"] = Field(
        description="for room, from checkpoints, computing its prompt, or generating"
    )
    place: int = Field(description="0 while it runs; else its place among those that wait, from 1")
    background: bool = Field(description="it gives way to questions")
    prompt: int = Field(description="tokens")
    done: int = Field(description="of these: in cells")
    computed: int = Field(description="of these: computed for it")
    generated: int = Field(description="tokens of the answer")
    most: int = Field(description="tokens that the answer may have; 0: computed in advance")
    waited_s: float = Field(description="seconds since it came")
    running_s: float = Field(description="seconds since it has its cells; 0: not yet")
    answering_s: float = Field(description="seconds since its first token; 0: not yet")


class BranchReport(ReplyShape):
    """A stretch of a live cache, below the last one of less depth before it."""

    depth: int = Field(description="how many are above it")
    start: int = Field(description="its first position")
    tokens: int = Field(description="in it")
    computed: int = Field(description="of these: in cells")
    private: bool = Field(description="right of the floor: of one user's conversations")
    used: bool = Field(description="by a job now")


class CacheReport(ReplyShape):
    """What a live cache holds."""

    name: str = Field(description="IDENTITY@VERSION/CODEX")
    size: int = Field(description="cells")
    bytes: int = Field(description="of memory")
    floors: int = Field(description="tokens in cells that all users may share")
    conversations: int = Field(description="tokens in cells right of the floors")
    branches: tuple[BranchReport, ...] = Field(description="each before those below it, at most 100")
    left_out: int = Field(description="branches without a row")


class EngineWork(ReplyShape):
    """What the engine works at, and what its live caches hold. Nothing while no model is loaded."""

    weight_bytes: int | None = Field(description="of the model; none: not loaded")
    prompt_tokens: int = Field(description="of all questions answered since the engine's start: grows with each")
    tickets: tuple[TicketReport, ...] = Field(
        description="those that run, then those that wait, as served; at most 100"
    )
    caches: tuple[CacheReport, ...] = Field(description="the live ones")


class PauseReply(ReplyShape):
    """A pause that has begun."""

    name: str = Field(description="of this pause")
    away: AwayReport | None = Field(description="none where it has ended meanwhile")


class ResumeReply(ReplyShape):
    """What was ended."""

    ended: tuple[str, ...] = Field(description="pauses, by who asked for them")
    engine: str = Field(description="the engine's state")


class AwayEvent(ReplyShape):
    """The model leaves the memory, is gone from it, or comes back."""

    event: Literal["leaving", "away", "back"] = Field(description="which of the three")
    away: AwayReport | None = Field(description="why; none where it comes back")
    name: str = Field("", description="of the pause whose stream this is")


class NowEvent(ReplyShape):
    """The state at the time when a client begins to listen."""

    event: Literal["now"] = Field(description="what kind of event")
    level: str = Field(description="of the memory")
    power: str = Field(description="normal, low-power or throttled")
    engine: str = Field(description="the engine's state")
    prefill: PrefillReport | None = Field(description="what is computed in advance")
    computed: int = Field(description="prompt tokens since the engine's start")
    pools: tuple[str, ...] = Field(description="IDENTITY@VERSION/CODEX of each")
    evicted_tokens: int = Field(description="since the engine's start")
    evicted_segments: int = Field(description="checkpoints, since the engine's start")
    away: AwayReport | None = Field(None, description="why the model is out of the memory")
    loads: tuple[LoadReport, ...] = Field((), description="the last one of each codex, also where it has ended")


class LevelEvent(ReplyShape):
    """Memory or power is at another level."""

    event: Literal["level"] = Field(description="what kind of event")
    level: str = Field(description="of the memory")
    power: str = Field(description="normal, low-power or throttled")


class EngineStateEvent(ReplyShape):
    """The engine's process is in another state."""

    event: Literal["engine"] = Field(description="what kind of event")
    state: str = Field(description="the new one")


class PoolEvent(ReplyShape):
    """A live cache was opened or closed."""

    event: Literal["opened", "closed"] = Field(description="which of the two")
    pool: str = Field(description="IDENTITY@VERSION/CODEX")
    identity: str = Field(description="the identity")
    codex: str = Field(description="empty: the bare model")


class EvictedEvent(ReplyShape):
    """Cached tokens were evicted."""

    event: Literal["evicted"] = Field(description="what kind of event")
    tokens: int = Field(description="of live caches")
    segments: int = Field(description="checkpoints")


class PrefillEvent(PrefillReport):
    """How far the computing in advance is."""

    event: Literal["prefill"] = Field(description="what kind of event")
    computed: int = Field(description="prompt tokens of all kinds since the engine's start")


class LoadReportedEvent(LoadReport):
    """A load began, is further, or ended. One that lasted less than half a second has this event alone."""

    event: Literal["load"] = Field(description="what kind of event")


class CacheTier(ReplyShape):
    """Where cached KV lay."""

    memory: str = Field(description="VRAM, RAM or disk: where this cache tier is on this machine")
    tokens: int = Field(description="of prompts that were taken from there")
    hit_rate: float | None = Field(description="their share of all prompt tokens; none before the first")
    bytes: int = Field(description="that lie there now")


class CacheTiers(ReplyShape):
    """The two cache tiers."""

    vram: CacheTier = Field(description="the live caches; without a GPU in RAM")
    disk: CacheTier = Field(description="checkpoints on disk")


class CacheTokens(ReplyShape):
    """Tokens by what became of them."""

    prompt: int = Field(description="of all prompts")
    cached: int = Field(description="of these: needed no computing")
    computed: int = Field(description="the others")
    generated: int = Field(description="of answers")


class Evictions(ReplyShape):
    """What was evicted."""

    vram_tokens: int = Field(description="of live caches")
    disk_segments: int = Field(description="checkpoints on disk")


class Restores(ReplyShape):
    """What was restored into a live cache."""

    disk_segments: int = Field(description="checkpoints from disk")
    bytes: int = Field(description="of these")


class CacheFaults(ReplyShape):
    """What went wrong; each costs computing, no answer."""

    misses: int = Field(description="checkpoints that were gone when they were wanted")
    damaged: int = Field(description="checkpoints that did not read as they were written")
    write_failures: int = Field(description="checkpoints that could not be written")
    broken_pools: int = Field(description="live caches thrown away because their accounts did not balance")
    failed_steps: int = Field(description="live caches made anew after a step that failed")


class DraftFigures(ReplyShape):
    """Tokens that were guessed from the text before them."""

    answers: int = Field(description="steps that verified a guess, counted once for each answer in them")
    drafted: int = Field(description="tokens guessed")
    accepted: int = Field(description="of these: what the model then generated itself")
    rate: float | None = Field(description="accepted of all guessed; none before the first")


class ClientRow(ReplyShape):
    """What a client that sends whole conversations made of the cache since the daemon started."""

    client: str = Field(description="the first word of its User-Agent, without a version")
    prompts: int = Field(0, description="answered ones; none that were private or belong to a session")
    departures: int = Field(0, description="prompts that left what the one before them shared")
    tokens: int = Field(0, description="computed again for that, about")
    seconds: float = Field(0.0, description="that this took")
    last: Departure | None = Field(None, description="the last one")


class ClientStats(ReplyShape):
    """Clients of the asking user, those that lost most time first."""

    clients: tuple[ClientRow, ...] = Field(description="at most 32 of all users")


class CacheReply(ReplyShape):
    """What the caches held, restored and saved since the engine started."""

    tiers: CacheTiers = Field(description="what was taken from each")
    tokens: CacheTokens = Field(description="of all prompts and answers")
    hit_rate: float | None = Field(description="cached of all prompt tokens")
    segments: int = Field(description="checkpoints")
    evictions: Evictions = Field(description="what was evicted")
    restores: Restores = Field(description="what was restored")
    faults: CacheFaults = Field(description="what went wrong")
    drafts: DraftFigures = Field(description="guessed tokens")
    ms_per_token: float = Field(description="of computing a prompt, as measured")
    saved_ms: int = Field(description="that cached tokens would have taken, less the time of restoring them")
    note: str = Field(description="why there is nothing to tell yet, and what the model's memory cannot do")
