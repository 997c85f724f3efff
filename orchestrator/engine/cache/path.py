"""A prompt as its segments are named by: its ids, where its floor ends, whose tail it is."""

from array import array
from dataclasses import dataclass

from orchestrator.engine.cache.node import Node
from orchestrator.engine.messages import Reuse


@dataclass(frozen=True)
class Path:
    """What names a prompt's segments."""

    ids: "array[int]"
    cut: int
    owner: int


@dataclass(frozen=True)
class Wanted:
    """A prompt of which [0, limit) may come back from the tiers; what did is noted in `restored`."""

    path: Path
    limit: int
    restored: list[Reuse]


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
