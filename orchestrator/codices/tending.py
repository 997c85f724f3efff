"""A codex's archive kept true, in the background: it holds what stands, is built again when damaged, and is warm.

    load that ended early, kill, damage ─▶ compare with the catalog ─▶ index what differs ─▶ warm
                                            nothing differs: tens of milliseconds

A load indexes before its generation stands; one that ends in between leaves an archive that is ahead of the codex. The
catalog holds every text, so nothing is read from disk. Knows no model: it may run before one is loaded.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event

from codex.amendments import effective
from codex.archive.archive import Archive, ArchiveDamaged
from codex.catalog.generations import FileEntry
from codex.documents import Document
from codex.errors import CodexError
from codex.library import Library

log = logging.getLogger("lorekeep.shelf")


@dataclass
class _Work:
    """One codex's archive being put in order. `mended` files were; `fault`: why the last attempt failed; `wanted`: once
    more, behind the one that runs; `doubted`: until it has ended, the archive may hold less than stands."""

    task: "asyncio.Task[None] | None" = None
    done: int = 0
    total: int = 0
    mended: int = 0
    fault: str = ""
    wanted: bool = False
    doubted: bool = False


class Tending:
    """At most one task for each codex. `disk` is held while an archive is compared and written, as loads hold it.

    `settled` hears of each that is in order.
    """

    def __init__(
        self,
        library: Library,
        archive: Archive,
        disk: Callable[[str], asyncio.Lock],
        settled: Callable[[str], None] = lambda name: None,  # noqa: ARG005
    ) -> None:
        self._library = library
        self._archive = archive
        self._disk = disk
        self._settled = settled
        self._work: dict[str, _Work] = {}
        self._stopping = Event()

    def begin(self, name: str, *, doubted: bool = True) -> None:
        """Puts a codex's archive in order; once more, where that is under way: it may be past what is damaged now.

        Not `doubted`: behind a load that ended well."""
        if self._stopping.is_set():
            return
        work = self._work.setdefault(name, _Work())
        work.wanted, work.doubted = True, work.doubted or doubted
        if work.task is None or work.task.done():
            work.task = asyncio.create_task(self._tend(name, work), name=f"archive of {name}")

    def blind(self, name: str) -> str:
        """What a search of this codex may not see now, in words; '' when it sees all."""
        work = self._work.get(name)
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
            return self.blind(name)
        return f"its archive was damaged or not complete: {plural(work.mended)} indexed again"

    def forget(self, name: str) -> None:
        """What happened to its archive is past: the codex was loaded anew, or dropped."""
        self._work.pop(name, None)

    async def stop(self) -> None:
        self._stopping.set()
        tasks = [work.task for work in self._work.values() if work.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _tend(self, name: str, work: _Work) -> None:
        while work.wanted and not self._stopping.is_set():
            await self._tend_once(name, work)
        work.doubted = False

    async def _tend_once(self, name: str, work: _Work) -> None:
        try:
            async with self._disk(name):
                work.wanted = False
                await asyncio.to_thread(self._put_in_order, name, work)
            work.fault = ""
            self._settled(name)
        except CodexError as fault:
            work.fault = str(fault)
            log.warning("the archive of %s is not in order: %s", name, fault)
        finally:
            work.done = work.total = 0

    # -- in a thread

    def _put_in_order(self, name: str, work: _Work) -> None:
        codex = next((one for one in self._library.codices() if one.name == name), None)
        if codex is None or codex.newest is None:
            return
        self._index(name, work)
        try:
            self._archive.warm(name)  # so that the first search need not wait for it
        except ArchiveDamaged:
            self._index(name, work)

    def _index(self, name: str, work: _Work) -> None:
        generation = self._library.generation(name)
        now = effective(generation.digests(), self._library.amendments(name, generation.number))
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
        for document in self._library.documents_of(entries):
            if self._stopping.is_set():
                return  # what is left is found missing by the next start
            yield document


def plural(files: int) -> str:
    return "1 file" if files == 1 else f"{files:,} files"


def _count(work: _Work, more: int) -> None:
    work.done += more
