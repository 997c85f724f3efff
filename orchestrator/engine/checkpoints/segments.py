"""The names of a prompt's segments: what a checkpoint of a range of KV is called.

    root ─sha256─▶ [0, 256) ─▶ [256, 512) ─▶ … ─▶ [7936, 8012) ─ owner ─▶ [8012, 8268) ─▶ …
                   └────────────── floor ─────────────────┘      └──────── tail ────────

Tokens are cut every 256 ids from the start of the floor and again from its end, so cuts depend on ids and positions alone.
name = sha256(parent's name, ids as uint32); the root's name covers all that KV depends on; right of the floor the chain is
salted with the owner's uid. Same name, same KV.
"""

import hashlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.engine.cache.tree import Boundary

CUT = 256


@dataclass(frozen=True)
class Segment:
    """Tokens [start, end) of a path, called `name`, right behind the segment called `parent`."""

    name: str
    parent: str
    start: int
    end: int


def boundary(ids: "array[int]", cut: int, owner: int, depth: int, known: Boundary) -> Boundary:
    """The last one at or before `depth`, going on from one that is known; at first the root's, (root, 0)."""
    parent, start = known.parent, known.start
    for begin, end in spans(cut, depth + CUT, start):
        if end > depth:
            break
        parent, start = named(ground(parent, begin, cut, owner), ids[begin:end]), end
    return Boundary(parent, start)


def segments(root: str, ids: "array[int]", cut: int, owner: int, upto: int) -> Iterator[Segment]:
    """The segments of a path up to position `upto`; the last of floor and tail may be short."""
    return segments_from(Boundary(root, 0), ids, cut, owner, upto)


def segments_from(place: Boundary, ids: "array[int]", cut: int, owner: int, upto: int) -> Iterator[Segment]:
    """Those behind a place that is known: naming 32k tokens takes 2 ms."""
    parent = place.parent
    for start, end in spans(cut, upto, place.start):
        name = named(ground(parent, start, cut, owner), ids[start:end])
        yield Segment(name, parent, start, end)
        parent = name


def spans(cut: int, upto: int, start: int = 0) -> Iterator[tuple[int, int]]:
    """Half-open ranges that tile [start, upto) and never cross the end of the floor; `start` is where one begins."""
    while start < upto:
        limit = cut if start < cut else upto
        end = min(start + CUT, limit, upto)
        yield start, end
        start = end


def named(parent: str, ids: "array[int]") -> str:
    digest = hashlib.sha256(parent.encode())
    digest.update(ids)
    return digest.hexdigest()


def ground(parent: str, start: int, cut: int, owner: int) -> str:
    """What the name of the segment at `start` builds on: its parent, or at the end of the floor the owner's own ground."""
    if start != cut:
        return parent
    return hashlib.sha256(f"{parent} owner {owner}".encode()).hexdigest()
