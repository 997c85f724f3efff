"""Every setting: default, unit, range and one line of help. Frozen slices; a part receives its own and never the whole.

Defaults that a part has are the part's own. Knows no file, variable or option: `sources` reads those.
"""

import math
import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from codex.settings import AmendmentSettings, LibrarySettings, SecretSettings, WalkSettings, WatchSettings
from governor.settings import (
    ClaimSettings,
    GovernorSettings,
    MemorySettings,
    PressureSettings,
    SamplerSettings,
    StoreSettings,
    YieldSettings,
)
from orchestrator.prompt.coverage import CoverageSettings
from orchestrator.prompt.phrases import MorePhrases
from orchestrator.prompt.strategy import StrategyParameters
from orchestrator.settings.remote import ArchiveTable, EngineTable
from orchestrator.settings.units import GIB, MIB, Bytes, BytesOrShare, Measure, Seconds, Slice, Tokens
from orchestrator.wire.places import KeySource

LEAST_CONTEXT = 512

KvType = Literal["auto", "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
SplitMode = Literal["layer", "row", "tensor", "none"]
Tier = Literal["auto", "full", "skeleton+hot", "map", "none"]
SCOPE = re.compile(r"(query|search|codex:read|codex:write|memory:read|memory:write|tools:[A-Za-z0-9_.*-]+|admin)\Z")
Phrases = tuple[str, ...]


class ServeSettings(Slice):
    """The socket and what may come in through it."""

    socket: str = Field("", description="the daemon's Unix socket; empty: the runtime folder's lore.sock")
    socket_group: str = Field("", description="a group that may connect as well (mode 0660 instead of 0600)")
    tcp: str = Field("", description="HOST:PORT to listen on as well, with tokens; empty: no TCP")
    max_body: Bytes = Field(32 * MIB, ge=1024, le=GIB, description="largest body of a request")
    queue: Annotated[int, Measure("questions")] = Field(
        256,
        ge=1,
        le=100_000,
        description="questions that may wait for their turn; a further one is refused until later",
    )
    shutdown_grace: Seconds = Field(10.0, ge=0, le=600, description="how long running answers may end by themselves")
    idle_exit: Seconds = Field(
        0.0,
        ge=0,
        le=30 * 86_400,
        description="end the daemon when nobody has asked anything for so long, where systemd holds its socket: the next "
        "question starts it again; 0 or off: never",
        json_schema_extra={"range": "≥ 0 | off"},
    )

    @field_validator("idle_exit", mode="before")
    @classmethod
    def never(cls, value: object) -> object:
        return 0 if isinstance(value, str) and value.strip().lower() in ("none", "off", "never") else value


class ClientSettings(Slice):
    """What clients get that were made for other servers."""

    unknown_model: str = Field(
        "refuse",
        min_length=1,
        description="who answers a model id that nobody has, such as gpt-4o: default, as if none were named; or an id of "
        "GET /v1/models",
        json_schema_extra={"range": "refuse | default | a model id"},
    )
    move_volatile: bool = Field(
        False,
        description="put lines of a client's system message that change by the minute, a time or the file that is open, in "
        "front of the question instead: what stands behind them stays cached",
    )


class ModelSettings(Slice):
    """Which model, and how llama.cpp loads it."""

    path: str = Field("", description="a GGUF file or builtin:quoter, builtin:noise-s, -m; empty: builtin:quoter")
    context: Annotated[int | Literal["auto"], Measure("tokens")] = Field(
        "auto",
        description="longest prompt and answer together; auto: what fits, and 16,384 with a built-in model",
        json_schema_extra={"range": f"≥ {LEAST_CONTEXT} | auto"},
    )
    measured_context: bool = Field(
        True, description="end windows where `lore doctor --context` found that the model loses what it reads"
    )
    kv_type_k: KvType = Field(
        "auto",
        description="storage type of cached keys; auto: f16, or on a GPU q8_0 where that holds clearly more of a codex",
    )
    kv_type_v: KvType = Field("auto", description="storage type of cached values; auto: as for keys, where both are")
    gpu_layers: int = Field(-1, ge=-1, le=10_000, description="layers on the GPU; -1: as many as fit")
    split_mode: SplitMode = Field(
        "layer", description="over several GPUs: whole layers, parts of each layer, or none: all on main_gpu"
    )
    tensor_split: tuple[float, ...] = Field(
        (), description="share of each GPU, in any unit ([3, 1]); empty: by what is free there"
    )
    main_gpu: int = Field(0, ge=0, le=15, description="the GPU that takes all with split_mode none, counted from 0")
    flash_attention: bool | Literal["auto"] = Field(
        "auto",
        description="llama.cpp's flash attention; auto: on a GPU, with quantised values, for sliding windows",
        json_schema_extra={"range": "true | false | auto"},
    )
    window_cache: Literal["auto", "full", "small"] = Field(
        "auto",
        description="KV of sliding layers: full: of all tokens, cut in ranges; small: of the window alone, several times "
        "the tokens, shared at the ends of prompts; auto: small where full is too short (32,768, or model.context)",
    )
    threads: int = Field(
        0, ge=0, le=1024, description="CPU threads; 0: one a physical core, fewer beside other busy processes"
    )
    batch: Tokens = Field(512, ge=32, le=65_536, description="prompt tokens computed in one step")
    drafts: bool = Field(
        True,
        description="guess an answer's next tokens from the code it may quote; the text is the same but for rounding",
    )
    sequences: int = Field(32, ge=3, le=256, description="sequences of a pool; one less answers run at once in it")

    @field_validator("tensor_split")
    @classmethod
    def shared(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if any(not math.isfinite(one) or one < 0 for one in value):
            raise ValueError("holds a share that is negative or no number; write shares like [3, 1]")
        if value and not sum(value):
            raise ValueError("gives every GPU nothing; write shares like [3, 1], or leave it out")
        return value

    @field_validator("context")
    @classmethod
    def long_enough(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < LEAST_CONTEXT:
            raise ValueError(f"is below {LEAST_CONTEXT} tokens; use auto or more")
        return value


class CodexTable(Slice):
    """Which files belong to a codex, and how it follows them."""

    max_file: Bytes = Field(
        WalkSettings.max_file_bytes, ge=1024, le=GIB, description="larger files are skipped, unread"
    )
    max_files: Annotated[int, Measure("files")] = Field(
        WalkSettings.max_files, ge=1, description="a load of more files is refused"
    )
    skip_vendored: bool = Field(WalkSettings.skip_vendored, description="skip third-party trees and minified copies")
    skip_lock_files: bool = Field(WalkSettings.skip_lock_files, description="skip files written by package managers")
    hidden: bool = Field(WalkSettings.hidden, description="take dot-files that git tracks")
    secrets: bool = Field(
        SecretSettings.load_secret_names, description="load .env, keys and files in which a key was found"
    )
    watch: bool = Field(True, description="follow changes on disk, unless a load says otherwise")
    poll: Seconds = Field(
        WatchSettings.poll_s,
        ge=0.5,
        le=3600,
        description="time between comparisons where the kernel gives no watches, or the folder is gone",
    )
    reconcile: Seconds = Field(
        WatchSettings.reconcile_s,
        ge=1,
        le=86_400,
        description="time between comparisons of everything, in case a change went unnoticed",
    )
    whole_file: Tokens = Field(
        AmendmentSettings.whole_file_tokens,
        ge=1,
        description="of a larger file only the changed parts are reported",
    )
    rebase_share: float = Field(
        AmendmentSettings.rebase_share,
        gt=0,
        le=1,
        description="share of a codex's tokens that changes may reach before it gets a new generation",
    )


class EmbeddingSettings(Slice):
    """The model of the search by meaning; without one, search uses words and names."""

    model: str = Field("", description="a GGUF file that embeds texts; empty: none; builtin:words for trying out")
    window: Tokens = Field(
        0,
        ge=0,
        le=131_072,
        description="tokens of a text that are read; 0: what the model was trained for, at most 2048",
    )
    threads: int = Field(0, ge=0, le=1024, description="CPU threads; 0: half of the cores")
    gpu_layers: int = Field(
        -1,
        ge=-1,
        le=10_000,
        description="layers on the GPU; -1: all where the model that answers leaves room for them, else none",
    )
    query_prefix: str = Field("", description="precedes a question, where the model's authors ask for it")
    text_prefix: str = Field("", description="the same before what is searched; changing it embeds everything anew")


class GovernorTable(Slice):
    """How much of the machine may be used."""

    gpu: str = Field("", description="index or UUID of the GPU; empty: the first of CUDA_VISIBLE_DEVICES")
    vram_limit: BytesOrShare = Field(
        MemorySettings.vram_limit,
        description="most that Lorekeep itself may hold of VRAM (RAM without a GPU): bytes, or a share of what was free",
    )
    margin: Bytes = Field(
        MemorySettings.margin_bytes,
        ge=0,
        description="memory that is never planned away, or margin_share if that is more",
    )
    margin_share: float = Field(
        MemorySettings.margin_share, ge=0, lt=1, description="the same, as a share of the total"
    )
    sensor_busy: Seconds = Field(
        SamplerSettings.busy_s, ge=0.05, le=60, description="time between readings while answering"
    )
    sensor_idle: Seconds = Field(SamplerSettings.idle_s, ge=0.1, le=600, description="time between readings when idle")
    sensor_retry: Seconds = Field(
        SamplerSettings.retry_s,
        ge=0.1,
        le=3600,
        description="time after which a lost GPU or driver is looked for again",
    )
    worse_after: Seconds = Field(
        PressureSettings.worse_s,
        ge=0,
        le=3600,
        description="a worse level, or a smaller coverage, is taken after it was due for this long",
    )
    better_after: Seconds = Field(
        PressureSettings.better_s, ge=0, le=86_400, description="the same for a better level or a larger coverage"
    )
    yield_: Literal["polite", "never"] = Field(
        "polite",
        alias="yield",
        description="polite: unload the model when others' growth makes memory critical and nobody asks; never: keep it",
    )
    idle_unload: Seconds = Field(
        YieldSettings.idle_s,
        ge=0,
        le=30 * 86_400,
        description="unload the model when nobody has asked for so long; 0 or off: never",
        json_schema_extra={"range": "≥ 0 | off"},
    )
    depth: int = Field(
        0,
        ge=0,
        le=10_000,
        description="most earlier questions of a conversation that a prompt holds; 0 or none: as many as fit",
    )
    characters: int = Field(
        0, ge=0, le=2**31, description="most characters of a prompt; 0: 16 for each token of the window"
    )
    gist: Tokens = Field(
        ClaimSettings.gist,
        ge=0,
        le=4_096,
        description="most that stands for older turns that no longer fit a prompt, and less in a small window; 0: nothing",
    )
    gist_time: Seconds = Field(
        ClaimSettings.gist_s,
        ge=0,
        le=600,
        description="how long the model may take to write it; then, or with 0, it is an extract",
    )

    @field_validator("depth", "idle_unload", mode="before")
    @classmethod
    def unlimited(cls, value: object) -> object:
        words = ("none", "off", "never")
        return 0 if value is None or (isinstance(value, str) and value.strip().lower() in words) else value


class StrategyTable(Slice):
    """How a codex reaches the model."""

    tier: Tier = Field("auto", description="the coverage: how much of a codex is in the cached prefix")
    window_share: float = Field(
        CoverageSettings.window_share, gt=0, le=1, description="most of the window that a codex may take"
    )
    overhead: float = Field(
        CoverageSettings.overhead_share, ge=0, lt=1, description="share of the window kept for system, turns and output"
    )
    small_content: Tokens = Field(
        StrategyParameters.small_content,
        ge=0,
        description="a codex of at most so many tokens that is wholly in the prefix is asked without a search",
    )
    graph_content: Tokens = Field(
        StrategyParameters.graph_content,
        ge=0,
        description="in a codex of more tokens a search also follows what refers to what",
    )
    hybrid_share: float = Field(
        StrategyParameters.hybrid_share,
        gt=0,
        le=1,
        description="share of the free window that found passages may fill beside a codex in the prefix (HYBRID)",
    )
    rag_share: float = Field(
        StrategyParameters.rag_share, gt=0, le=1, description="the same where none of it is in the prefix (RAG)"
    )


class TasksTable(Slice):
    """Phrases of your own that tell what a question asks for, beside those that are known; whole words, in any case."""

    crisis: Phrases = Field((), description="more phrases of somebody in need: facts are looked up, never remembered")
    debug: Phrases = Field((), description='more phrases of debugging, such as "panic": exact messages are looked up')
    facts: Phrases = Field((), description="more phrases that ask for a fact, which is looked up and cited")
    stuff_friendly: Phrases = Field((), description="more phrases that ask to make something from the whole codex")
    hybrid: Phrases = Field((), description="more phrases that ask to weigh or to explain")
    memory: Phrases = Field((), description="more phrases that ask for what was said or settled before")

    @field_validator("*")
    @classmethod
    def are_words(cls, value: Phrases) -> Phrases:
        if not all(re.search(r"\w", phrase) for phrase in value):
            raise ValueError('holds a phrase without a word; write words like ["panic", "stack trace"]')
        return value


class ToolsTable(Slice):
    """The tools that the model has of the daemon."""

    time: Seconds = Field(
        120.0,
        ge=1,
        le=86_400,
        description="how long a turn may go on calling them, from its first call on; then it answers from what it has",
    )


class PromptTable(Slice):
    """Which plug-ins write in prompts."""

    injectors: tuple[str, ...] = Field(
        (),
        description='names of plug-ins\' injectors that add to prompts; empty: all that are installed; ["none"]: none',
    )
    templates: tuple[str, ...] = Field(
        (),
        description="names of plug-ins' templates, each of which writes its block in the place of the built-in writer",
    )


class IdentityTable(Slice):
    """What the model is told of its part."""

    default: str = Field(
        "", description="the identity of questions that name none, as `lore identity use` writes it; empty: lorekeep"
    )


class StorageSettings(Slice):
    """What may be kept, and for how long."""

    checkpoint_disk: Bytes = Field(StoreSettings.disk_bytes, ge=0, description="most that checkpoints take on disk")
    checkpoint_disk_share: float = Field(
        StoreSettings.disk_share, ge=0, le=1, description="and never more than this share of what is free"
    )


class TraceSettings(Slice):
    """How long what the model saw and said is kept. Whichever is reached first."""

    days: Annotated[float, Measure("days")] = Field(30.0, gt=0, le=36_500, description="after which a trace is dropped")
    bytes: Bytes = Field(
        500_000_000, ge=0, description="most that traces take on disk; the oldest go first, those voted up last"
    )


class MemoryTable(Slice):
    """What is remembered by itself."""

    learn: Literal["on", "proposed", "off"] = Field(
        "on",
        description="memories made of what you state in a session; on: plain statements stand at once, the rest is "
        "proposed; proposed: a person confirms each; off: none",
    )
    episodes: bool = Field(
        True, description="a session that is over for 12 hours becomes an episode: what was asked in it"
    )
    retention: Annotated[float, Measure("days")] = Field(
        0.0,
        ge=0,
        le=36_500,
        description="after which what no model is shown (proposed, inactive, retired) and archived episodes are deleted, "
        "decisions never; 0: nothing is",
    )


class SecuritySettings(Slice):
    """What of the daemon's files nobody can read without a key."""

    encrypt: KeySource = Field(
        "off",
        description="where the key is that checkpoints, memories, conversations and traces are encrypted with: systemd's "
        "credential lorekeep.key, or the key lorekeep in the kernel's keyring; off: they are plain",
    )


class LogSettings(Slice):
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is logged")


OWNER = "owner"  # the sigil that permits all; it has no table


def are(names: list[str]) -> str:
    return f"is only {names[0]}" if len(names) == 1 else f"are {', '.join(names)}"


class SigilRule(Slice):
    """Who carries a sigil, by user or group (names or numbers), and what it permits."""

    users: tuple[str | int, ...] = Field((), description="users that carry it")
    groups: tuple[str | int, ...] = Field((), description="groups whose members carry it")
    scopes: tuple[str, ...] = Field((), description="what it permits")
    codices: tuple[str, ...] = Field(
        (), description='names of codices of others that it may read, with * and ?; of another user\'s: "NAME~UID"'
    )

    @field_validator("scopes")
    @classmethod
    def known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for scope in value:
            if not SCOPE.match(scope):
                raise ValueError(
                    f'names an unknown scope "{scope}"; there are query, search, codex:read, codex:write, memory:read, '
                    "memory:write, tools:NAME, admin"
                )
        return value


class TokenRule(Slice):
    """A token for TCP: its hash alone is kept."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="hash of the token")]
    sigil: str = Field("owner", description="what it permits: a sigil's name, or owner")


class Settings(Slice):
    """All of it. The field's name is the table's name in TOML."""

    serve: ServeSettings = ServeSettings()
    clients: ClientSettings = ClientSettings()
    model: ModelSettings = ModelSettings()
    engine: EngineTable = EngineTable()
    embedding: EmbeddingSettings = EmbeddingSettings()
    governor: GovernorTable = GovernorTable()
    codex: CodexTable = CodexTable()
    strategy: StrategyTable = StrategyTable()
    tasks: TasksTable = TasksTable()
    tools: ToolsTable = ToolsTable()
    prompt: PromptTable = PromptTable()
    identity: IdentityTable = IdentityTable()
    storage: StorageSettings = StorageSettings()
    archive: ArchiveTable = ArchiveTable()
    traces: TraceSettings = TraceSettings()
    memory: MemoryTable = MemoryTable()
    security: SecuritySettings = SecuritySettings()
    log: LogSettings = LogSettings()
    sigils: dict[str, SigilRule] = Field(default_factory=dict)
    tokens: dict[str, TokenRule] = Field(default_factory=dict)

    def unknown_sigil(self, name: str) -> str:
        """What is wrong with a sigil's name that a token shall carry; '' when it may."""
        known = [OWNER, *sorted(self.sigils)]
        return "" if name in known else f'no sigil "{name}"; there {are(known)}'

    # -- as each part takes them

    def for_governor(self) -> GovernorSettings:
        given, kept = self.governor, self.storage
        return GovernorSettings(
            memory=MemorySettings(
                gpu=given.gpu or None,
                vram_limit=given.vram_limit,
                margin_bytes=given.margin,
                margin_share=given.margin_share,
            ),
            stores=StoreSettings(
                disk_bytes=kept.checkpoint_disk,
                disk_share=kept.checkpoint_disk_share,
            ),
            pressure=PressureSettings(worse_s=given.worse_after, better_s=given.better_after),
            claims=ClaimSettings(
                depth=given.depth or None,
                characters=given.characters or None,
                gist=given.gist,
                gist_s=given.gist_time,
            ),
            yielding=YieldSettings(polite=given.yield_ == "polite", idle_s=given.idle_unload),
            sampler=SamplerSettings(busy_s=given.sensor_busy, idle_s=given.sensor_idle, retry_s=given.sensor_retry),
        )

    def for_library(self) -> LibrarySettings:
        given = self.codex
        return LibrarySettings(
            walk=WalkSettings(
                max_file_bytes=given.max_file,
                max_files=given.max_files,
                skip_vendored=given.skip_vendored,
                skip_lock_files=given.skip_lock_files,
                hidden=given.hidden,
            ),
            secrets=SecretSettings(load_secret_names=given.secrets, load_secret_contents=given.secrets),
            amendments=AmendmentSettings(whole_file_tokens=given.whole_file, rebase_share=given.rebase_share),
            watch=WatchSettings(
                poll_s=given.poll,
                reconcile_s=given.reconcile,
            ),
        )

    def for_coverage(self) -> CoverageSettings:
        given = self.strategy
        return CoverageSettings(overhead_share=given.overhead, window_share=given.window_share)

    def for_strategy(self) -> StrategyParameters:
        given = self.strategy
        return StrategyParameters(
            small_content=given.small_content,
            graph_content=given.graph_content,
            hybrid_share=given.hybrid_share,
            rag_share=given.rag_share,
            phrases=MorePhrases(**dict(self.tasks)),
        )
