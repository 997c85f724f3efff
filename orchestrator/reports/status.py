"""What the daemon reports of itself: `lore status`, the models at hand, and events. Knows no question."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from governor.budget import MemoryBudget, Outlook
from governor.footprint import KvPlan
from governor.offload import Offload
from governor.readings import SensorSnapshot as Sensed
from governor.readings import memory_of
from governor.settings import GovernorSettings, size
from orchestrator.codices.floors import Floors
from orchestrator.codices.resident import ResidentCodices
from orchestrator.codices.state import pool_parts
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import ChildState, EngineUnavailable
from orchestrator.engine.snapshot import STEP_BOUNDS_S, CacheContent, TicketState
from orchestrator.machine.machine import Machine
from orchestrator.machine.yielding import Yielding
from orchestrator.model.conditions import Gpu, LoadingConditions
from orchestrator.model.kv_losses import KvLosses, measured
from orchestrator.model.model_file import AtHand, ModelFile, at_hand, header_of
from orchestrator.reports import models
from orchestrator.reports.cache import cache_report
from orchestrator.wire.answers import KvLoss
from orchestrator.wire.base import ReplyShape
from orchestrator.wire.models import KvLossEvent, KvLossProgress, ModelReport, ModelRow
from orchestrator.wire.places import KeySource
from orchestrator.wire.replies import CodexReport, LoadReport
from orchestrator.wire.status import (
    ArchivePlace,
    AwayEvent,
    AwayReport,
    BranchReport,
    CacheReply,
    CacheReport,
    EmbeddingModel,
    EngineReport,
    EngineStateEvent,
    EngineWork,
    EstimateRow,
    EvictedEvent,
    GovernorReport,
    GpuSensors,
    HostSensors,
    LevelEvent,
    LoadReportedEvent,
    NowEvent,
    PoolEvent,
    PoolReport,
    PrefillEvent,
    PrefillReport,
    QueueReport,
    RunningModel,
    SensorsReport,
    ServerReport,
    StatusReply,
    StepReport,
    TicketReport,
)

NO_DRIVER = "NVML Shared Library Not Found"  # a machine without a GPU has nothing wrong with it
EVENT_CLOCK_S = 0.5
LOOK_S = EVENT_CLOCK_S / 10  # that a look may be old


@dataclass(frozen=True)
class About:
    """`folder` is where models lie; `prefill` tells what is computed by the name of its floor; `loads` the last load of
    each codex; `losses` what types of KV change, as measured; `plugins` gives those that could not be used; `gate_fault`:
    why the rules of relevance could not be; `encrypt`: where the key of what is kept is; `archive`: the object storage that
    the archive is on, without asking it."""

    model: ModelFile
    machine: Machine
    client: EngineClient
    yielding: Yielding
    folder: Path
    conditions: LoadingConditions
    governor: GovernorSettings
    version: str
    prefill: Callable[[str], PrefillReport | None]
    loads: Callable[[], tuple[LoadReport, ...]]
    losses: KvLosses
    plugins: Callable[[], tuple[str, ...]]
    gate_fault: str = ""
    encrypt: KeySource = "off"
    archive: Callable[[], ArchivePlace | None] = lambda: None
    looks: "SharedLooks" = field(default_factory=lambda: SharedLooks())

    def status(self, codices: Sequence[CodexReport], sessions: int, embedding: EmbeddingModel) -> StatusReply:
        outlook, snapshot = self.machine.outlook, self.client.snapshot
        window = self.machine.grant.window if outlook.budget else None
        return StatusReply(
            version=self.version,
            model=model_report(self.model, window),
            engine=engine_report(self.client, self.prefill(snapshot.prefilling)),
            governor=governor_report(outlook, self.machine, self.conditions.loaded),
            codices=tuple(codices),
            sessions=sessions,
            queue=QueueReport(running=snapshot.running, waiting=snapshot.waiting),
            plugins=self.plugins(),
            relevance=self.gate_fault,
            encrypted=self.encrypt,
            embedding=embedding,
            archive=self.archive(),
            paused=self.away(),
        )

    def away(self) -> AwayReport | None:
        """Why the model is out of the memory, or about to leave it."""
        away = self.yielding.away
        return None if away is None else AwayReport.of(away, gone=self.yielding.gone)

    def cache(self) -> CacheReply:
        ranges = self.client.info is None or self.client.info.ranges
        away = "" if self.client.state is ChildState.READY else self.client.reason or self.client.state.value
        return cache_report(self.client.snapshot, on_gpu=self._on_gpu(), ranges=ranges, away=away)

    async def work(self, codex_of: Callable[[str], str]) -> EngineWork:
        """`codex_of`: of a floor, by its name."""
        info = self.client.info
        try:
            found = await self.client.inspect()
        except EngineUnavailable:  # it ends just now
            found = None
        return EngineWork(
            weight_bytes=info.weight_bytes if info is not None and found is not None else None,
            prompt_tokens=int(self.client.snapshot.counters.get("prompt_tokens", 0)),
            tickets=tuple(ticket_report(one, codex_of) for one in found.tickets) if found else (),
            caches=tuple(map(cache_content, found.caches)) if found else (),
        )

    # -- models

    async def models(self) -> list[ModelRow]:
        """All at hand, the loaded one first. Reads every file's header."""
        here = self._conditions()
        return await asyncio.to_thread(
            lambda: [models.row(one, header_of(one), here, loaded=one.path == self.model.path) for one in self._known()]
        )

    async def one_model(self, name: str, *, anywhere: bool = False) -> ModelReport:
        """Everything about one; `anywhere`: also of a file outside the models folder, by its full path. Raises NotFound."""
        found = models.model_named(await asyncio.to_thread(self._known), name, anywhere=anywhere)
        here, loaded = self._conditions(), found.path == self.model.path
        return await asyncio.to_thread(
            lambda: models.described(found, header_of(found), here, self.losses, loaded=loaded)
        )

    def kv(self) -> tuple[str, KvLoss | None]:
        """The type of values that the model has, and what it changes where that was measured. Looks at a small file."""
        plan = self._plan
        return plan.values, self.losses.of(self.model.path, self.model.shape).get(plan.values)

    def measured_kv(self, codex: str, ids: bytes) -> AsyncIterator[KvLossProgress | KvLossEvent]:
        return measured(self.client, self.losses, self.model, self._plan, codex, ids)

    @property
    def _plan(self) -> KvPlan:
        return (self.conditions.loaded or self.conditions.offload).plan

    def _conditions(self) -> LoadingConditions:
        outlook, info = self.machine.outlook, self.client.info
        memory = memory_of(outlook.snapshot, self.governor.memory.gpu)
        held = info.weight_bytes - info.mapped_bytes + self.client.snapshot.kv_bytes if info else 0
        free = outlook.snapshot.host.ram_available or 0
        embedding = self.machine.embedding_bytes
        held += embedding if self.client.embedding.holds else 0
        if memory is not None:
            memory = replace(memory, own=max(memory.own or 0, held))
        gpus = tuple(Gpu(gpu.name, gpu.free or 0) for gpu in self.machine.gpus) if self._on_gpu() else ()
        return replace(
            self.conditions,
            memory=memory,
            limit=outlook.limit,
            host_free=free,
            embedding_bytes=embedding,
            gpus=gpus,
            measured=self.machine.measured,
        )

    def _known(self) -> tuple[AtHand, ...]:
        own = None if self.client.spec.remote is not None else AtHand(self.model.setting, self.model.path)
        return at_hand(self.folder, own)

    def _on_gpu(self) -> bool:
        return self.client.info is not None and self.client.info.device != "CPU"

    # -- what happens

    async def events(self, over: asyncio.Event) -> AsyncIterator[ReplyShape]:
        """What changes from now on, looked at twice a second, until it is over; the first event is how things stand."""
        clock = asyncio.get_running_loop().time
        last, before = self.looks.after(clock(), clock(), self._now)
        yield before
        while not over.is_set():
            await asyncio.sleep(EVENT_CLOCK_S - clock() % EVENT_CLOCK_S)  # all wake at once, and one looks for all
            last, after = self.looks.after(last, clock(), self._now)
            if after is not before:
                for event in events_between(before, after):
                    yield event
            before = after

    def _now(self) -> NowEvent:
        """What is looked at. Tokens and segments count up from the engine's start."""
        outlook, snapshot = self.machine.outlook, self.client.snapshot
        counted = snapshot.counters
        return NowEvent(
            event="now",
            level=outlook.level.value,
            power=outlook.power.value,
            engine=self.client.state.value,
            prefill=self.prefill(snapshot.prefilling),
            computed=int(counted.get("computed_tokens", 0)),
            pools=tuple(pool.name for pool in snapshot.pools),
            evicted_tokens=int(counted.get("evicted_tokens", 0)),
            evicted_segments=int(counted.get("tier_disk_evicted", 0)),
            away=self.away(),
            loads=self.loads(),
        )


