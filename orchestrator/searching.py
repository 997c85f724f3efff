"""The archive behind the ports that answers and users search through."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codex.archive import Archive
from codex.documents import Document
from codex.search import Search
from orchestrator.context.evidence import Found, Hit


@dataclass(frozen=True)
class ArchiveSearch:
    """Searches in a worker thread: the event loop goes on streaming meanwhile."""

    search_in: Search

    async def search(self, query: str, codex: str, n: int) -> Found:
        """Passages for evidence. Raises CodexError."""
        found = await asyncio.to_thread(self.search_in.search, query, codex, n)
        hits = tuple(Hit(one.path, one.start, one.end, one.text, one.symbol, one.score) for one in found.hits)
        return Found(hits, found.notices)

    async def report(self, query: str, codex: str, n: int) -> list[Mapping[str, Any]]:
        """Hits as users see them. Raises CodexError."""
        found = await asyncio.to_thread(self.search_in.search, query, codex, n)
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
            for one in found.hits
        ]


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
