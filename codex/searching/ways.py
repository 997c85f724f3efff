"""How a neighbour lies beside a hit, in words: which hit, and by what.

    one step    a name that one of them defines and the other uses; parts of one definition; an import
    further     through a neighbour that is one step from a hit

Pure. Knows the graph and what chunks define and use; where two use several names of each other the longest is told.
"""

from collections.abc import Mapping, Sequence

from codex.archive.archive import ChunkMatch
from codex.archive.definitions import ChunkPlace
from codex.graph.symbol_graph import Neighbour, SymbolGraph


def ways(
    graph: SymbolGraph, seeds: Sequence[ChunkPlace], near: Sequence[Neighbour], read: Mapping[ChunkPlace, ChunkMatch]
) -> dict[ChunkPlace, str]:
    """For each neighbour what leads to it from the first of the seeds that does: `used by a.py:10 (run)`."""
    reached = {place: seed for seed in reversed(seeds) for place, _ in graph.neighbours(seed)}
    found: dict[ChunkPlace, str] = {}
    for one in near:
        place = one.place
        seed = reached.get(place)
        if seed is None:
            found[place] = _further(graph, place, one.hops, reached)
        elif seed in read and place in read:
            found[place] = _step(read[seed], read[place])
    return found


def _step(hit: ChunkMatch, near: ChunkMatch) -> str:
    where = _named(hit)
    if used := {*hit.references} & {*near.names} - {*hit.names}:
        return f"used by {where}: {_longest(used)}"
    if uses := {*near.references} & {*hit.names} - {*near.names}:
        return f"uses {_longest(uses)} of {where}"
    if hit.place.path == near.place.path:
        return f"part of one definition with {where}"
    return f"an import away from {where}"


def _further(graph: SymbolGraph, place: ChunkPlace, hops: int, reached: Mapping[ChunkPlace, ChunkPlace]) -> str:
    """Links lead both ways: a neighbour's own neighbours say through which of them it was reached."""
    between = next((step for step, _ in graph.neighbours(place) if step in reached), None)
    if between is None:
        return f"{hops} steps from the hits"
    return f"{hops} steps from {_at(reached[between])}, through {_at(between)}"


def _longest(names: set[str]) -> str:
    return max(sorted(names), key=len)


def _named(match: ChunkMatch) -> str:
    return f"{_at(match.place)} ({match.symbol})" if match.symbol else _at(match.place)


def _at(place: ChunkPlace) -> str:
    return f"{place.path}:{place.start}"
