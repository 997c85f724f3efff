"""What only a dropped floor and its conversations could use, given up at once: every step walks all cells of its pool.

    floors of one pool   ├──── shared ────┬── dropped ──┬── its conversations       all this goes
                                          └── another ──┴── its conversations       all that stays

A node is a floor's where it lies on it; right of floors it belongs to the longest that its path begins with.
"""

from array import array
from collections.abc import Sequence
from typing import TypeAlias

from orchestrator.engine.cells.node import Node, common_prefix
from orchestrator.engine.cells.pools import Pool
from orchestrator.engine.path import path_of

Ids: TypeAlias = "array[int]"


def release(pool: Pool, dropped: Ids, others: Sequence[Ids]) -> int:
    """Evicts what nobody leases of it, and returns the cells that became free. No tier takes anything."""
    freed = 0
    while (tip := _next(pool, dropped, others)) is not None:
        tip.handed = tip.stands
        freed += pool.tree.evict(tip)
    return freed


def _next(pool: Pool, dropped: Ids, others: Sequence[Ids]) -> Node | None:
    tips = (node for node in pool.tree.nodes() if node.leases == 0 and not node.children)
    return next((tip for tip in tips if is_forsaken(tip, dropped, others)), None)


def is_forsaken(tip: Node, dropped: Ids, others: Sequence[Ids]) -> bool:
    """Whether it was the dropped floor's alone; `others` are those that the pool still has."""
    ids = path_of(tip).ids
    if tip.owner is None:
        return reaches(tip, ids, dropped) and not any(reaches(tip, ids, other) for other in others)
    mine = [floor for floor in (dropped, *others) if common_prefix(floor, ids, 0) == len(floor)]
    return bool(mine) and max(mine, key=len) is dropped


def reaches(node: Node, ids: Ids, floor: Ids) -> bool:
    """Whether some of the node's own tokens lie on this floor; `ids` are those of its path."""
    return common_prefix(floor, ids, 0) > node.start
