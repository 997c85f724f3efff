"""The governor's result at one moment, and how the next one follows from it: levels, and a numbered grant. Pure.

    snapshot -> memory that counts -> pressure -> levels
                                   \\-> budget: a new number only when the grant has changed

Where memory is unknown the last levels and grant are kept. Knows no clock and no sensor.

The grant is the memory that may be planned, from sensors, a model's costs and the settings:

    total |------------------------------ ceiling -------------------------|-- margin --|
          |-- others --|-- fixed: weights, buffers, embedding --|--- KV (hard) ---|
                                                                |-- KV planned -|
                       |------------------- limit: ours --------------------|

"Ours" is the memory of this program. The ceiling bounds all programs together: the total without the margin. The user's
limit bounds ours, whatever others hold: a share of the memory that others left free, or a size. KV is planned up to a share
of what both bounds leave beside what is fixed; the rest is for others' small growth. It is planned for at least the
smallest window where that memory exists. Growth of other programs shrinks the grant, never the reverse. Without a GPU, RAM
takes VRAM's place. Does not know open pools: the engine knows who holds what.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from governor.footprint import KvPlan, binding_bytes, cells_within, kv_cost, padded, working_bytes
from governor.model_shape import FootprintError, Layer, ModelShape
from governor.pressure import (
    START,
    Level,
    Power,
    PressureReading,
    PressureState,
    pressure_of,
    reading_of,
    step,
    thresholds,
)
from governor.readings import MemoryReading, SensorSnapshot, chosen_gpu, host_memory, memory_of
from governor.settings import (
    GovernorSettings,
    MemorySettings,
    PressureSettings,
    StoreSettings,
    limit_bytes,
    size,
)


class Bound(StrEnum):
    """What ends the window: of these limits the least, of equal ones the first."""

    TRAINED = "trained"  # what the model was trained for
    CONTEXT = "context"  # what the user allows
    MEASURED = "measured"  # what the model was measured to follow
    KV = "kv"  # KV in the memory that counts
    RAM = "ram"  # KV, in RAM, of the layers that are not on the GPU
    SERVER = "server"  # the context of the server that computes


@dataclass(frozen=True)
class Demand:
    """What to plan for.

    `gpu_layers`: layers (the output counts as one) that are on the GPU already; None lets them be chosen.
    `buffers`: bytes that a pool's computing was seen to take; they take the estimate's place. `overhead`: bytes of ours
    beside weights, buffers, KV and the embedding model, as the driver's context.
    `host_free`: RAM in bytes that may take the layers which the GPU cannot. `embedding_bytes` of that memory are the
    embedding model's, loaded or not: it may be needed at any time. `context`: tokens that a sequence may have at most,
    where less is wanted than the model was trained for; `measured`: those that the model was measured to follow.
    """

    shape: ModelShape
    plan: KvPlan
    gpu_layers: int | None = None
    buffers: int | None = None
    overhead: int = 0
    host_free: int = 0
    embedding_bytes: int = 0
    context: int | None = None
    measured: int | None = None


@dataclass(frozen=True)
class Ours:
    """The engine's own figures. `held`: bytes of the memory that counts, for drivers that do not report memory by process;
    `mapped`: of these, pages of files, which the kernel counts as free.

    `pids` are the daemon's and the engine child's. `demand` is None while no model is chosen. `away`: the engine has given
    its memory away. Where a GPU's memory counts, `elsewhere` are bytes of RAM that the embedding model and what binds
    answers to schemas will take; `elsewhere_held` those that they have.

    `served`: servers compute, so that no memory here counts: tokens of their context, 0 before one has told it. `measured`:
    of those, the tokens that the model was measured to follow; `queue`: their pressure, by what waits there.
    """

    pids: frozenset[int] = frozenset()
    held: int = 0
    mapped: int = 0
    demand: Demand | None = None
    elsewhere: int = 0
    elsewhere_held: int = 0
    away: bool = False
    served: int | None = None
    measured: int | None = None
    queue: float | None = None

    @property
    def used(self) -> int:
        """Bytes that are not free."""
        return self.held - self.mapped


@dataclass(frozen=True)
class MemoryBudget:
    """A grant. Bytes but for `cells` (the largest pool), `window` (one sequence's limit) and `longest` (the same without
    what was measured, as a further measurement needs it), in tokens.

    `bound` is what ends the window. `working`: buffers of one pool, and what else of ours is neither weights nor KV.
    `kv_hard` is what can be held at all, `kv` what is planned with. `gpu_layers` counts the output as one layer. `ours` is
    the most that weights, buffers, KV and the embedding model may take together.
    """

    number: int
    where: str
    total: int
    ceiling: int
    others: int
    ours: int
    weights: int
    working: int
    embedding_bytes: int
    kv_hard: int
    kv: int
    cells: int
    window: int
    gpu_layers: int
    layers: int
    bound: Bound
    longest: int

    @property
    def fixed(self) -> int:
        """Bytes of ours that are no KV."""
        return self.weights + self.working + self.embedding_bytes

    @property
    def reason(self) -> str:
        """Why the window is no longer, with the numbers."""
        if not self.cells and not self.kv_hard:
            return f"the model takes {size(self.fixed)} of {self.where} beside KV, and {size(self.ours)} may be ours"
        return {
            Bound.TRAINED: f"the model was trained for {self.window:,} tokens",
            Bound.CONTEXT: f"model.context allows {self.window:,} tokens",
            Bound.MEASURED: f"the model was measured to follow {self.window:,} tokens (lore doctor --context)",
            Bound.KV: f"{size(self.kv)} of {self.where} are left for KV",
            Bound.SERVER: f"the server's context is {self.window:,} tokens",
            Bound.RAM: f"RAM holds no more KV of the layers on the CPU ({self.gpu_layers} of {self.layers} on the GPU)",
        }[self.bound]

    @property
    def shortage(self) -> str:
        """Why not one token can be held, with the numbers; "" where some can."""
        return "" if self.cells else self.reason

    def granting_as(self, former: "MemoryBudget") -> "MemoryBudget":
        """What is known now, under the number and with the tokens of a former grant."""
        return replace(
            self,
            number=former.number,
            cells=former.cells,
            window=former.window,
            bound=former.bound,
            longest=former.longest,
        )

    def same_grant(self, other: "MemoryBudget", step: float) -> bool:
        """Whether a plan made with one holds with the other: cells and window differ by at most the share `step`."""
        mine, theirs = ((one.where, one.gpu_layers, one.layers, one.embedding_bytes) for one in (self, other))
        tokens = ((self.cells, other.cells), (self.window, other.window))
        return mine == theirs and all(abs(now - then) <= step * now for now, then in tokens)


NOT_OURS = (
    "total",
    "ceiling",
    "others",
    "ours",
    "weights",
    "working",
    "embedding_bytes",
    "kv_hard",
    "kv",
    "gpu_layers",
    "layers",
)


@dataclass(frozen=True)
class Outlook:
    """One moment. `number` grows when a level or the grant changes; `budget.number` only with the grant.

    `pressure` is None where memory is unknown; `limit` is the user's in bytes, fixed at the first reading, and raised by
    what is free while the engine is away, because a daemon may start beside the program that it was paused for; `overhead`:
    bytes of ours beside what the engine counts, as the driver's context, fixed once a pool is open.
    `unplanned` is the reason of a missing budget, "" when there is one. `ram` is the state of the host's memory, also where
    RAM is the memory that counts.
    """

    number: int
    snapshot: SensorSnapshot
    pressure: float | None
    state: PressureState
    limit: int | None
    budget: MemoryBudget | None
    unplanned: str
    ram: PressureState = START
    overhead: int | None = None

    @property
    def level(self) -> Level:
        return self.state.level

    @property
    def power(self) -> Power:
        return self.state.power


def next_outlook(before: Outlook | None, snapshot: SensorSnapshot, ours: Ours, settings: GovernorSettings) -> Outlook:
    """The outlook after a reading of the sensors; `before` is None at the first one."""
    before = before or Outlook(0, snapshot, None, START, None, None, "nothing has been read yet")
    if ours.served is not None:
        return _numbered(before, _served(before, snapshot, ours, settings))
    memory, limit, overhead = memory_of(snapshot, settings.memory.gpu), before.limit, before.overhead
    if memory is not None:
        overhead = _overhead(overhead, memory, ours)
        memory = replace(memory, own=max(memory.own or 0, ours.used))
        if limit is None or ours.away:  # memory that is ours counts as free
            limit = max(limit or 0, limit_bytes(settings.memory.vram_limit, memory.free + (memory.own or 0)))
    planned, unplanned = _planned(replace(before, limit=limit, overhead=overhead), memory, snapshot, ours, settings)
    pressure = None if memory is None else _pressure(memory, planned, ours, settings.memory)
    looked_at = reading_of(pressure, chosen_gpu(snapshot, settings.memory.gpu), snapshot.host, settings.pressure)
    state = step(before.state, looked_at, snapshot.at, settings.pressure)
    budget, step_of = planned, settings.memory.grant_step
    if planned is not None and before.budget is not None and before.budget.same_grant(planned, step_of):
        budget = planned.granting_as(before.budget)
    ram = state if memory is not None and memory.where == "RAM" else _ram(before, snapshot, ours, settings)
    return _numbered(before, Outlook(before.number, snapshot, pressure, state, limit, budget, unplanned, ram, overhead))


def _numbered(before: Outlook, after: Outlook) -> Outlook:
    return after if _reported(after) == _reported(before) else replace(after, number=before.number + 1)


def _served(before: Outlook, snapshot: SensorSnapshot, ours: Ours, settings: GovernorSettings) -> Outlook:
    """Where servers compute: the window is theirs, and the level is that of their queues."""
    state = step(before.state, PressureReading(ours.queue), snapshot.at, settings.pressure)
    if not ours.served:
        return Outlook(before.number, snapshot, ours.queue, state, None, None, "no server has told its context yet")
    number = 1 if before.budget is None else before.budget.number + 1
    budget = served_budget(number, ours.served, ours.measured)
    if before.budget is not None and before.budget.same_grant(budget, settings.memory.grant_step):
        budget = budget.granting_as(before.budget)
    return Outlook(before.number, snapshot, ours.queue, state, None, budget, "")


def served_budget(number: int, context: int, measured: int | None = None) -> MemoryBudget:
    """Of servers with a context of so many tokens, who keep their memory to themselves."""
    ends = measured is not None and measured < context
    return MemoryBudget(
        number=number,
        where="the server",
        **dict.fromkeys(NOT_OURS, 0),
        cells=context,
        window=measured if ends and measured is not None else context,
        bound=Bound.MEASURED if ends else Bound.SERVER,
        longest=context,
    )


def why_scarce(outlook: Outlook, others_before: int, settings: PressureSettings) -> str:
    """Why the memory is critical by others' growth, '' where it is not, or for other reasons: a limit that leaves no room,
    our own answers, a model that fills the card. `others_before`: bytes of others when they held least."""
    budget = outlook.budget
    if outlook.level is not Level.CRITICAL or budget is None or budget.others <= others_before:
        return ""
    least = thresholds(settings)[2] - settings.hysteresis
    if budget.others < least * (budget.ceiling - budget.fixed):
        return ""
    return f"others hold {size(budget.others)} of {budget.where}"


def _reported(outlook: Outlook) -> tuple[object, ...]:
    """The fields that callers act on, without figures that change with every reading."""
    faults = tuple(fault.sensor for fault in outlook.snapshot.faults)
    grant = None if outlook.budget is None else outlook.budget.number
    return outlook.level, outlook.power, grant, outlook.unplanned, faults, outlook.ram.level


def _ram(before: Outlook, snapshot: SensorSnapshot, ours: Ours, settings: GovernorSettings) -> PressureState:
    """The host's memory beside a GPU's, for which there is no limit."""
    memory, pressure = host_memory(snapshot), None
    if memory is not None:
        ceiling = ceiling_of(memory.total, settings.memory)
        pressure = pressure_of(replace(memory, own=ours.elsewhere_held), ceiling, 0)
    return step(before.ram, PressureReading(pressure), snapshot.at, settings.pressure)


def _pressure(memory: MemoryReading, planned: MemoryBudget | None, ours: Ours, settings: MemorySettings) -> float:
    """Where no KV can be planned, weights alone are known to be fixed."""
    weights = ours.demand.shape.weights if ours.demand is not None else 0
    fixed = planned.fixed if planned is not None else weights
    return pressure_of(memory, ceiling_of(memory.total, settings), fixed)


def _overhead(before: int | None, memory: MemoryReading, ours: Ours) -> int | None:
    """As the first pool opens. Before that, weights are ours that are not yet among what is held; later, drivers tell of
    pools sooner or later than the engine does."""
    if before is not None or ours.demand is None or ours.demand.buffers is None:
        return before
    return max(0, (memory.own or 0) - ours.used)


def _planned(
    before: Outlook, memory: MemoryReading | None, snapshot: SensorSnapshot, ours: Ours, settings: GovernorSettings
) -> tuple[MemoryBudget | None, str]:
    """What this reading alone would grant, or why it grants nothing."""
    if ours.demand is None:
        return None, "no model is chosen"
    if memory is None:
        gpu = settings.memory.gpu
        unread = "how much memory there is" if gpu is None else f"the memory of GPU {gpu}, which governor.gpu names,"
        return before.budget, "" if before.budget else f"{unread} cannot be read"
    number = 1 if before.budget is None else before.budget.number + 1
    free = max(0, (snapshot.host.ram_available or 0) - (ours.elsewhere - ours.elsewhere_held))
    demand = replace(ours.demand, host_free=free, overhead=before.overhead or 0)
    try:
        return plan_budget(number, memory, demand, settings.memory, before.limit), ""
    except FootprintError as error:
        return None, str(error)


# ---- the grant -------------------------------------------------------------------------------------------------------


def plan_budget(
    number: int,
    memory: MemoryReading,
    demand: Demand,
    settings: MemorySettings,
    limit: int | None,
) -> MemoryBudget:
    """The grant of that `number`. `limit`: the most that the user lets us hold, in bytes (`limit_bytes` at the start).

    FootprintError when the architecture's KV cannot be predicted or its KV type does not suit the model.
    """
    ceiling = ceiling_of(memory.total, settings)
    layers = len(demand.shape.layers) + 1
    ours = room_of(ceiling, memory.others, limit)
    gpu_layers = _gpu_layers(memory, demand, settings, ours - demand.embedding_bytes)
    here = _here(memory, demand.shape, gpu_layers)
    weights, working = _fixed(memory, demand, settings, gpu_layers)
    fixed = weights + working + demand.embedding_bytes
    hard = max(0, ours - fixed)
    least = kv_cost(demand.shape, demand.plan, settings.smallest_window, here)
    kv = min(hard, max(int(hard * settings.planned_share), least))
    on_card, in_ram = _cells(demand, kv, here), _cells_elsewhere(demand, gpu_layers, here)
    bound, window, longest = _bound(demand, on_card, in_ram)
    return MemoryBudget(
        number=number,
        where=memory.where,
        total=memory.total,
        ceiling=ceiling,
        others=memory.others,
        ours=ours,
        weights=weights,
        working=working,
        embedding_bytes=demand.embedding_bytes,
        kv_hard=hard,
        kv=kv,
        cells=min(on_card, in_ram),
        window=window,
        gpu_layers=gpu_layers,
        layers=layers,
        bound=bound,
        longest=longest,
    )


def _bound(demand: Demand, on_card: int, in_ram: int) -> tuple[Bound, int, int]:
    """What ends a window, and after how many tokens; and how many it would have without a measured length. `on_card` and
    `in_ram`: the cells that there is room for."""
    trained = demand.shape.trained
    limits = {
        Bound.TRAINED: trained,
        Bound.CONTEXT: trained if demand.context is None else demand.context,
        Bound.KV: on_card,
        Bound.RAM: in_ram,
    }
    longest = min(limits.values())
    if demand.measured is not None:
        limits[Bound.MEASURED] = demand.measured
    bound = min(limits, key=limits.__getitem__)
    return bound, limits[bound], longest


def ceiling_of(total: int, settings: MemorySettings) -> int:
    """The most that all programs together may hold, in bytes."""
    margin = max(settings.margin_bytes, int(total * settings.margin_share))
    return max(0, total - margin)


def room_of(ceiling: int, others: int, limit: int | None) -> int:
    """The most that we may hold, in bytes: what others leave below the ceiling, and no more than the user's limit."""
    room = max(0, ceiling - others)
    return room if limit is None else min(room, limit)


