"""The governor's result at one moment, and how the next follows from it: levels, and a numbered grant. Pure.

    snapshot -> memory that counts -> pressure -> levels
                                   \\-> budget: a new number only when the grant has changed

Where memory is unknown the last levels and grant are kept. Knows no clock and no sensor.
"""

from dataclasses import dataclass, replace

from governor.budget import Demand, MemoryBudget, ceiling_of, plan_budget
from governor.errors import FootprintError
from governor.pressure import START, Level, Power, PressureReading, PressureState, pressure_of, reading_of, step
from governor.readings import MemoryReading, SensorSnapshot, chosen_gpu, host_memory, memory_of
from governor.settings import GovernorSettings, limit_bytes


@dataclass(frozen=True)
class Ours:
    """The engine's own figures. `held`: bytes of the memory that counts; `claimed`: those that no eviction frees.

    `pids` are the daemon's and the engine child's. `demand` is None while no model is chosen. Where a GPU's memory counts,
    `elsewhere` are bytes of RAM that the embedding model will take; `elsewhere_held` those that it has, and can give back.
    """

    pids: frozenset[int] = frozenset()
    held: int = 0
    claimed: int = 0
    demand: Demand | None = None
    elsewhere: int = 0
    elsewhere_held: int = 0


@dataclass(frozen=True)
class Outlook:
    """One moment. `number` grows when a level or the grant changes; `budget.number` only with the grant.

    `pressure` is None where memory is unknown; `limit` is the user's in bytes, fixed at the first reading; `unplanned`
    is the reason of a missing budget, "" when there is one. `ram` is the state of the host's memory, also where RAM is the
    memory that counts.
    """

    number: int
    snapshot: SensorSnapshot
    pressure: float | None
    state: PressureState
    limit: int | None
    budget: MemoryBudget | None
    unplanned: str
    ram: PressureState = START

    @property
    def level(self) -> Level:
        return self.state.level

    @property
    def power(self) -> Power:
        return self.state.power


def first_outlook(snapshot: SensorSnapshot, ours: Ours, settings: GovernorSettings) -> Outlook:
    blank = Outlook(0, snapshot, None, START, None, None, "nothing has been read yet")
    return next_outlook(blank, snapshot, ours, settings)


def next_outlook(before: Outlook, snapshot: SensorSnapshot, ours: Ours, settings: GovernorSettings) -> Outlook:
    """The outlook after a reading of the sensors."""
    memory = memory_of(snapshot, settings.memory.gpu)
    limit = before.limit if before.limit is not None else _limit(memory, ours, settings)
    pressure = None
    if memory is not None:
        ceiling = ceiling_of(memory.total, settings.memory)
        pressure = pressure_of(memory, ceiling, limit, ours.held, ours.claimed)
    gpu = chosen_gpu(snapshot, settings.memory.gpu)
    looked_at = reading_of(pressure, gpu, snapshot.host, settings.pressure)
    state = step(before.state, looked_at, snapshot.at, settings.pressure)
    budget, unplanned = _budget(before, memory, snapshot, ours, settings, limit)
    ram = state if memory is not None and memory.where == "RAM" else _ram(before, snapshot, ours, settings)
    after = Outlook(before.number, snapshot, pressure, state, limit, budget, unplanned, ram)
    return after if _reported(after) == _reported(before) else replace(after, number=before.number + 1)


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
        pressure = pressure_of(replace(memory, own=None), ceiling, None, ours.elsewhere_held, 0)
    return step(before.ram, PressureReading(pressure), snapshot.at, settings.pressure)


def _limit(memory: MemoryReading | None, ours: Ours, settings: GovernorSettings) -> int | None:
    """The user's limit, from the free memory at the first reading; memory that is ours counts as free."""
    if memory is None:
        return None
    return limit_bytes(settings.memory.vram_limit, memory.free + max(memory.own or 0, ours.held))


def _budget(
    before: Outlook,
    memory: MemoryReading | None,
    snapshot: SensorSnapshot,
    ours: Ours,
    settings: GovernorSettings,
    limit: int | None,
) -> tuple[MemoryBudget | None, str]:
    if ours.demand is None:
        return None, "no model is chosen"
    if memory is None:
        return before.budget, "" if before.budget else "how much memory there is cannot be read"
    number = 1 if before.budget is None else before.budget.number + 1
    free = max(0, (snapshot.host.ram_available.value or 0) - (ours.elsewhere - ours.elsewhere_held))
    demand = replace(ours.demand, ours=max(ours.demand.ours, ours.held), host_free=free)
    try:
        planned = plan_budget(number, memory, demand, settings.memory, limit)
    except FootprintError as error:
        return None, str(error)
    if before.budget is not None and before.budget.same_grant(planned, settings.memory.grant_step):
        return before.budget, ""
    return planned, ""
