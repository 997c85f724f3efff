"""What stands in the cache, as an immutable picture that another thread may read while a step runs.

The loop publishes a new one when it changed something; the desk answers questions about matches from it. Token arrays
are shared, not copied: they only grow, and never below the length that the picture names.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.engine.cells.node import Node, common_prefix
from orchestrator.engine.cells.pools import Pool


@dataclass(frozen=True)
class Shape:
    """A node. `ranges`: whether its memory can be cut, so that a part of it can be shared."""

    ids: "array[int]"
    filled: int
    owner: int | None
    below: tuple["Shape", ...]
    ranges: bool = True


Shadows = Mapping[str, Shape]


def cast(pools: Mapping[str, Pool]) -> Shadows:
    """Pictures of all pools, by name."""
    return {name: _shape(pool.tree.root, pool.tree.ranges) for name, pool in pools.items()}


def matched(shape: Shape, ids: "array[int]", owner: int) -> int:
    """How many leading tokens of `ids` stand and could be shared."""
    return _matched(shape, ids, owner) if shape.ranges else _anchored(shape, ids, owner, 0)


def _anchored(shape: Shape, ids: "array[int]", owner: int, depth: int) -> int:
    """The same where only the ends of nodes are shared."""
    furthest = depth
    for child in shape.below:
        end = depth + child.filled
        mine = child.owner is None or child.owner == owner
        if mine and child.filled == len(child.ids) and common_prefix(child.ids, ids, depth) == child.filled:
            furthest = max(furthest, _anchored(child, ids, owner, end))
    return furthest


def _matched(shape: Shape, ids: "array[int]", owner: int) -> int:
    depth = 0
    while True:
        best, most = None, 0
        for child in shape.below:
            if child.owner is None or child.owner == owner:
                shared = common_prefix(child.ids[: child.filled], ids, depth)
                if shared > most:
                    best, most = child, shared
        if best is None:
            return depth
        depth += most
        if most < best.filled:
            return depth
        shape = best


def _shape(node: Node, ranges: bool) -> Shape:
    below = tuple(_shape(child, ranges) for child in node.children if child.filled)
    return Shape(node.ids, node.filled, node.owner, below, ranges)
