"""Vectors of the codices kept in step with their archives, in the background: one codex at a time, behind everything else.

    loaded, changed, mended, started ─▶ wanted ─▶ fill, a turn of it ─▶ complete
                                                   │ others wait: to the end of the line
                                                   │ the model is gone: again after a while

Without a model it does nothing. What is stored stays; what ends early goes on there.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from threading import Event
from time import monotonic

from codex.archive.archive import Archive
from codex.errors import CodexError
from codex.vectors.embedder import Embedder, UnembeddableText
from codex.vectors.filling import Filled, fill
from codex.vectors.index import VectorIndex
from orchestrator.wire.replies import EmbeddingProgress

TURN_SECONDS = 60.0  # before a codex lets others have theirs
AGAIN_SECONDS = 30.0  # after a fault

log = logging.getLogger("lorekeep.embedding")


@dataclass
class _Work:
    filled: Filled | None = None
    fault: str = ""
    refused: int = 0  # of what is done: texts that the model can make nothing of


@dataclass
class _Counting:
    """An embedder that counts the texts which it refuses."""

    embedder: Embedder
    refused: int = 0

    @property
    def name(self) -> str:
        return self.embedder.name

    @property
    def dimensions(self) -> int:
        return self.embedder.dimensions

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        try:
            return self.embedder.embed(texts)
        except UnembeddableText:
            self.refused += len(texts) == 1
            raise


class Filling:
    """Made in the event loop that it works in. `wanted` and `forget` may be called from any thread. `again` in seconds.

    `resting` says in any thread why nothing may be embedded now, '' where it may: what runs ends with its batch, and what
    is wanted is counted.
    """

    def __init__(
        self,
        archive: Archive,
        vectors: VectorIndex,
        embedder: Embedder | None,
        again: float = AGAIN_SECONDS,
        resting: Callable[[], str] = lambda: "",
    ) -> None:
        self.archive = archive
        self.vectors = vectors
        self.embedder = embedder
        self.again = again
        self.resting = resting
        self._line: dict[str, None] = {}  # in order
        self._work: dict[str, _Work] = {}
        self._known: frozenset[str] | None = None
        self._stopping = Event()
        self._arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run(embedder), name="embedding") if embedder is not None else None

    def keep_only(self, known: Collection[str]) -> None:
        """Deletes the vectors of all other codices, in the background. In the event loop."""
        self._known = frozenset(known)
        self._arrived.set()

    async def stop(self) -> None:
        """Returns when the batch that is being embedded is stored, or its model is gone: end the engine first."""
        self._stopping.set()
        if self._task is not None:
            self._arrived.set()
            await asyncio.gather(self._task, return_exceptions=True)

    def rested(self) -> None:
        """It may go on. In the event loop."""
        self._arrived.set()

    def wanted(self, name: str) -> None:
        """Something of this codex may have no vector."""
        if self._task is not None and not self._stopping.is_set():
            self._loop.call_soon_threadsafe(self._join, name)

    def forget(self, name: str) -> None:
        """For a codex that is dropped. Raises VectorError."""
        self._line.pop(name, None)
        self._work.pop(name, None)
        self.vectors.drop(name)

    def report(self, name: str) -> EmbeddingProgress | None:
        """How far it is. None without a model."""
        work = self._work.get(name)
        if self.embedder is None or work is None or work.filled is None:
            return None
        texts, embedded = work.filled.texts, work.filled.embedded
        fault = (self.resting() if embedded < texts else "") or work.fault
        return EmbeddingProgress(texts=texts, embedded=embedded, refused=work.refused, fault=fault)

    def blind(self, name: str) -> str:
        """What a search by meaning does not see yet, in words; '' when it sees all, or is not made."""
        found = self.report(name)
        if found is None or found.embedded == found.texts:
            return ""
        why = f" ({found.fault})" if found.fault else ""
        return f"{found.embedded:,} of {found.texts:,} texts of {name} can be found by meaning yet{why}"

    # -- in the event loop

    def _join(self, name: str) -> None:
        self._line[name] = None
        self._arrived.set()

    async def _run(self, embedder: Embedder) -> None:
        while not self._stopping.is_set():
            self._arrived.clear()
            if self._known is not None:
                known, self._known = self._known, None
                await asyncio.to_thread(self._sweep, known)
            failed = [name for name in list(self._line) if not await self._turn(name, embedder)]
            if self._stopping.is_set():
                return
            for name in failed:
                self._line[name] = None
            await self._arrival(self.again if self._line and not self.resting() else None)

    async def _arrival(self, seconds: float | None) -> None:
        """Waits until a codex is wanted, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            return

    async def _turn(self, name: str, embedder: Embedder) -> bool:
        """A turn of one codex; False after a fault that may pass."""
        self._line.pop(name, None)
        work = self._work.setdefault(name, _Work())
        try:
            filled = await asyncio.to_thread(self._fill, name, embedder, work)
        except CodexError as fault:
            if work.fault != str(fault) and not self._stopping.is_set():
                log.warning("%s", fault)
            work.fault = str(fault)
            return False
        if not filled.complete and not self._stopping.is_set() and name in self._work:
            self._line[name] = None
            if not self.resting():
                self._arrived.set()
        return True

    # -- in a thread

    def _sweep(self, known: frozenset[str]) -> None:
        """A codex that was dropped while it was being embedded may have left some."""
        try:
            for name in self.vectors.codices() - known - self._work.keys() - self._line.keys():
                self.vectors.drop(name)
        except CodexError as fault:
            log.warning("%s", fault)

    def _fill(self, name: str, embedder: Embedder, work: _Work) -> Filled:
        reports = 0  # the first says what there is; a turn has one batch at least, however long that took
        end = monotonic() + TURN_SECONDS
        counting = _Counting(embedder)

        def on_batch(filled: Filled) -> None:
            nonlocal reports
            reports += 1
            work.filled, work.refused = filled, counting.refused
            if filled.complete or reports > 1:
                work.fault = ""

        def stopped() -> bool:
            over = reports > 1 and bool(self._line) and monotonic() > end
            return over or bool(self.resting()) or self._stopping.is_set() or name not in self._work

        return fill(self.archive, self.vectors, counting, name, on_batch=on_batch, stopped=stopped)
