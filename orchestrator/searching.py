"""The archive behind the ports that answers and users search through."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from codex.archive import Archive
from codex.definitions import Place
from codex.documents import Document
from codex.graph import SymbolGraph, build_graph
from codex.search import Hit as Chunk
from codex.search import Search
from orchestrator.context.evidence import Found, Hit

HOPS = 2
GRAPH_TOKENS = 4_000  # of a neighbourhood, beside the hits
GRAPHS_KEPT = 4  # of the codices searched last; one of 100,000 chunks takes about 100 MB
NEIGHBOUR_SHARE = 0.5  # of the last hit's score: what was only reached stands behind what was found


class Graphs:
    """Symbol graphs by codex, each built when first asked for and again when the index changed. Thread-safe."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[int, SymbolGraph]] = {}

    def of(self, codex: str) -> SymbolGraph:
        """Raises what the archive raises."""
        with self._lock:
            state = hash(frozenset(self._archive.held(codex).items()))
            kept = self._kept.pop(codex, None)
            if kept is None or kept[0] != state:
                kept = (state, build_graph(self._archive.chunks(codex)))
            self._kept[codex] = kept
            while len(self._kept) > GRAPHS_KEPT:
                del self._kept[next(iter(self._kept))]
            return kept[1]


@dataclass(frozen=True)
class ArchiveSearch:
    """Searches in a worker thread: the event loop goes on streaming meanwhile. `blind` says in words what a search of a
    codex may not see now, '' when it sees all."""

    search_in: Search
    graphs: Graphs
    blind: Callable[[str], str] = field(default=lambda codex: "")  # noqa: ARG005

    async def search(self, query: str, codex: str, n: int, *, graph: bool = False) -> Found:
        """Passages for evidence; with `graph` the neighbourhood of what was found behind it. Raises CodexError."""
        chunks, notices = await asyncio.to_thread(self._found, query, codex, n, graph)
        hits = tuple(Hit(one.path, one.start, one.end, one.text, one.symbol, one.score) for one in chunks)
        blind = self.blind(codex)
        return Found(hits, (*notices, blind) if blind else notices)

    async def report(self, query: str, codex: str, n: int, *, graph: bool = False) -> list[Mapping[str, Any]]:
        """Hits as users see them. Raises CodexError."""
        chunks, _ = await asyncio.to_thread(self._found, query, codex, n, graph)
        return [
            {
                "path": one.path,
                "start": one.start,
                "end": one.end,
                "symbol": one.symbol,
                "score": one.score,
                "scores": dict(one.scores),
                "snippet": one.snippet,
            }
            for one in chunks
        ]

    def _found(self, query: str, codex: str, n: int, graph: bool) -> tuple[tuple[Chunk, ...], tuple[str, ...]]:
        found = self.search_in.search(query, codex, n)
        if not graph or not found.hits:
            return found.hits, found.notices
        seeds = found.hits[: max(1, (n + 1) // 2)]
        near = self._neighbours(seeds, codex, n - len(seeds))
        known = {(one.path, one.start) for one in found.hits}
        new = [one for one in near if (one.path, one.start) not in known]
        hits = found.hits[: n - len(new)]
        ceiling = min(one.score for one in hits)
        return (*hits, *(replace(one, score=one.score * ceiling) for one in new)), found.notices

    def _neighbours(self, hits: Sequence[Chunk], codex: str, most: int) -> tuple[Chunk, ...]:
        """At most so many chunks around the hits, nearest first; their score is a share of the least hit's."""
        seeds = {Place(one.path, one.start, one.end): one.score for one in hits}
        around = self.graphs.of(codex).expand(seeds, hops=HOPS, tokens=GRAPH_TOKENS)[: max(0, most)]
        read = self.search_in.archive.at(codex, [one.place for one in around])
        top = around[0].weight if around else 1.0
        return tuple(
            Chunk(
                path=one.place.path,
                start=one.place.start,
                end=one.place.end,
                symbol=read[one.place][0].symbol,
                kind=read[one.place][0].kind,
                signature=read[one.place][0].signature,
                score=NEIGHBOUR_SHARE * one.weight / top,
                scores={"graph": one.weight, "hops": float(one.hops)},
                snippet="\n".join(read[one.place][1].split("\n")[:3]),
                text=read[one.place][1],
            )
            for one in around
            if one.place in read
        )


@dataclass(frozen=True)
class ArchiveIndexer:
    """The archive as the library's index. Its progress is the library's."""

    archive: Archive

    def held(self, codex: str) -> Mapping[str, str]:
        return self.archive.held(codex)

    def index(
        self, codex: str, documents: Iterable[Document], removed: Sequence[str], progress: Callable[[int], None]
    ) -> None:
        self.archive.index(codex, documents, removed, progress)

    def drop(self, codex: str) -> None:
        self.archive.drop(codex)

    def chunks(self, codex: str) -> int:
        return self.archive.stats(codex).chunks
