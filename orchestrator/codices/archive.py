"""A codex's archive: indexed by loads, kept complete in the background, searched for answers and users.

    load that ended early, kill, damage ─▶ compare with the catalog ─▶ index what differs ─▶ warm
                                            nothing differs: tens of milliseconds

A load indexes before its generation is committed; one that ends in between leaves an archive that is ahead of the codex.
The catalog holds every text, so nothing is read from disk. Knows no model: it may run before one is loaded.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event

from codex.archive.archive import Archive
from codex.catalog.generations import FileEntry
from codex.documents import Document
from codex.errors import ArchiveAway, ArchiveDamaged, ArchiveHeld, ArchiveOutOfReach, CodexError
from codex.following.amendments import effective
from codex.library import Library
from codex.searching.neighbourhood import Neighbourhoods
from codex.searching.search import Search, as_held
from codex.searching.search import SearchResult as Chunks
from codex.settings import RemoteArchive
from codex.words import asked
from formatters.context import Evidence
from orchestrator.prompt.evidence import FoundPassages
from orchestrator.wire.replies import SearchHit, SearchReply

log = logging.getLogger("lorekeep.codices")

AGAIN_S = 15.0  # how often what was out of reach is tried again
SELDOM = 40  # as many times less often, where this one never writes: comparing reads the paths of all chunks


@dataclass
class _Work:
    """One codex's archive being put in order. `mended` files were; `fault`: why the last attempt failed; `wanted`: once
    more, behind the one that runs; `doubted`: until it has ended, the archive may hold less than the codex."""

    task: "asyncio.Task[None] | None" = None
    done: int = 0
    total: int = 0
    mended: int = 0
    fault: str = ""
    wanted: bool = False
    doubted: bool = False


class ArchiveUpkeep:
    """At most one task for each codex. `disk` is held while an archive is compared and written, as loads hold it.

    `in_order` is called with the name of each codex whose archive is in order. `left`: the codices whose archive was out of
    reach of somebody who had to write to it, and why.
    """

    def __init__(
        self,
        library: Library,
        archive: Archive,
        disk: Callable[[str], asyncio.Lock],
        in_order: Callable[[str], None] = lambda name: None,  # noqa: ARG005
        left: dict[str, ArchiveOutOfReach] | None = None,
    ) -> None:
        self._library = library
        self._archive = archive
        self._disk = disk
        self._in_order = in_order
        self._left = {} if left is None else left
        self._work: dict[str, _Work] = {}
        self._trying: asyncio.Task[None] | None = None
        self._stopping = Event()

    def begin(self, name: str, *, doubted: bool = True) -> None:
        """Puts a codex's archive in order; once more, where that is under way: it may be past what is damaged now.

        Not `doubted`: behind a load that ended well."""
        if self._stopping.is_set():
            return
        work = self._work.setdefault(name, _Work())
        work.wanted, work.doubted = True, work.doubted or doubted
        if work.task is None or work.task.done():
            work.task = asyncio.create_task(self._keep_in_order(name, work), name=f"archive of {name}")
        if self._archive.remote is not None and self._trying is None:
            self._trying = asyncio.create_task(self._try_again(), name="archives out of reach")

    def unseen(self, name: str) -> str:
        """What a search of this codex may not see now, in words; '' when it sees all."""
        work, left = self._work.get(name), self._left.get(name)
        if left is not None and (work is None or not work.fault):
            return f"the archive of {name} is not complete: {left}"
        if work is None:
            return ""
        if work.fault:
            return f"the archive of {name} is not complete: {work.fault}"
        if work.total:
            return f"the archive of {name} is being indexed again ({work.done:,} of {work.total:,} files)"
        return f"the archive of {name} is being compared with its catalog" if work.doubted else ""

    def notice(self, name: str) -> str:
        """What happened to it since the daemon started."""
        work = self._work.get(name)
        if work is None or not work.mended or work.fault or work.total or work.doubted:
            return self.unseen(name)
        return f"its archive was damaged or not complete: {plural(work.mended)} indexed again"

    def forget(self, name: str) -> None:
        """What happened to its archive is past: the codex was loaded anew, or dropped."""
        self._work.pop(name, None)
        self._left.pop(name, None)

    async def stop(self) -> None:
        self._stopping.set()
        tasks = [work.task for work in self._work.values() if work.task is not None]
        if self._trying is not None:
            self._trying.cancel()
            tasks.append(self._trying)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_in_order(self, name: str, work: _Work) -> None:
        while work.wanted and not self._stopping.is_set():
            await self._put_in_order_once(name, work)
        work.doubted = False

    async def _try_again(self) -> None:
        """What was out of reach may be within reach by now."""
        rounds = 0
        while True:
            await asyncio.sleep(AGAIN_S)
            rounds += 1
            for name, fault in list(self._left.items()):
                if is_due(fault, time.time(), rounds):
                    self.begin(name, doubted=False)

    async def _put_in_order_once(self, name: str, work: _Work) -> None:
        try:
            async with self._disk(name):
                work.wanted = False
                await asyncio.to_thread(self._put_in_order, name, work)
            work.fault = ""
            self._left.pop(name, None)
            self._in_order(name)
        except CodexError as fault:
            if isinstance(fault, ArchiveOutOfReach):
                self._left[name] = fault
            if work.fault != str(fault):  # it is tried again and again
                log.warning("the archive of %s is not in order: %s", name, fault)
            work.fault = str(fault)
        finally:
            work.done = work.total = 0

    # -- in a thread

    def _put_in_order(self, name: str, work: _Work) -> None:
        codex = next((one for one in self._library.catalog.codices() if one.name == name), None)
        if codex is None or codex.newest is None:
            return
        self._index(name, work)
        try:
            self._archive.warm(name)  # so that the first search need not wait for it
        except ArchiveDamaged:
            self._index(name, work)

    def _index(self, name: str, work: _Work) -> None:
        generation = self._library.catalog.generation(name)
        now = effective(generation.digests(), self._library.catalog.amendments(name, generation.number))
        held = self._archive.held(name)
        missing = [FileEntry(path, digest, 0) for path, digest in sorted(now.items()) if held.get(path) != digest]
        removed = sorted(held.keys() - now.keys())
        if not missing and not removed:
            return
        began, work.total = time.monotonic(), len(missing)
        self._archive.index(name, self._until_stopped(missing), removed, lambda more: _count(work, more))
        work.mended = len(missing) + len(removed)
        took = time.monotonic() - began
        log.info("the archive of %s was put in order: %s in %.1f s", name, plural(work.mended), took)

    def _until_stopped(self, entries: list[FileEntry]) -> Iterator[Document]:
        for document in self._library.catalog.documents(entries):
            if self._stopping.is_set():
                return  # what is left is found missing by the next start
            yield document


def is_due(fault: ArchiveOutOfReach, now: float, rounds: int) -> bool:
    """Whether to try again: one that was away each time, one that is written by another when that may have ended."""
    if not isinstance(fault, ArchiveHeld):
        return True
    return now > fault.until if fault.until else rounds % SELDOM == 0


def plural(files: int) -> str:
    return "1 file" if files == 1 else f"{files:,} files"


def _count(work: _Work, more: int) -> None:
    work.done += more


@dataclass(frozen=True)
class ArchiveSearch:
    """Searches in a worker thread: the event loop goes on streaming meanwhile. `digests` gives those of these files that
    the codex answers from, and `read` one of them by path and digest. Each of `unseen` says in words what a search of a
    codex may not see now, '' when it sees all; `damaged` hears of an archive that was found so; `outdated` says, in a
    worker thread, what of these files is otherwise on disk. `remote`: a search there takes as long as one request may, and
    no longer: who asks is told, and LanceDB tries on in its thread until it gives up."""

    search_in: Search
    near: Neighbourhoods
    digests: Callable[[str, Collection[str]], Mapping[str, str]]
    read: Callable[[str, str], Document]
    unseen: Sequence[Callable[[str], str]] = ()
    damaged: Callable[[str], None] = field(default=lambda codex: None)  # noqa: ARG005
    outdated: Callable[[str, Sequence[str]], str] = field(default=lambda codex, paths: "")  # noqa: ARG005
    remote: RemoteArchive | None = None

    async def search(self, query: str, codex: str, n: int, *, graph: bool = False) -> FoundPassages:
        """Passages for evidence; with `graph` some of the neighbourhood behind them, at most `n` of both.

        Raises CodexError.
        """
        found, notices = await self._seen(query, codex, n, graph)
        hits = tuple(
            Evidence(path=one.path, start=one.start, end=one.end, text=one.text, symbol=one.symbol)
            for one in found.hits
        )
        return FoundPassages(hits, notices)

    async def report(
        self, query: str, codex: str, n: int, *, graph: bool = False, branch: str | None = None
    ) -> SearchReply:
        """Hits as users see them, and what was not seen; with `graph` behind all hits at most `n` that lie near them.

        Raises CodexError.
        """
        found, notices = await self._seen(query, codex, n, graph, beside=True)
        question = asked(query)
        strings = question.exact
        hits = tuple(
            SearchHit.of(one, exact=bool(strings) and all(string in one.text for string in strings), branch=branch)
            for one in found.hits
        )
        shown = sum(hit.exact for hit in hits)
        left = sum(found.holding.values()) - shown
        more = (not_shown(left),) if strings and left > 0 else ()
        held = any(string in one.text for one in found.hits for string in strings)
        return SearchReply(hits=hits, notices=(*more, *notices), absent=question.quoted and not held)

    async def _seen(
        self, query: str, codex: str, n: int, graph: bool, *, beside: bool = False
    ) -> tuple[Chunks, tuple[str, ...]]:
        """What was found, and what could not be seen when it began or ended."""
        before = self._unseen(codex)
        try:
            async with asyncio.timeout(self.remote.timeout_s if self.remote else None):
                found, outdated = await asyncio.to_thread(self._found, query, codex, n, graph, beside)
        except ArchiveDamaged:
            self.damaged(codex)
            raise
        except TimeoutError:
            raise ArchiveAway(self.remote.uri if self.remote else "", "it does not answer in time") from None
        unseen = before or self._unseen(codex)
        return found, (*found.notices, *(notice for notice in (unseen, outdated) if notice))

    def _unseen(self, codex: str) -> str:
        return "; ".join(filter(None, (unseen(codex) for unseen in self.unseen)))

    def _found(self, query: str, codex: str, n: int, graph: bool, beside: bool) -> tuple[Chunks, str]:
        found = self.search_in.search(query, codex, n, passages=not beside)
        if graph:
            found = self.near.joined(query, codex, found, n, beside=beside)
        if found.hits:
            found = as_held(found, query, self.digests(codex, {hit.path for hit in found.hits}), self.read)
        return found, self.outdated(codex, sorted({hit.path for hit in found.hits}))


def not_shown(places: int) -> str:
    """At least: of a string that is all over the code, and of one inside longer words, not every place is looked up."""
    more = "1 more place holds" if places == 1 else f"{places} more places hold"
    return f"at least {more} what was asked for as it is; a larger -n shows more"


@dataclass(frozen=True)
class ArchiveIndexer:
    """The archive as the library's index. Its progress is the library's.

    `changed` hears of a codex whose chunks are others now, `dropped` of one that is gone; in the thread that did it.
    `left`: why what had to be written to an archive was not, where it was out of reach.
    """

    archive: Archive
    changed: Callable[[str], None] = field(default=lambda codex: None)  # noqa: ARG005
    dropped: Callable[[str], None] = field(default=lambda codex: None)  # noqa: ARG005
    left: dict[str, ArchiveOutOfReach] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)

    def held(self, codex: str) -> Mapping[str, str]:
        with self._noting(codex):
            return self.archive.held(codex)

    def index(
        self, codex: str, documents: Iterable[Document], removed: Sequence[str], progress: Callable[[int], None]
    ) -> None:
        with self._noting(codex):
            self.archive.index(codex, documents, removed, progress)
        self.changed(codex)

    def drop(self, codex: str) -> None:
        self.archive.drop(codex)
        self.dropped(codex)

    def chunks(self, codex: str) -> int:
        """How many there are, or were when that could last be asked."""
        with suppress(ArchiveOutOfReach):
            self.counted[codex] = self.archive.count(codex)
        return self.counted.get(codex, 0)

    @contextmanager
    def _noting(self, codex: str) -> Iterator[None]:
        try:
            yield
        except ArchiveOutOfReach as fault:
            self.left[codex] = fault
            raise