def checkpoint_bytes(disk_free: int | None, settings: StoreSettings) -> int:
    """Bytes that checkpoints may take on disk; 0 where the free space is unknown."""
    return min(settings.disk_bytes, int((disk_free or 0) * settings.disk_share))


# ---- which memory holds what ---------------------------------------------------------------------------------------


def _here(memory: MemoryReading, shape: ModelShape, gpu_layers: int) -> Sequence[Layer]:
    """The layers whose KV lives in this memory: on a GPU the last ones, for llama.cpp fills it from the end."""
    if memory.where == "RAM":
        return shape.layers
    return shape.layers[len(shape.layers) + 1 - gpu_layers :] if gpu_layers else ()


def weights_on_gpu(shape: ModelShape, gpu_layers: int) -> int:
    """Bytes of weights that `gpu_layers` put there. The output is the first to go; tied, it is a second embedding."""
    if gpu_layers == 0:
        return 0
    output = shape.output + (shape.input if shape.tied else 0)
    return output + sum(layer.weights for layer in shape.layers[len(shape.layers) + 1 - gpu_layers :])


def _fixed(memory: MemoryReading, demand: Demand, settings: MemorySettings, gpu_layers: int) -> tuple[int, int]:
    """Bytes of weights, and of what works beside them: as seen, else as estimated. What binds answers may be needed at any
    time."""
    working = demand.buffers
    if working is None:
        working = working_bytes(demand.shape, demand.plan, max(settings.smallest_window, demand.shape.trained))
    if memory.where == "RAM":
        return demand.shape.weights, working + demand.overhead + binding_bytes(demand.shape)
    return weights_on_gpu(demand.shape, gpu_layers), working + demand.overhead if gpu_layers else 0