class SharedLooks:
    """One look serves all who follow events at about the same moment: two dozen dashboards look as often as one does."""

    def __init__(self) -> None:
        self._at = float("-inf")
        self._found: NowEvent | None = None

    def after(self, last: float, moment: float, look: Callable[[], NowEvent]) -> tuple[float, NowEvent]:
        """A look made after `last` and at most LOOK_S before `moment`, and when it was; seconds of one clock."""
        if self._found is None or self._at <= last or moment - self._at > LOOK_S:
            self._at, self._found = moment, look()
        return self._at, self._found


def model_report(model: ModelFile, window: int | None) -> RunningModel:
    return RunningModel(
        name=model.setting,
        path=str(model.path) if model.states else "",
        notice=model.notice,
        changed=model.changed(),
        trained_context=model.shape.trained,
        window=window,
    )


def engine_report(client: EngineClient, prefill: PrefillReport | None) -> EngineReport:
    """The child as it is: its state, its device, what it does, its pools."""
    snapshot, info = client.snapshot, client.info
    return EngineReport.of(
        client,
        device=info.device if info else None,
        gpu_layers=info.gpu_layers if info else None,
        ranges=info.ranges if info else None,
        kv_bytes=snapshot.kv_bytes,
        prefill_share=snapshot.prefill_share,
        answering=snapshot.running - snapshot.prefills,
        prefills=snapshot.prefills,
        prefill=prefill,
        pools=tuple(PoolReport.of(pool) for pool in snapshot.pools),
        cache=dict(snapshot.counters),
        steps=StepReport.of(snapshot.step_times, bounds=STEP_BOUNDS_S),
        servers=tuple(ServerReport.of(one) for one in snapshot.servers),
    )


