"""A node of the prefix tree: a half-open range of a path's tokens, and how far its cells stand."""

from array import array
from dataclasses import dataclass, field
from typing import TypeAlias

from orchestrator.engine.cache.boundary import Boundary

Tokens: TypeAlias = "array[int]"


@dataclass(eq=False, slots=True)
class Node:
    """Tokens [start, start + len(ids)) of a path. `owner` is a uid right of the floor, None where anyone may share."""

    parent: "Node | None"
    start: int
    ids: Tokens
    owner: int | None
    filled: int = 0
    leases: int = 0
    filler: int | None = None  # the ticket that computes it now
    sequence: int | None = None
    used: int = 0  # clock of the last lease or release
    gone: bool = False  # evicted
    handed: int = 0  # position up to which its cells were taken below, for it to go
    place: Boundary | None = None  # the last one at or before its start, once its path was named
    children: list["Node"] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.ids)

    @property
    def stands(self) -> int:
        """Position up to which this path's cells stand, when all above do."""
        return self.start + self.filled

    @property
    def whole(self) -> bool:
        return self.filled == len(self.ids)

    def path(self) -> list["Node"]:
        """From below the root down to this node."""
        up: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            up.append(node)
            node = node.parent
        return up[::-1]


def common_prefix(ids: Tokens, other: Tokens, offset: int) -> int:
    """How many leading tokens of `ids` equal `other` from `offset` on. Slices compare in C; the rest is a bisection."""
    most = min(len(ids), len(other) - offset)
    if most <= 0 or ids[0] != other[offset]:
        return 0
    if ids[:most] == other[offset : offset + most]:
        return most
    low, high = 1, most  # the first `low` are equal, the first `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        if ids[low:middle] == other[offset + low : offset + middle]:
            low = middle
        else:
            high = middle
    return low