def _gpu_layers(memory: MemoryReading, demand: Demand, settings: MemorySettings, room: int) -> int:
    """The most layers that fit with the KV of the smallest window."""
    if memory.where == "RAM":
        return 0
    if demand.gpu_layers is not None:
        return min(demand.gpu_layers, len(demand.shape.layers) + 1)
    for count in range(len(demand.shape.layers) + 1, 0, -1):
        layers = _here(memory, demand.shape, count)
        kv = kv_cost(demand.shape, demand.plan, settings.smallest_window, layers)
        if sum(_fixed(memory, demand, settings, count)) + kv <= room:
            return count
    return 0


def _cells(demand: Demand, size: int, layers: Sequence[Layer]) -> int:
    """The largest pool in `size` bytes; more than the model was trained for is of use to several sequences only."""
    most = padded(demand.shape.trained * max(1, demand.plan.sequences))
    found = cells_within(demand.shape, demand.plan, size, layers)
    return most if found is None else min(found, most)


def _cells_elsewhere(demand: Demand, gpu_layers: int, here: Sequence[Layer]) -> int:
    """What RAM grants to the layers that did not fit on the GPU."""
    away = demand.shape.layers[: len(demand.shape.layers) - len(here)]
    if not away:
        return padded(demand.shape.trained * max(1, demand.plan.sequences))
    weights = demand.shape.weights - weights_on_gpu(demand.shape, gpu_layers)
    return _cells(demand, max(0, demand.host_free - weights), away)