def ticket_report(ticket: TicketState, codex_of: Callable[[str], str]) -> TicketReport:
    return TicketReport.of(ticket, codex=codex_of(ticket.floor))


def cache_content(cache: CacheContent) -> CacheReport:
    return CacheReport.of(cache, branches=tuple(BranchReport.of(one) for one in cache.branches))


def governor_report(outlook: Outlook, machine: Machine, loaded: Offload | None) -> GovernorReport:
    """`loaded`: how the model was."""
    budget = outlook.budget
    here = budget is not None and not machine.serves_elsewhere
    return GovernorReport(
        level=outlook.level.value,
        power=outlook.power.value,
        saving=outlook.power.why_saving,
        pressure=outlook.pressure,
        memory=budget.where if budget else None,
        fixed_bytes=budget.fixed if budget and here else None,
        kv_budget_bytes=budget.kv if budget and here else None,
        embedding_bytes=budget.embedding_bytes if budget and here else None,
        cells=budget.cells if budget else None,
        window=budget.window if budget else None,
        bound=budget.bound.value if budget else None,
        bound_reason=budget.reason if budget else "",
        kv_type=" and ".join(dict.fromkeys((loaded.plan.keys, loaded.plan.values))) if loaded and here else None,
        kv_reason=loaded.kv_reason if loaded else "",
        planned=planned(budget) if budget and here else "",
        unplanned=outlook.unplanned,
        faults=tuple(f"{one.sensor}: {one.message}" for one in outlook.snapshot.faults if one.message != NO_DRIVER),
        gpus=tuple(gpu.name for gpu in outlook.snapshot.gpus),
        sensors=sensors_report(outlook.snapshot, machine.reading_age_s),
        estimates=tuple(EstimateRow.of(one) for one in machine.estimates),
    )


