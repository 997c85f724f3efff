"""Events of GET /v1/events."""

from typing import Literal

from pydantic import Field

from orchestrator.wire.shapes import Shape
from orchestrator.wire.status import PrefillReport


class NowEvent(Shape):
    """How things stand when somebody begins to listen."""

    event: Literal["now"] = Field(description="what kind of event")
    level: str = Field(description="of the memory")
    power: str = Field(description="normal, low-power or throttled")
    engine: str = Field(description="the engine's state")
    prefill: PrefillReport | None = Field(description="what is computed in advance")
    computed: int = Field(description="prompt tokens since the engine's start")
    pools: tuple[str, ...] = Field(description="IDENTITY@VERSION/CODEX of each")
    evicted_tokens: int = Field(description="since the engine's start")
    evicted_segments: int = Field(description="checkpoints, since the engine's start")


class LevelEvent(Shape):
    """Memory or power is at another level."""

    event: Literal["level"] = Field(description="what kind of event")
    level: str = Field(description="of the memory")
    power: str = Field(description="normal, low-power or throttled")


class EngineEvent(Shape):
    """The engine's process is in another state."""

    event: Literal["engine"] = Field(description="what kind of event")
    state: str = Field(description="the new one")


class PoolEvent(Shape):
    """A live cache was opened or closed."""

    event: Literal["opened", "closed"] = Field(description="which of the two")
    pool: str = Field(description="IDENTITY@VERSION/CODEX")
    identity: str = Field(description="the persona")
    codex: str = Field(description="empty: the bare model")


class EvictedEvent(Shape):
    """What was cached had to go."""

    event: Literal["evicted"] = Field(description="what kind of event")
    tokens: int = Field(description="of live caches")
    segments: int = Field(description="checkpoints")


class PrefillEvent(PrefillReport):
    """How far the computing in advance is."""

    event: Literal["prefill"] = Field(description="what kind of event")
    computed: int = Field(description="prompt tokens of all kinds since the engine's start")
