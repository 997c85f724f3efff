"""A node of the prefix tree, a half-open range of tokens and of cells; and a path as its segments are named by."""

from array import array
from dataclasses import dataclass, field
from typing import TypeAlias

from orchestrator.engine.messages import Reuse

Tokens: TypeAlias = "array[int]"


@dataclass(frozen=True)
class Boundary:
    """Between two segments of a path: the name of the segment that ends there, and the position."""

    parent: str
    start: int


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


@dataclass(frozen=True)
class Path:
    """What names a prompt's segments."""

    ids: "array[int]"
    cut: int
    owner: int


@dataclass
class Restored:
    """What of one prompt came back from checkpoints, and the milliseconds that it took."""

    parts: list[Reuse] = field(default_factory=list)
    milliseconds: float = 0.0

    def add(self, part: Reuse, seconds: float) -> None:
        self.parts.append(part)
        self.milliseconds += seconds * 1000


@dataclass(frozen=True)
class Wanted:
    """A prompt of which [0, limit) may come back from the tiers; what did is noted in `restored`."""

    path: Path
    limit: int
    restored: Restored


def path_of(tip: Node) -> Path:
    """Ids, end of the floor and owner of the path down to a node."""
    ids, cut, owner = array("I"), None, 0
    for node in tip.path():
        if node.owner is not None and cut is None:
            cut, owner = node.start, node.owner
        ids.extend(node.ids)
    return Path(ids, len(ids) if cut is None else cut, owner)


def deepest(tip: Node) -> Node:
    """The deepest node of the path that has cells: a sequence that covers it covers all above."""
    node = tip
    while not node.filled and node.parent is not None and node.parent.parent is not None:
        node = node.parent
    return node
