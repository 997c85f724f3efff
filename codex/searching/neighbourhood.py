"""From hits to their neighbours in the symbol graph: the `graph` kind of retrieval.

Each codex has one graph, built from its archive at the first question and again after the archive changed.

    the archive is unchanged ─▶ the graph
    it has changed           ─▶ a small graph is built at once; a large one stays in use during the build, with a notice
    no graph yet             ─▶ a small graph is built at once; without a large one nothing is added, with a notice
    too many chunks          ─▶ no graph is built, with a notice

A neighbour names its relation to a hit:

    one step    a name that one of them defines and the other uses, the longest of several; parts of one definition;
                an import
    further     through a neighbour that is one step from a hit
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from codex.archive.archive import Archive
from codex.archive.queries import ChunkMatch, ChunkPlace
from codex.searching.search import ChunkHit, SearchResult, hit_of
from codex.words import asked

if TYPE_CHECKING:
    from codex.graph.symbol_graph import Neighbour, SymbolGraph

_SHARE = 0.5  # of the last hit's score: a neighbour ranks after every hit
_PATIENCE_S = 0.25  # a graph that took longer than this is rebuilt in the background
_AT_ONCE = 150_000  # chunks of a graph whose first build a search waits for
_KEPT_CHUNKS = 200_000  # of the codices searched last
_MOST_CHUNKS = 300_000  # of a codex that gets a graph: building it takes 380 MB there, and 720 MB of a million
BEHIND = "callers and callees of the hits are those before the last changes"
COMING = "callers and callees of the hits are still being computed; ask again in a moment"


@dataclass(frozen=True)
class _Built:
    """A graph, the archive's revision it was built from, and the seconds that took."""

    graph: "SymbolGraph"
    revision: int
    seconds: float


