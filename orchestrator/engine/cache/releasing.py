"""What is given up at once: of a pool what only a dropped floor could use, and idle pools where others need their cells.

    floors of one pool   ├──── shared ────┬── dropped ──┬── its conversations       all this goes
                                          └── another ──┴── its conversations       all that stays

A node is a floor's where it lies on it; right of floors it belongs to the longest that its path begins with.

    worth of a pool = milliseconds to have again all that it holds / the cells that it gives back / (1 + age)

A pool gives back all its cells, also those that hold nothing, so a large one with little in it goes early. What lies in a
tier costs its restore, the rest is computed again. Age is counted in tickets that entered other pools since.
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.engine.cache.eviction import aged
from orchestrator.engine.cache.node import Node, common_prefix, path_of
from orchestrator.engine.cache.pool import Pool

Ids: TypeAlias = "array[int]"


def release(pool: Pool, dropped: Ids, others: Sequence[Ids]) -> int:
    """Evicts what nobody leases of it, and returns the cells that became free. No tier takes anything."""
    freed = 0
    for node in reversed(list(pool.tree.nodes())):  # each after all that lie below it
        if node.leases == 0 and not node.children and is_forsaken(node, dropped, others):
            node.handed = node.stands
            freed += pool.tree.evict(node)
    return freed


def is_forsaken(node: Node, dropped: Ids, others: Sequence[Ids]) -> bool:
    """Whether it was the dropped floor's alone; `others` are those that the pool still has."""
    ids = path_of(node).ids
    if node.owner is None:
        return reaches(node, ids, dropped) and not any(reaches(node, ids, other) for other in others)
    mine = [floor for floor in (*others, dropped) if common_prefix(floor, ids, 0) == len(floor)]
    return bool(mine) and max(mine, key=len) is dropped


def reaches(node: Node, ids: Ids, floor: Ids) -> bool:
    """Whether some of the node's own tokens lie on this floor; `ids` are those of its path."""
    return common_prefix(floor, ids, 0) > node.start


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
