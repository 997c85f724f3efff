"""The names of a prompt's segments, which are the names of their checkpoints, and the search for those that are kept. Pure.

    root ─sha256─▶ [0, 256) ─▶ [256, 512) ─▶ … ─▶ [7936, 8012) ─ owner ─▶ [8012, 8268) ─▶ …
                   └────────────── floor ─────────────────┘      └──────── tail ────────

Tokens are cut every 256 ids from the start of the floor and again from its end, so cuts depend on ids and positions alone.
name = sha256(parent's name, ids as uint32); the root's name covers all that KV depends on; right of the floor the chain is
salted with the owner's uid. Same name, same KV.

    cells    ├──────── stand ────────┤
    kept     ├─ 256 ─┼─ 256 ─┼─ 256 ─┼─ 256 ─┼─ 90 ─┤       from the segment in which the cells end, one behind the other
"""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.engine.cache.tree import Boundary, Path, common_prefix
from orchestrator.engine.checkpoints.file import SegmentHeader

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


# -- which kept segments go on with a prompt: one search, for who restores them and for who foretells it

Below = Callable[[str], Sequence[SegmentHeader]]  # the kept segments that go on from the one of a name


@dataclass(frozen=True)
class Onward:
    """A kept segment that goes on with a prompt: what stands before it, and the position to which it does."""

    place: Boundary
    header: SegmentHeader
    end: int


def onward(below: Below, path: Path, known: Boundary, depth: int) -> Onward | None:
    """The kept segment that goes on from `depth`; it may begin before. `known` is a place on the way there."""
    place = boundary(path.ids, path.cut, path.owner, depth, known)
    own = ground(place.parent, place.start, path.cut, path.owner)
    found = find(below(place.parent), own, path.ids, place.start)
    if found is None or place.start + found[1] <= depth:
        return None
    return Onward(place, found[0], place.start + found[1])


def find(headers: Iterable[SegmentHeader], ground: str, ids: "array[int]", at: int) -> tuple[SegmentHeader, int] | None:
    """The segment named on `ground` that shares most with `ids` from `at` on, and how much."""
    best: tuple[SegmentHeader, int] | None = None
    for header in headers:
        shared = common_prefix(header.ids, ids, at) if header.start == at else 0
        if shared > (best[1] if best else 0) and named(ground, header.ids) == header.name:
            best = header, shared
    return best


# -- memories without ranges: pieces, which are joined whole


def reaching(root: str, below: Below, path: Path, limit: int) -> list[SegmentHeader]:
    """The kept pieces, each behind the one before, that lead furthest within [0, limit)."""
    return max(chains(root, below, path, limit), key=end_of)


def chains(root: str, below: Below, path: Path, limit: int) -> Iterator[list[SegmentHeader]]:
    """All kept pieces that lead along a path within [0, limit), each behind the one before; first none at all."""
    stack: list[list[SegmentHeader]] = [[]]
    while stack:
        pieces = stack.pop()
        yield pieces
        stack.extend([*pieces, piece] for piece in behind(root, below, path, pieces, limit))


def behind(root: str, below: Below, path: Path, pieces: Sequence[SegmentHeader], limit: int) -> list[SegmentHeader]:
    """The kept pieces that go on from `pieces` as the path does; none of them crosses the end of the floor."""
    parent, at = (pieces[-1].name, pieces[-1].end) if pieces else (root, 0)
    most = limit if at >= path.cut else min(limit, path.cut)
    fitting = [
        piece
        for piece in below(parent)
        if piece.start == at < piece.end <= most and common_prefix(piece.ids, path.ids, at) == len(piece.ids)
    ]
    return [piece for piece in fitting if named(ground(parent, at, path.cut, path.owner), piece.ids) == piece.name]


def end_of(pieces: Sequence[SegmentHeader]) -> int:
    return pieces[-1].end if pieces else 0


def meeting(ends: Iterable[int], pieces: Sequence[SegmentHeader], cut: int) -> tuple[int, list[SegmentHeader]]:
    """The last of `ends`, where nodes of a path do, that a piece begins at; and what is joined behind it next.

    above   ├──────── floor ────────┤── first turn ──┤
    pieces  ├──────── floor ────────┤──── both turns as one ────┤      they meet at the end of the floor

    That is the floor's pieces, or a tail's. 0, where the root ends, is one of `ends` always.
    """
    starts = {piece.start for piece in pieces}
    end = max(end for end in ends if end in starts)
    floor = [piece for piece in pieces if end <= piece.start < cut]
    return end, floor or [piece for piece in pieces if piece.start >= end]
