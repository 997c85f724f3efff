"""What stands in the cache, as an immutable picture that another thread may read while a step runs.

The loop publishes one when an answer ends, while it is idle, and else ten times a second; the desk answers questions
about matches from it. Token arrays are shared, not copied: an array only grows, and what becomes shorter gets another.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.engine.cache.node import Node, common_prefix
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.checkpoints.view import View


@dataclass(frozen=True)
class Shape:
    """A node: `length` tokens of `ids`, of which `filled` have cells; the rest are being computed by somebody."""

    ids: "array[int]"
    length: int
    filled: int
    owner: int | None
    below: tuple["Shape", ...] = ()


EMPTY = Shape(array("I"), 0, 0, None)


@dataclass(frozen=True)
class Picture:
    """Pools by name, and what lies below them. `ranges`: whether memory can be cut, so that a part can be shared."""

    pools: Mapping[str, Shape] = field(default_factory=dict)
    kept: View = field(default_factory=View)
    ranges: bool = True


@dataclass(frozen=True)
class Standing:
    """How far a path leads in a pool: to `depth`, with cells as far as `stands`; `ends` are where its nodes do."""

    depth: int
    stands: int
    ends: tuple[int, ...] = (0,)


def cast(pools: Mapping[str, Pool], kept: View, *, ranges: bool) -> Picture:
    return Picture({name: _shape(pool.tree.root) for name, pool in pools.items()}, kept, ranges)


def _shape(root: Node) -> Shape:
    """From the tips up, without recursion: each turn of a conversation hangs below the one before."""
    nodes, shapes = [root], dict[Node, Shape]()
    for node in nodes:
        nodes.extend(child for child in node.children if child.ids)
    for node in reversed(nodes):
        below = tuple(shapes.pop(child) for child in node.children if child.ids)
        shapes[node] = Shape(node.ids, len(node.ids), node.filled, node.owner, below)
    return shapes[root]


def matched(root: Shape, ids: "array[int]", owner: int) -> Standing:
    """The furthest that `ids` share with what stands or is being computed. All siblings are followed: equal ones exist."""
    best, stack = Standing(0, 0), [(root, 0, 0)]  # nodes, where they begin, and how far `ids` lead in them
    while stack:
        node, start, depth = stack.pop()
        if (depth, start + node.filled) > (best.depth, best.stands):
            best = Standing(depth, start + node.filled)
        end = start + node.length
        if depth == end:
            shared = ((child, _shared(child, ids, end, owner)) for child in node.below)
            stack.extend((child, end, end + common) for child, common in shared if common)
    return best


def anchored(root: Shape, ids: "array[int]", owner: int) -> Standing:
    """The same where only the ends of nodes are shared."""
    best, stack = Standing(0, 0), [(root, Standing(0, 0))]
    while stack:
        node, here = stack.pop()
        if (here.depth, here.stands) > (best.depth, best.stands):
            best = here
        for child in node.below:
            grown = len(child.ids) > child.length  # its end has moved on
            if not grown and _shared(child, ids, here.depth, owner) == child.length:
                end = here.depth + child.length
                stack.append((child, Standing(end, here.depth + child.filled, (*here.ends, end))))
    return best


def _shared(child: Shape, ids: "array[int]", depth: int, owner: int) -> int:
    if child.owner is not None and child.owner != owner:
        return 0
    return min(child.length, common_prefix(child.ids, ids, depth))
