"""`lore status`: the parts of one page about now. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from formatters.errors import BrokenFormatter
from governor.budget import MemoryBudget
from governor.outlook import Outlook
from governor.readings import GpuReading, HostReading, Reading
from governor.readings import SensorSnapshot as Sensed
from governor.sizes import size
from orchestrator.codices.codices import Codices
from orchestrator.codices.state import pool_parts
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import EngineSnapshot, PoolState
from orchestrator.model.model_file import ModelFile

NO_DRIVER = "NVML Shared Library Not Found"  # a machine without a GPU has nothing wrong with it


def model_report(model: ModelFile, window: int | None) -> dict[str, Any]:
    return {
        "name": model.setting,
        "path": str(model.path),
        "notice": model.notice,
        "changed": model.changed(),
        "trained_context": model.shape.trained,
        "window": window,
    }


@dataclass(frozen=True)
class Prefill:
    """`codex` is '' for an identity alone. Tokens are None while a question computes it, not its codex's own prefill."""

    floor: str
    codex: str = ""
    tier: str | None = None
    generation: int | None = None
    done: int | None = None
    total: int | None = None


def engine_report(client: EngineClient, prefill: Prefill | None) -> dict[str, Any]:
    """The child as it is: its state, its device, what it does, its pools."""
    snapshot, info = client.snapshot, client.info
    return {
        "state": client.state.value,
        "reason": client.reason,
        "restarts": client.restarts,
        "pid": client.pid,
        "device": info.device if info else None,
        "gpu_layers": info.gpu_layers if info else None,
        "ranges": info.ranges if info else None,
        "kv_bytes": snapshot.kv_bytes,
        "answering": snapshot.running - snapshot.prefills,
        "prefills": snapshot.prefills,
        "prefill": asdict(prefill) if prefill else None,
        "pools": [pool_report(pool) for pool in snapshot.pools],
        "cache": dict(snapshot.counters),
    }


def pool_report(pool: PoolState) -> dict[str, Any]:
    """Cells in tokens: free + reserved + evictable + leased = size."""
    return dict(vars(pool))


def governor_report(outlook: Outlook) -> dict[str, Any]:
    budget = outlook.budget
    return {
        "level": outlook.level.value,
        "power": outlook.power.value,
        "pressure": outlook.pressure,
        "memory": budget.where if budget else None,
        "kv_budget_bytes": budget.kv if budget else None,
        "embedding_bytes": budget.embedding_bytes if budget else None,
        "cells": budget.cells if budget else None,
        "window": budget.window if budget else None,
        "planned": planned(budget) if budget else "",
        "unplanned": outlook.unplanned,
        "faults": [f"{one.sensor}: {one.message}" for one in outlook.snapshot.faults if one.message != NO_DRIVER],
        "gpus": [gpu.name for gpu in outlook.snapshot.gpus],
        "sensors": sensors_report(outlook.snapshot),
    }


def planned(budget: MemoryBudget) -> str:
    embedding = f", {size(budget.embedding_bytes)} for the embedding model" if budget.embedding_bytes else ""
    return f"{size(budget.kv)} of {budget.where} for KV{embedding}"


def sensors_report(snapshot: Sensed) -> dict[str, Any]:
    """Every reading as it is, None where it is unknown: what the levels are made of, and what is only there to be seen."""
    return {"gpus": [read(gpu) for gpu in snapshot.gpus], "host": read(snapshot.host)}


def read(readings: GpuReading | HostReading) -> dict[str, Any]:
    values = {name: one.value if isinstance(one, Reading) else one for name, one in vars(readings).items()}
    return {name: sorted(one) if isinstance(one, frozenset) else one for name, one in values.items()}


def queue_report(snapshot: EngineSnapshot) -> dict[str, int]:
    """Jobs of the engine: `running` ones are answered or have their prompt computed, a codex's floor among them."""
    return {"running": snapshot.running, "waiting": snapshot.waiting}


def plugins_report(failures: Sequence[BrokenFormatter]) -> list[str]:
    return [str(failure) for failure in failures]


def prefill_of(shelf: Codices, floor: str) -> Prefill | None:
    """None where nothing is computed: a floor without a name."""
    if not floor:
        return None
    codex = shelf.floors.codex_of(floor)
    standing = shelf.seen(codex)
    current = shelf.floors.of(codex)
    if (
        standing is None or current is None or current.name != floor
    ):  # a generation that grows beside the one that stands
        return Prefill(floor, codex)
    done, total = shelf.floors.progress(codex) or (None, None)
    return Prefill(floor, codex, standing.decision.coverage.value, standing.generation.number, done, total)


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