class Neighbourhoods:
    """Graphs over one archive. Thread-safe; building takes about 2 s for 100,000 chunks, walking some milliseconds."""

    def __init__(
        self,
        archive: Archive,
        clock: Callable[[], float] = time.perf_counter,
        kept_chunks: int = _KEPT_CHUNKS,
        at_once: int = _AT_ONCE,
        most_chunks: int = _MOST_CHUNKS,
    ) -> None:
        self._archive = archive
        self._clock = clock
        self._kept_chunks = kept_chunks
        self._at_once = at_once
        self._most_chunks = most_chunks
        self._kept: dict[str, _Built] = {}
        self._growing: dict[str, Future[None]] = {}
        self._lock = threading.Lock()  # of the maps
        self._building = threading.Lock()  # one at a time: each takes a core and its room
        self._background = ThreadPoolExecutor(1, thread_name_prefix="codex-graph")

    def graph(self, codex: str) -> "SymbolGraph":
        """The graph as the archive now is. Raises what the archive raises."""
        built = self._current(codex)
        if built is None:
            with self._building:
                built = self._current(codex) or self._build(codex)
        return built.graph

    def joined(self, query: str, codex: str, found: SearchResult, n: int, *, beside: bool = False) -> SearchResult:
        """At most `n`: the best hits, and in place of the last ones the neighbourhood of the first half.

        `beside`: all hits, and behind them at most `n` neighbours. Each neighbour names what leads to it. Raises what
        the archive raises.
        """
        if not found.hits:
            return found
        graph, notice = self._at_hand(codex)
        if notice:
            found = replace(found, notices=(*found.notices, notice))
        if graph is None:
            return found
        seeds = found.hits[: _first_half(len(found.hits) if beside else n)]
        known = {hit.place for hit in found.hits}
        if beside:
            return replace(found, hits=_behind(found.hits, self._read(graph, query, codex, seeds, n, known)))
        near = self._read(graph, query, codex, seeds, max(0, n - len(seeds)))
        new = [hit for hit in near if hit.place not in known]
        return replace(found, hits=_behind(found.hits[: n - len(new)], new))

    def _read(
        self,
        graph: "SymbolGraph",
        query: str,
        codex: str,
        hits: Sequence[ChunkHit],
        most: int,
        known: Collection[ChunkPlace] = (),
    ) -> list[ChunkHit]:
        """At most so many neighbours as hits, best first, without those known; scores are shares of one.

        A chunk that the archive no longer has is left out. `scores` has `graph` and `hops`.
        """
        seeds = {hit.place: hit.score for hit in hits}
        near = [one for one in graph.expand(seeds) if one.place not in known][:most]
        read = self._archive.at(codex, [*seeds, *(one.place for one in near)])
        leading = relations(graph, list(seeds), near, {place: match for place, (match, _) in read.items()})
        question = asked(query)
        top = max((one.weight for one in near), default=1.0)
        found: list[ChunkHit] = []
        for one in near:
            if one.place in read:
                share = one.weight / top
                scores = {"graph": share, "hops": float(one.hops)}
                hit = hit_of(*read[one.place], _SHARE * share, scores, question)
                found.append(replace(hit, near=leading.get(one.place, "the hits")))
        return found

    def _at_hand(self, codex: str) -> "tuple[SymbolGraph | None, str]":
        """A graph without a long wait or None, and a notice about it."""
        kept = self._kept.get(codex)
        if kept is not None and kept.revision == self._archive.revision(codex):
            return kept.graph, ""
        chunks = self._archive.count(codex)
        if chunks > self._most_chunks:
            with self._lock:
                self._kept.pop(codex, None)
            return None, too_many(chunks, self._most_chunks)
        if (chunks <= self._at_once) if kept is None else (kept.seconds <= _PATIENCE_S):
            return self.graph(codex), ""
        self._grow(codex)
        return (None, COMING) if kept is None else (kept.graph, BEHIND)

    def _grow(self, codex: str) -> None:
        """Builds in the background. Raises the error of the last try."""
        with self._lock:
            growing = self._growing.get(codex)
            if growing is not None and growing.done():
                del self._growing[codex]
                growing.result()
            elif growing is None:
                self._growing[codex] = self._background.submit(self._grown, codex)

    def _grown(self, codex: str) -> None:
        self.graph(codex)
        with self._lock:
            self._growing.pop(codex, None)

    def _current(self, codex: str) -> _Built | None:
        with self._lock:
            kept = self._kept.get(codex)
            if kept is None or kept.revision != self._archive.revision(codex):
                return None
            self._kept[codex] = self._kept.pop(codex)  # ordered by last use
            return kept

    def _build(self, codex: str) -> _Built:
        from codex.graph.symbol_graph import build_graph  # loads numpy, which a daemon starts without

        revision, began = self._archive.revision(codex), self._clock()  # read first: a write meanwhile makes it stale
        graph = build_graph(self._archive.chunks(codex))
        built = _Built(graph, revision, self._clock() - began)
        with self._lock:
            self._kept.pop(codex, None)
            self._kept[codex] = built
            while len(self._kept) > 1 and sum(len(one.graph.places) for one in self._kept.values()) > self._kept_chunks:
                del self._kept[next(iter(self._kept))]
        return built


def too_many(chunks: int, most: int) -> str:
    return f"callers and callees of the hits are not shown: {chunks:,} chunks exceed the {most:,} of a graph"


def _first_half(hits: int) -> int:
    return max(1, (hits + 1) // 2)


def _behind(hits: Sequence[ChunkHit], near: Sequence[ChunkHit]) -> tuple[ChunkHit, ...]:
    """Neighbours behind the hits, their shares below the lowest of them."""
    lowest = min((hit.score for hit in hits), default=1.0)
    return (*hits, *(replace(hit, score=hit.score * lowest) for hit in near))


def relations(
    graph: "SymbolGraph",
    seeds: Sequence[ChunkPlace],
    near: "Sequence[Neighbour]",
    read: Mapping[ChunkPlace, ChunkMatch],
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


def _further(graph: "SymbolGraph", place: ChunkPlace, hops: int, reached: Mapping[ChunkPlace, ChunkPlace]) -> str:
    """Links lead both ways: a neighbour's own neighbours include the one that it was reached through."""
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
