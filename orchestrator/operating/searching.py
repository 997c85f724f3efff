"""The archive behind the ports that answers and users search through."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codex.archive.archive import Archive, ArchiveDamaged
from codex.documents import Document
from codex.searching.asked import asked
from codex.searching.neighbourhood import Neighbourhoods
from codex.searching.search import Found as Chunks
from codex.searching.search import Search
from orchestrator.context.evidence import Found, Hit


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

    async def search(self, query: str, codex: str, n: int, *, graph: bool = False) -> Found:
        """Passages for evidence; with `graph` the neighbourhood of what was found behind it. Raises CodexError."""
        found, notices = await self._seen(query, codex, n, graph)
        hits = tuple(Hit(one.path, one.start, one.end, one.text, one.symbol, one.score) for one in found.hits)
        return Found(hits, notices)

    async def report(self, query: str, codex: str, n: int, *, graph: bool = False) -> Mapping[str, Any]:
        """Hits as users see them, and what was not seen. Raises CodexError."""
        found, notices = await self._seen(query, codex, n, graph)
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
            }
            for one in found.hits
        ]
        return {"hits": hits, "notices": list(notices)}

    async def _seen(self, query: str, codex: str, n: int, graph: bool) -> tuple[Chunks, tuple[str, ...]]:
        """What was found, and what could not be seen when it began or ended."""
        before = self.blind(codex)
        try:
            found, outdated = await asyncio.to_thread(self._found, query, codex, n, graph)
        except ArchiveDamaged:
            self.damaged(codex)
            raise
        blind = before or self.blind(codex)
        return found, (*found.notices, *(notice for notice in (blind, outdated) if notice))

    def _found(self, query: str, codex: str, n: int, graph: bool) -> tuple[Chunks, str]:
        found = self.search_in.search(query, codex, n)
        found = self.near.joined(query, codex, found, n) if graph else found
        return found, self.outdated(codex, sorted({hit.path for hit in found.hits}))


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
