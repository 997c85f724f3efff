"""The governor at work: sensors to levels and numbered grants, which the engine holds to and plans are made under.

The child reserves by compare-and-set on the grant's number. RAM counts where llama.cpp uses no GPU, unless the settings
name one: a card that nothing runs on says nothing about what fits.
"""

import asyncio
import logging
import os
from dataclasses import dataclass, replace
from typing import Protocol

from governor.budget import Demand, MemoryBudget, Ours, Outlook, why_scarce
from governor.embedding import EmbeddingCost, why_away
from governor.footprint import KvPlan, binding_bytes, bytes_per_token, working_bytes
from governor.model_shape import ModelShape
from governor.monitor import Reads, SensorSampler
from governor.offload import Offload, shares_of
from governor.pressure import Level
from governor.readings import GpuReading, pooled
from governor.readings import SensorSnapshot as Readings
from governor.settings import GovernorSettings
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import ChildState, EngineUnavailable
from orchestrator.engine.messages import Grant
from orchestrator.engine.model import ModelInfo
from orchestrator.engine.snapshot import EngineSnapshot, PoolState
from orchestrator.errors import LoreError, NotReady, OverBudget
from orchestrator.prompt.coverage import FloorRoom
from orchestrator.prompt.situation import Levels

log = logging.getLogger("lorekeep.governor")

AGAIN_SECONDS = 2.0  # after a fault
ROOM = "end programs that hold memory, raise governor.vram_limit, lower governor.margin, or choose a smaller model"


class MachineFollower(Protocol):
    """Who acts on what the machine reads. Called from one task, one call at a time."""

    async def changed(self) -> float | None:
        """After each outlook that differs, and again when as many seconds have passed as it returned. Not while the engine
        is away: what is free then says nothing of what fits when it is back. What it raises is logged, and it is called
        again."""

    def rest(self, why: str) -> None:
        """The embedding model leaves the memory for this reason; with "" it may come back."""

    def save_power(self, why: str) -> None:
        """Power is saved for this reason; with "" it is not any more."""

    def scarce(self, why: str, *, calm: bool) -> None:
        """Why the memory is critical by others' growth, "" where it is not; and whether the level is below high."""


@dataclass(frozen=True)
class ModelCosts:
    """What the model costs: its shape from the header and how its KV is laid out. `context`: a limit of the user's;
    `offload`: how it is split where there are several GPUs; `embedding`: the embedding model's cost, None without one."""

    shape: ModelShape
    plan: KvPlan
    context: int | None = None
    offload: Offload | None = None
    embedding: EmbeddingCost | None = None


@dataclass(frozen=True)
class Estimate:
    """Bytes of something that the model takes: as its header tells, and as llama.cpp allocated it."""

    what: str
    estimated: float
    real: float


