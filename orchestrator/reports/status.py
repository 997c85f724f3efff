"""`lore status`: the parts of one page about now. Pure."""

from typing import Literal

from governor.budget import MemoryBudget, Outlook
from governor.readings import GpuReading
from governor.readings import SensorSnapshot as Sensed
from governor.settings import size
from orchestrator.codices.codices import Codices
from orchestrator.codices.state import pool_parts
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import EngineSnapshot
from orchestrator.model.model_file import ModelFile
from orchestrator.wire.shapes import ReplyShape
from orchestrator.wire.status import (
    EngineReport,
    EngineStateEvent,
    EvictedEvent,
    GovernorReport,
    GpuSensors,
    HostSensors,
    LevelEvent,
    NowEvent,
    PoolEvent,
    PoolReport,
    PrefillEvent,
    PrefillReport,
    QueueReport,
    RunningModel,
    SensorsReport,
)

NO_DRIVER = "NVML Shared Library Not Found"  # a machine without a GPU has nothing wrong with it


def model_report(model: ModelFile, window: int | None) -> RunningModel:
    return RunningModel(
        name=model.setting,
        path=str(model.path),
        notice=model.notice,
        changed=model.changed(),
        trained_context=model.shape.trained,
        window=window,
    )


def engine_report(client: EngineClient, prefill: PrefillReport | None) -> EngineReport:
    """The child as it is: its state, its device, what it does, its pools."""
    snapshot, info = client.snapshot, client.info
    return EngineReport(
        state=client.state.value,
        reason=client.reason,
        restarts=client.restarts,
        pid=client.pid,
        device=info.device if info else None,
        gpu_layers=info.gpu_layers if info else None,
        ranges=info.ranges if info else None,
        kv_bytes=snapshot.kv_bytes,
        answering=snapshot.running - snapshot.prefills,
        prefills=snapshot.prefills,
        prefill=prefill,
        pools=tuple(PoolReport(**vars(pool)) for pool in snapshot.pools),
        cache=dict(snapshot.counters),
    )


def governor_report(outlook: Outlook) -> GovernorReport:
    budget = outlook.budget
    return GovernorReport(
        level=outlook.level.value,
        power=outlook.power.value,
        pressure=outlook.pressure,
        memory=budget.where if budget else None,
        kv_budget_bytes=budget.kv if budget else None,
        embedding_bytes=budget.embedding_bytes if budget else None,
        cells=budget.cells if budget else None,
        window=budget.window if budget else None,
        planned=planned(budget) if budget else "",
        unplanned=outlook.unplanned,
        faults=tuple(f"{one.sensor}: {one.message}" for one in outlook.snapshot.faults if one.message != NO_DRIVER),
        gpus=tuple(gpu.name for gpu in outlook.snapshot.gpus),
        sensors=sensors_report(outlook.snapshot),
    )


def planned(budget: MemoryBudget) -> str:
    embedding = f", {size(budget.embedding_bytes)} for the embedding model" if budget.embedding_bytes else ""
    return f"{size(budget.kv)} of {budget.where} for KV{embedding}"


def sensors_report(snapshot: Sensed) -> SensorsReport:
    """Every reading as it is, None where it is unknown: what the levels are made of, and what is only there to be seen."""
    return SensorsReport(
        gpus=tuple(gpu_sensors(gpu) for gpu in snapshot.gpus), host=HostSensors.model_validate(vars(snapshot.host))
    )


def gpu_sensors(gpu: GpuReading) -> GpuSensors:
    reasons = None if gpu.clock_reasons is None else sorted(gpu.clock_reasons)
    return GpuSensors.model_validate({**vars(gpu), "used": gpu.used, "others": gpu.others, "clock_reasons": reasons})


def queue_report(snapshot: EngineSnapshot) -> QueueReport:
    return QueueReport(running=snapshot.running, waiting=snapshot.waiting)


def prefill_of(shelf: Codices, floor: str) -> PrefillReport | None:
    """None where nothing is computed: a floor without a name. Tokens are known of a codex's own prefill alone."""
    if not floor:
        return None
    codex = shelf.floors.codex_of(floor)
    standing = shelf.seen(codex)
    current = shelf.floors.of(codex)
    if (
        standing is None or current is None or current.name != floor
    ):  # a generation that grows beside the one that stands
        return PrefillReport(floor=floor, codex=codex, tier=None, generation=None, done=None, total=None)
    done, total = shelf.floors.progress(codex) or (None, None)
    return PrefillReport(
        floor=floor,
        codex=codex,
        tier=standing.decision.coverage.value,
        generation=standing.generation.number,
        done=done,
        total=total,
    )


def now_event(outlook: Outlook, snapshot: EngineSnapshot, engine: str, prefill: PrefillReport | None) -> NowEvent:
    """What is looked at. Tokens and segments count up from the engine's start."""
    counted = snapshot.counters
    return NowEvent(
        event="now",
        level=outlook.level.value,
        power=outlook.power.value,
        engine=engine,
        prefill=prefill,
        computed=int(counted.get("computed_tokens", 0)),
        pools=tuple(pool.name for pool in snapshot.pools),
        evicted_tokens=int(counted.get("evicted_tokens", 0)),
        evicted_segments=int(counted.get("tier_disk_evicted", 0)),
    )


def events_between(before: NowEvent, after: NowEvent) -> list[ReplyShape]:
    """In the order of what concerns most: levels, the engine, pools, evictions, prefill."""
    events: list[ReplyShape] = []
    if (before.level, before.power) != (after.level, after.power):
        events.append(LevelEvent(event="level", level=after.level, power=after.power))
    if before.engine != after.engine:
        events.append(EngineStateEvent(event="engine", state=after.engine))
    events += [pool_event("opened", name) for name in after.pools if name not in before.pools]
    events += [pool_event("closed", name) for name in before.pools if name not in after.pools]
    # A child that was started again counts from nothing.
    tokens = max(0, after.evicted_tokens - before.evicted_tokens)
    segments = max(0, after.evicted_segments - before.evicted_segments)
    if tokens or segments:
        events.append(EvictedEvent(event="evicted", tokens=tokens, segments=segments))
    if after.prefill is not None and (after.prefill, after.computed) != (before.prefill, before.computed):
        events.append(PrefillEvent(event="prefill", computed=after.computed, **dict(after.prefill)))
    return events


def pool_event(event: Literal["opened", "closed"], name: str) -> PoolEvent:
    """A pool holds the floors and conversations of one codex under one version of an identity."""
    identity, _, codex = pool_parts(name)
    return PoolEvent(event=event, pool=name, identity=identity, codex=codex)
