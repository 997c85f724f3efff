"""What only a dropped floor and its conversations could use, given up at once: every step walks all cells of its pool.

    floors of one pool   ├──── shared ────┬── dropped ──┬── its conversations       all this goes
                                          └── another ──┴── its conversations       all that stays

A node is a floor's where it lies on it; right of floors it belongs to the longest that its path begins with.
"""

from array import array
from collections.abc import Sequence
from typing import TypeAlias

from orchestrator.engine.cache.node import Node, common_prefix
from orchestrator.engine.cache.path import path_of
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