class Machine:
    """Owns the sampler, counts what the engine holds, and sends the engine its grants."""

    def __init__(self, sensors: Reads, settings: GovernorSettings, costs: ModelCosts, client: EngineClient) -> None:
        self._seen = ModelSensors(sensors, costs.offload if settings.memory.gpu is None else None)
        self._settings = settings
        self._costs = costs
        self._sampler = SensorSampler(self._seen, settings)
        self._client = client
        self._info: ModelInfo | None = None
        self._measured: int | None = None  # tokens at which windows end, as measured
        self._widest: PoolState | None = None  # the pool with the most buffers; None before any was open
        self._saving = ""  # why power is saved, as told last
        self._others: int | None = None  # bytes of others, the least since the model was loaded
        self._tasks: list[asyncio.Task[None]] = []

    # -- life

    async def start(self, follower: MachineFollower) -> None:
        """Reads the sensors once, then keeps reading them."""
        self._report()
        await self._sampler.sample()
        self._tasks = [
            asyncio.create_task(self._sampler.run(), name="sensors"),
            asyncio.create_task(self._watch(follower), name="levels and grants"),
            asyncio.create_task(self._follow_engine(), name="what the engine holds"),
        ]

    async def loaded(self, info: ModelInfo, measured: int | None = None) -> None:
        """The model is loaded: its real figures replace the estimates, and it is known which memory counts. `measured`: the
        tokens at which its windows end."""
        self._info, self._measured = info, measured
        self._seen.cpu_only = info.device == "CPU" and self._settings.memory.gpu is None
        self._report()
        await self._sampler.sample()
        self._others = self.outlook.budget.others if self.outlook.budget is not None else None
        self._grant()

    async def look(self) -> None:
        """Reads the sensors now."""
        self._report()
        await self._sampler.sample()
        self._grant()

    def end_window_at(self, measured: int | None) -> None:
        """The tokens that the loaded model was measured to follow; None ends no window. The next grant has it."""
        self._measured = measured
        self._report(self._client.snapshot)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- what is now

    @property
    def outlook(self) -> Outlook:
        assert self._sampler.latest is not None, "the machine is read before it is asked"
        return self._sampler.latest

    @property
    def reading_age_s(self) -> float:
        age = self._sampler.age_s
        assert age is not None, "the machine is read before it is asked"
        return age

    @property
    def gpus(self) -> tuple[GpuReading, ...]:
        """Each by itself, as last read."""
        return self._seen.gpus

    @property
    def budget(self) -> MemoryBudget:
        """Raises NotReady where nothing can be planned."""
        found = self.outlook.budget
        if found is None:
            raise NotReady(f"memory cannot be planned: {self.outlook.unplanned}", "see `lore status`", retry_after=2.0)
        return found

    @property
    def levels(self) -> Levels:
        network = self.outlook.snapshot.host.network_up
        words = {True: "online", False: "offline", None: None}
        return Levels(self.outlook.level.value, self.outlook.power.value, words[network])

    @property
    def grant(self) -> Grant:
        budget = self.budget
        return Grant(budget.number, budget.cells, budget.window, self.outlook.power.prefill_share)

    @property
    def usable_grant(self) -> Grant:
        """The same for a question. Raises OverBudget where it grants nothing: no question is short enough."""
        if shortage := self.budget.shortage:
            raise OverBudget(f"no token can be held: {shortage}", ROOM)
        return self.grant

    @property
    def longest(self) -> int:
        """Tokens that one sequence may have, whatever was measured of the model."""
        return self.budget.longest

    @property
    def measured(self) -> int | None:
        """Tokens at which windows end, as measured."""
        return self._measured

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """How far off the estimates were that the model was loaded with; nothing before it is loaded."""
        if self._info is None or self.serves_elsewhere:
            return ()
        shape, plan, pool = self._costs.shape, self._costs.plan, self._widest
        loaded = (
            Estimate("weights", shape.weights, self._info.weight_bytes),
            Estimate("a token of KV", bytes_per_token(shape, plan), self._info.kv_bytes_per_token),
        )
        if pool is None:
            return loaded
        return (*loaded, Estimate("buffers", working_bytes(shape, plan, pool.size), pool.buffers))

    @property
    def embedding_bytes(self) -> int:
        """Bytes of the memory that counts which the embedding model takes once it is loaded; 0 while it has to be away."""
        return self._embedding_bytes()[0]

    def room(self, identity: int) -> FloorRoom:
        """What a floor may take now, in tokens."""
        return FloorRoom(
            window=self.grant.window,
            identity=identity,
            kv_tokens=self.grant.cells,
            kv_bytes_per_token=self._info.kv_bytes_per_token if self._info else 0.0,
            kv_type=self._costs.plan.keys,
            trained=self._info.trained_context if self._info else 0,
            bound=self.budget.bound,
        )

    def busy(self, on: bool) -> None:
        self._sampler.busy(on)

    # -- what the sampler gets, and who gets what it gives

    def _report(self, snapshot: EngineSnapshot | None = None) -> None:
        """Reports our own demand to the sampler."""
        if self.serves_elsewhere:
            context = self._info.trained_context if self._info is not None else 0
            self._sampler.report(
                Ours(served=context, measured=self._measured, queue=self._client.snapshot.pressure, away=self._is_away)
            )
            return
        pids = {os.getpid()} | ({self._client.pid} if self._client.pid is not None else set())
        pools = snapshot.pools if snapshot else ()
        if pools:  # the most that was seen: a pool may be closed, and opened again with more cells
            known = (self._widest, *pools) if self._widest else pools
            self._widest = max(known, key=lambda pool: pool.buffers)
        here, elsewhere = self._embedding_bytes()
        up = self._client.embedding.holds > 0
        binding = binding_bytes(self._costs.shape)
        bound = binding if self._client.snapshot.binds else 0
        weights = self._info.weight_bytes if self._info and self._client.pid is not None else 0
        mapped = self._info.mapped_bytes if weights and self._info else 0
        held = weights + sum(pool.bytes + pool.buffers for pool in pools) + here * up + bound * (not self._on_gpu)
        demand = Demand(
            self._costs.shape,
            self._costs.plan,
            gpu_layers=self._layers(),
            buffers=self._widest.buffers if self._widest else None,
            embedding_bytes=here,
            context=self._costs.context,
            measured=self._measured,
        )
        beside, has = elsewhere + binding, elsewhere * up + bound
        self._sampler.report(Ours(frozenset(pids), held, mapped, demand, beside, has, self._is_away))

    async def _follow_engine(self) -> None:
        while True:
            self._report(await self._client.next_snapshot())

    def _embedding_bytes(self) -> tuple[int, int]:
        """Bytes of the embedding model in the memory that counts, and in RAM beside it; none while it has to be away."""
        cost = self._costs.embedding
        if cost is None or self._client.embedding.resting:
            return 0, 0
        on_gpu = self._on_gpu
        return cost.here(on_gpu=on_gpu), cost.elsewhere(on_gpu=on_gpu)

    @property
    def serves_elsewhere(self) -> bool:
        """Whether servers compute: no memory here counts."""
        return self._client.spec.remote is not None

    @property
    def _is_away(self) -> bool:
        return self._client.state is ChildState.PAUSED

    @property
    def _on_gpu(self) -> bool:
        return self._info is not None and self._info.device != "CPU"

    def _layers(self) -> int | None:
        """Layers on the GPU that counts, once it is known. One that the settings name without its being used counts for
        all of them: what does not fit there must not be looked for elsewhere."""
        if self._info is None:
            return None
        return self._info.gpu_layers if self._info.device != "CPU" else len(self._costs.shape.layers) + 1

    async def _watch(self, follower: MachineFollower) -> None:
        seen, again = self.outlook.number, None
        while True:
            seen = await self._next(seen, again)
            enough = self._make_room(follower)
            self._save_power(follower)
            self._grant()
            if enough:
                follower.scarce(self._why_scarce(), calm=self.outlook.level.rank < Level.HIGH.rank)
            again = AGAIN_SECONDS if self._is_away else await _called(follower)

    def _make_room(self, follower: MachineFollower) -> bool:
        """The embedding model leaves before anything that somebody waits for has to, and comes back when it may. False
        where it has: the next outlook says whether that is enough."""
        if self._costs.embedding is None:
            return True
        why = why_away(self.outlook, self._costs.embedding, on_gpu=self._on_gpu)
        if bool(why) == bool(self._client.embedding.resting):
            return True
        log.info("%s", why or "the embedding model may be loaded again")
        follower.rest(why)
        self._report(self._client.snapshot)
        return not why

    def _why_scarce(self) -> str:
        """Before the model was loaded others have not grown: it was fitted into what they left."""
        budget = self.outlook.budget
        if self._info is None or budget is None:
            return ""
        self._others = budget.others if self._others is None else min(self._others, budget.others)
        return why_scarce(self.outlook, self._others, self._settings.pressure)

    def _save_power(self, follower: MachineFollower) -> None:
        why = self.outlook.power.why_saving
        if why != self._saving:
            log.info("%s", f"power is saved: {why}" if why else "power is not saved any more")
            self._saving = why
            follower.save_power(why)

    async def _next(self, seen: int, again: float | None) -> int:
        """The number of the next outlook; the last one's when `again` seconds pass before it."""
        try:
            async with asyncio.timeout(again):
                return (await self._sampler.changed(seen)).number
        except TimeoutError:
            return seen

    def _grant(self) -> None:
        """What the engine may hold: measured limits are for plans."""
        if self.outlook.budget is not None:
            self._client.grant(replace(self.grant, window=self.longest))


