"""What happened between two looks at the daemon, as events. Pure.

Looking twice and comparing needs no hook in what is looked at; what comes and goes between two looks is not told.
"""

from dataclasses import asdict, dataclass
from typing import Any

from governor.outlook import Outlook
from orchestrator.codices.state import pool_parts
from orchestrator.engine.messages import EngineSnapshot
from orchestrator.reports.prefill import Prefill


@dataclass(frozen=True)
class Picture:
    """What is looked at. Tokens and segments count up from the engine's start."""

    level: str
    power: str
    engine: str
    prefill: Prefill | None
    computed: int
    pools: tuple[str, ...]
    evicted_tokens: int
    evicted_segments: int

    @staticmethod
    def of(outlook: Outlook, snapshot: EngineSnapshot, engine: str, prefill: Prefill | None) -> "Picture":
        counted = snapshot.counters
        return Picture(
            outlook.level.value,
            outlook.power.value,
            engine,
            prefill,
            int(counted.get("computed_tokens", 0)),
            tuple(pool.name for pool in snapshot.pools),
            int(counted.get("evicted_tokens", 0)),
            int(counted.get("tier_ram_evicted", 0) + counted.get("tier_disk_evicted", 0)),
        )

    def report(self) -> dict[str, Any]:
        return asdict(self) | {"pools": list(self.pools)}


def events_between(before: Picture, after: Picture) -> list[dict[str, Any]]:
    """In the order of what concerns most: levels, the engine, pools, evictions, prefill."""
    events: list[dict[str, Any]] = []
    if (before.level, before.power) != (after.level, after.power):
        events.append({"event": "level", "level": after.level, "power": after.power})
    if before.engine != after.engine:
        events.append({"event": "engine", "state": after.engine})
    events += [{"event": "opened", **pool(name)} for name in after.pools if name not in before.pools]
    events += [{"event": "closed", **pool(name)} for name in before.pools if name not in after.pools]
    # A child that was started again counts from nothing.
    tokens = max(0, after.evicted_tokens - before.evicted_tokens)
    segments = max(0, after.evicted_segments - before.evicted_segments)
    if tokens or segments:
        events.append({"event": "evicted", "tokens": tokens, "segments": segments})
    if after.prefill is not None and (after.prefill, after.computed) != (before.prefill, before.computed):
        events.append({"event": "prefill", **asdict(after.prefill), "computed": after.computed})
    return events


def pool(name: str) -> dict[str, str]:
    """A pool holds the floors and conversations of one codex under one version of an identity."""
    identity, _, codex = pool_parts(name)
    return {"pool": name, "identity": identity, "codex": codex}
