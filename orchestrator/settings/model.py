"""Every setting: default, unit, range and one line of help. Frozen slices; a part receives its own and never the whole.

Knows no file, variable or option: `sources` reads those.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from orchestrator.settings.units import Bytes, BytesOrShare, Limit, Seconds

GIB = 1024**3
MIB = 1024**2

KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
Tier = Literal["auto", "full", "skeleton+hot", "map", "none"]
SCOPE = re.compile(r"(query|search|codex:read|codex:write|memory:read|memory:write|tools:[A-Za-z0-9_.*-]+|admin)\Z")


class Slice(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def unit(name: str) -> dict[str, Any]:
    return {"unit": name}


class ServeSettings(Slice):
    """The socket and what may come in through it."""

    socket: str = Field("", description="the daemon's Unix socket; empty: the runtime folder's lore.sock")
    socket_group: str = Field("", description="a group that may connect as well (mode 0660 instead of 0600)")
    tcp: str = Field("", description="HOST:PORT to listen on as well, with tokens; empty: no TCP")
    max_body: Bytes = Field(
        32 * MIB, ge=1024, le=GIB, description="largest body of a request", json_schema_extra=unit("bytes")
    )
    shutdown_grace: Seconds = Field(
        10.0, ge=0, le=600, description="how long running answers may end by themselves", json_schema_extra=unit("s")
    )


class ModelSettings(Slice):
    """Which model, and how llama.cpp loads it."""

    path: str = Field("", description="a GGUF file or builtin:quoter, builtin:noise-s, -m; empty: builtin:quoter")
    context: int | Literal["auto"] = Field(
        "auto", description="longest prompt and answer together; auto: what fits", json_schema_extra=unit("tokens")
    )
    kv_type_k: KvType = Field("f16", description="storage type of cached keys")
    kv_type_v: KvType = Field("f16", description="storage type of cached values")
    gpu_layers: int = Field(-1, ge=-1, le=10_000, description="layers on the GPU; -1: as many as fit")
    flash_attention: bool = Field(True, description="llama.cpp's flash attention")
    threads: int = Field(0, ge=0, le=1024, description="CPU threads; 0: as measured best")
    batch: int = Field(
        512, ge=32, le=65_536, description="prompt tokens computed in one step", json_schema_extra=unit("tokens")
    )
    sequences: int = Field(32, ge=2, le=256, description="conversations whose KV may stand at once")

    @field_validator("context")
    @classmethod
    def long_enough(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 512:
            raise ValueError("is below 512 tokens; use auto or more")
        return value


class GovernorSettings(Slice):
    """How much of the machine may be used."""

    gpu: str = Field("", description="index or UUID of the GPU; empty: the first of CUDA_VISIBLE_DEVICES")
    vram_limit: BytesOrShare = Field(
        Limit(share=0.9),
        description="most VRAM to use: bytes, or a share of what was free at start",
        json_schema_extra=unit("bytes or %"),
    )
    margin: Bytes = Field(
        512 * MIB, ge=0, description="memory that is never planned away (at least 5 %)", json_schema_extra=unit("bytes")
    )
    idle_unload: Seconds = Field(
        1800.0,
        ge=0,
        description="unload the model after this time without questions; 0: never",
        json_schema_extra=unit("s"),
    )
    sensor_busy: Seconds = Field(
        0.25, ge=0.05, le=60, description="time between readings while answering", json_schema_extra=unit("s")
    )
    sensor_idle: Seconds = Field(
        2.0, ge=0.1, le=600, description="time between readings when idle", json_schema_extra=unit("s")
    )
    turns: int = Field(20, ge=1, le=10_000, description="turns of a conversation kept word for word")


class CodexSettings(Slice):
    """Which files belong to a codex, and how it follows them."""

    max_file: Bytes = Field(
        MIB, ge=1024, le=GIB, description="larger files are skipped, unread", json_schema_extra=unit("bytes")
    )
    max_files: int = Field(
        500_000, ge=1, description="a load of more files is refused", json_schema_extra=unit("files")
    )
    skip_vendored: bool = Field(True, description="skip third-party trees and minified copies")
    skip_lock_files: bool = Field(True, description="skip files written by package managers")
    hidden: bool = Field(True, description="take dot-files that git tracks")
    secrets: bool = Field(False, description="load .env, keys and files in which a key was found")
    watch: bool = Field(True, description="follow changes on disk")
    readers: int = Field(4, ge=1, le=64, description="threads that read and hash files")


class StrategySettings(Slice):
    """How a codex reaches the model."""

    tier: Tier = Field("auto", description="what of a codex stands in the cached prefix")
    window_share: float = Field(0.7, gt=0, le=1, description="most of the window that a codex may take")
    overhead: float = Field(0.25, ge=0, lt=1, description="share of the window kept for system, turns and output")
    evidence: int = Field(
        12, ge=1, le=200, description="passages fetched for a question", json_schema_extra=unit("passages")
    )


class StorageSettings(Slice):
    """What may be kept, and for how long."""

    checkpoint_disk: BytesOrShare = Field(
        Limit(bytes=50 * 10**9), description="checkpoints on disk", json_schema_extra=unit("bytes or %")
    )
    checkpoint_disk_share: float = Field(0.2, gt=0, le=1, description="and never more than this share of what is free")
    checkpoint_ram: BytesOrShare = Field(
        Limit(share=0.25), description="checkpoints in RAM, of what is available", json_schema_extra=unit("bytes or %")
    )
    trace_days: int = Field(
        30, ge=0, le=36_500, description="traces are kept this long", json_schema_extra=unit("days")
    )
    trace_size: Bytes = Field(
        500 * 10**6, ge=0, description="and never more than this", json_schema_extra=unit("bytes")
    )


class LogSettings(Slice):
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is logged")


class SigilRule(Slice):
    """Who carries a sigil, by user or group (names or numbers), and what it permits."""

    users: tuple[str | int, ...] = Field((), description="users that carry it")
    groups: tuple[str | int, ...] = Field((), description="groups whose members carry it")
    scopes: tuple[str, ...] = Field((), description="what it permits")

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
    model: ModelSettings = ModelSettings()
    governor: GovernorSettings = GovernorSettings()
    codex: CodexSettings = CodexSettings()
    strategy: StrategySettings = StrategySettings()
    storage: StorageSettings = StorageSettings()
    log: LogSettings = LogSettings()
    sigils: dict[str, SigilRule] = Field(default_factory=dict)
    tokens: dict[str, TokenRule] = Field(default_factory=dict)