async def _called(follower: MachineFollower) -> float | None:
    """Seconds until it wants to be called again. A fault must not end the watch: nobody would hear of memory any more."""
    try:
        return await follower.changed()
    except (EngineUnavailable, LoreError) as fault:
        log.warning("codices do not follow the machine now: %s", fault)
    except Exception:  # a damaged catalog, a full disk, or a fault of ours
        log.warning("codices do not follow the machine now", exc_info=True)
    return AGAIN_SECONDS


class ModelSensors:
    """The sensors as the model meets them: no GPU while nothing of ours runs on one, several as one where it is split.

    What each takes is settled as llama.cpp does it, by what was free there before it was loaded.
    """

    def __init__(self, sensors: Reads, offload: Offload | None) -> None:
        self.cpu_only = False
        self.gpus: tuple[GpuReading, ...] = ()
        self._sensors = sensors
        self._offload = offload
        self._shares: tuple[float, ...] = ()

    def read(self, own_pids: frozenset[int], now: float) -> Readings:
        readings = self._sensors.read(own_pids, now)
        self.gpus = readings.gpus
        if self.cpu_only:
            return replace(readings, gpus=())
        if self._offload is None or len(readings.gpus) < 2:
            return readings
        if len(self._shares) != len(readings.gpus):
            self._shares = shares_of(self._offload, [gpu.free or 0 for gpu in readings.gpus])
        return replace(readings, gpus=(pooled(readings.gpus, self._shares),))
