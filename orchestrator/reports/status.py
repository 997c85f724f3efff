"""`lore status`: the parts of one page about now. Pure."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from formatters.errors import BrokenFormatter
from governor.budget import MemoryBudget
from governor.outlook import Outlook
from governor.readings import GpuReading, HostReading, Reading
from governor.readings import SensorSnapshot as Sensed
from governor.sizes import size
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import EngineSnapshot, PoolState
from orchestrator.model.model_file import ModelFile
from orchestrator.reports.prefill import Prefill

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
