"""The archive behind the ports that answers and users search through."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codex.archive.archive import Archive, ArchiveDamaged
from codex.documents import Document
from codex.searching.asked import asked
from codex.searching.neighbourhood import Neighbourhoods
from codex.searching.search import Search
from codex.searching.search import SearchResult as Chunks
from orchestrator.prompt.evidence import FoundPassage, FoundPassages


@dataclass(frozen=True)
class ArchiveSearch:
    """Searches in a worker thread: the event loop goes on streaming meanwhile. `blind` says in words what a search of a
    codex may not see now, '' when it sees all; `damaged` hears of an archive that was found so; `outdated` says, in a
    worker thread, what of these files is otherwise on disk."""

    search_in: Search
    near: Neighbourhoods
    blind: Callable[[str], str] = field(default=lambda codex: "")  # noqa: ARG005
    damaged: Callable[[str], None] = field(default=lambda codex: None)  # noqa: ARG005
    outdated: Callable[[str, Sequence[str]], str] = field(default=lambda codex, paths: "")  # noqa: ARG005

    async def search(self, query: str, codex: str, n: int, *, graph: bool = False) -> FoundPassages:
        """Passages for evidence; with `graph` some of the neighbourhood behind them, at most `n` of both.

        Raises CodexError.
        """
        found, notices = await self._seen(query, codex, n, graph)
        hits = tuple(FoundPassage(one.path, one.start, one.end, one.text, one.symbol, one.score) for one in found.hits)
        return FoundPassages(hits, notices)

    async def report(self, query: str, codex: str, n: int, *, graph: bool = False) -> Mapping[str, Any]:
        """Hits as users see them, and what was not seen; with `graph` behind all hits at most `n` that lie near them.

        Raises CodexError.
        """
        found, notices = await self._seen(query, codex, n, graph, beside=True)
        strings = asked(query).exact
        hits = [
            {
                "path": one.path,
                "start": one.start,
                "end": one.end,
                "symbol": one.symbol,
                "score": one.score,
                "scores": dict(one.scores),
                "snippet": one.snippet,
                "line": one.line,
                "exact": bool(strings) and all(string in one.text for string in strings),
                "near": one.near,
            }
            for one in found.hits
        ]
        shown = sum(bool(hit["exact"]) for hit in hits)
        more = (not_shown(found.holding - shown),) if strings and found.holding > shown else ()
        return {"hits": hits, "notices": [*more, *notices]}

    async def _seen(
        self, query: str, codex: str, n: int, graph: bool, *, beside: bool = False
    ) -> tuple[Chunks, tuple[str, ...]]:
        """What was found, and what could not be seen when it began or ended."""
        before = self.blind(codex)
        try:
            found, outdated = await asyncio.to_thread(self._found, query, codex, n, graph, beside)
        except ArchiveDamaged:
            self.damaged(codex)
            raise
        blind = before or self.blind(codex)
        return found, (*found.notices, *(notice for notice in (blind, outdated) if notice))

    def _found(self, query: str, codex: str, n: int, graph: bool, beside: bool) -> tuple[Chunks, str]:
        found = self.search_in.search(query, codex, n)
        if graph:
            found = (self.near.beside if beside else self.near.joined)(query, codex, found, n)
        return found, self.outdated(codex, sorted({hit.path for hit in found.hits}))


def not_shown(places: int) -> str:
    """At least: of a string that is all over the code, and of one inside longer words, not every place is looked up."""
    more = "1 more place holds" if places == 1 else f"{places} more places hold"
    return f"at least {more} what was asked for as it is; a larger -n shows more"


@dataclass(frozen=True)
class ArchiveIndexer:
    """The archive as the library's index. Its progress is the library's.

    `changed` hears of a codex whose chunks are others now, `dropped` of one that is gone; in the thread that did it.
    """

    archive: Archive
    changed: Callable[[str], None] = field(default=lambda codex: None)  # noqa: ARG005
    dropped: Callable[[str], None] = field(default=lambda codex: None)  # noqa: ARG005

    def held(self, codex: str) -> Mapping[str, str]:
        return self.archive.held(codex)

    def index(
        self, codex: str, documents: Iterable[Document], removed: Sequence[str], progress: Callable[[int], None]
    ) -> None:
        self.archive.index(codex, documents, removed, progress)
        self.changed(codex)

    def drop(self, codex: str) -> None:
        self.archive.drop(codex)
        self.dropped(codex)

    def chunks(self, codex: str) -> int:
        return self.archive.stats(codex).chunks
