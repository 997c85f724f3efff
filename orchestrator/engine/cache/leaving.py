"""Which idle pools go, and how much room they make: the one rule of worth, for a whole context. Pure.

    worth of a pool = milliseconds to have again all that stands in it / the cells that it gives back / (1 + age)

A pool gives back all its cells, also those that hold nothing, so a large one with little in it goes early. What lies in a
tier costs its restore, the rest is computed again. Age is counted in tickets that entered others since.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from orchestrator.engine.cache.eviction import aged
from orchestrator.engine.cache.pool import Pool


@dataclass(frozen=True)
class Idle:
    """A pool that nobody runs in. `lost_ms`: to have again what stands in it; `used`: number of the last entry."""

    name: str
    cells: int
    lost_ms: float
    used: int


@dataclass(frozen=True)
class Room:
    """So many cells are free once these pools are closed."""

    closing: tuple[Idle, ...]
    free: int


def leaving(pools: Collection[Pool], lost_ms: Callable[[Pool], float], now: int) -> list[Idle]:
    """These idle pools, worth least first. `now`: number of the last entry."""
    if len(pools) < 2:  # to judge takes a look at all that stands in them
        return [Idle(pool.name, pool.memory.cells, 0.0, pool.used) for pool in pools]
    return in_order((Idle(pool.name, pool.memory.cells, lost_ms(pool), pool.used) for pool in pools), now)


def in_order(pools: Iterable[Idle], now: int) -> list[Idle]:
    """As they leave; of equal worth the one goes first that was unused for longer. `now`: number of the last entry."""
    return sorted(pools, key=lambda pool: (aged(pool.lost_ms / pool.cells, now - pool.used), pool.used, pool.name))


def room(free: int, leaving: Sequence[Idle], least: int) -> Room | None:
    """As few of `leaving` as make `least` cells free, in their order; None where all of them do not."""
    for count in range(len(leaving) + 1):
        if free + sum(pool.cells for pool in leaving[:count]) >= least:
            return Room(tuple(leaving[:count]), free + sum(pool.cells for pool in leaving[:count]))
    return None