def planned(budget: MemoryBudget) -> str:
    embedding = f", {size(budget.embedding_bytes)} for the embedding model" if budget.embedding_bytes else ""
    return f"{size(budget.kv)} of {budget.where} for KV{embedding}"


def sensors_report(snapshot: Sensed, age_s: float) -> SensorsReport:
    """Every reading as it is, None where it is unknown: what the levels are made of, and what is only there to be seen."""
    gpus = (GpuSensors.of(gpu, clock_reasons=gpu.clock_reasons and sorted(gpu.clock_reasons)) for gpu in snapshot.gpus)
    return SensorsReport(age_s=round(age_s, 3), gpus=tuple(gpus), host=HostSensors.of(snapshot.host))


def prefill_of(codices: ResidentCodices, floors: Floors, floor: str) -> PrefillReport | None:
    """None where nothing is computed: a floor without a name. Tokens are known of a codex's own prefill alone."""
    if not floor:
        return None
    codex = floors.codex_of(floor)
    state, current = codices.get(codex), floors.of(codex)
    if state is None or current is None or current.name != floor:  # it is computed beside the resident one
        return PrefillReport(floor=floor, codex=codex, tier=None, generation=None, done=None, total=None)
    done, total = floors.progress(codex) or (None, None)
    return PrefillReport(
        floor=floor,
        codex=codex,
        tier=state.decision.coverage.value,
        generation=state.generation.number,
        done=done,
        total=total,
    )


def events_between(before: NowEvent, after: NowEvent) -> list[ReplyShape]:
    """In the order of what concerns most: levels, the engine, pools, evictions, loads, prefill."""
    events: list[ReplyShape] = []
    if (before.level, before.power) != (after.level, after.power):
        events.append(LevelEvent(event="level", level=after.level, power=after.power))
    if before.engine != after.engine:
        events.append(EngineStateEvent(event="engine", state=after.engine))
    if before.away != after.away:
        events.append(away_event(after.away))
    events += [pool_event("opened", name) for name in after.pools if name not in before.pools]
    events += [pool_event("closed", name) for name in before.pools if name not in after.pools]
    # A child that was started again counts from nothing.
    tokens = max(0, after.evicted_tokens - before.evicted_tokens)
    segments = max(0, after.evicted_segments - before.evicted_segments)
    if tokens or segments:
        events.append(EvictedEvent(event="evicted", tokens=tokens, segments=segments))
    events += [LoadReportedEvent(event="load", **dict(one)) for one in after.loads if one not in before.loads]
    if after.prefill is not None and (after.prefill, after.computed) != (before.prefill, before.computed):
        events.append(PrefillEvent(event="prefill", computed=after.computed, **dict(after.prefill)))
    return events


def away_event(away: AwayReport | None, name: str = "") -> AwayEvent:
    """`name`: of the pause that is followed."""
    event: Literal["leaving", "away", "back"] = "back" if away is None else "away" if away.gone else "leaving"
    return AwayEvent(event=event, away=away, name=name)


def pool_event(event: Literal["opened", "closed"], name: str) -> PoolEvent:
    """A pool holds the floors and conversations of one codex under one version of an identity."""
    identity, _, codex = pool_parts(name)
    return PoolEvent(event=event, pool=name, identity=identity, codex=codex)
