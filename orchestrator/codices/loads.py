"""Loads that run, each in a task of its own: whoever started one may leave, others may come and watch.

RUNNING ──last step done──▶ COMMITTED
   │ a person                  │
   ▼                           │ the program ends
CANCELLED ─────────────────▶ CUT ◀── also from RUNNING

A cancelled load leaves the codex as it was: `StateBeforeLoad` is what it goes back to. What was read of its files stays in
the catalog, unseen; the next load continues from there.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from threading import Event
from typing import TypeVar

from codex.catalog.generations import Codex
from codex.errors import CodexError, LoadCancelled, UnknownCodex
from codex.library import Library
from orchestrator.codices.state import CodexState
from orchestrator.codices.state_store import CodexStateStore, Wishes
from orchestrator.errors import Conflict, LoreError, NotFound, NotReady
from orchestrator.racing import unless
from orchestrator.service import LoadEvent
from orchestrator.wire.replies import ProgressEvent

T = TypeVar("T")
Emit = Callable[[LoadEvent], None]

log = logging.getLogger("lorekeep.codices")


class LoadState(StrEnum):
    RUNNING = "running"
    COMMITTED = "committed"  # nobody can cancel it any more
    CANCELLED = "cancelled"  # it goes back to what stood before
    CUT = "cut"  # it leaves what it has, and the next load continues


ALLOWED = {
    LoadState.RUNNING: {LoadState.COMMITTED, LoadState.CANCELLED, LoadState.CUT},
    LoadState.COMMITTED: {LoadState.CUT},
    LoadState.CANCELLED: {LoadState.CUT},
    LoadState.CUT: set[LoadState](),
}


class RunningLoad:
    """Emits events to all who watch; the last is `loaded` or a fault. `cancelled` is for threads to look at: it is set
    once a person or the program wants it to end."""

    def __init__(self, name: str, before: str = "") -> None:
        """`before`: why the last one of this name ended early."""
        self.name = name
        self._before = before
        self.cancelled = Event()
        self.latest: LoadEvent | None = None
        self.failed = ""
        self.state = LoadState.RUNNING
        self._unwanted = asyncio.Event()  # once it is CANCELLED
        self._cut = ""  # why it is CUT
        self._watchers: set[asyncio.Queue[LoadEvent | LoreError | None]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Callable[[Emit], Awaitable[None]]) -> None:
        self._task = asyncio.create_task(self._run(work), name=f"load of {self.name}")

    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def watch(self) -> AsyncGenerator[LoadEvent]:
        """Events from now on. Raises the load's fault."""
        queue: asyncio.Queue[LoadEvent | LoreError | None] = asyncio.Queue()
        self._watchers.add(queue)
        try:
            while (event := await queue.get()) is not None:
                if isinstance(event, LoreError):
                    raise event
                yield event
        finally:
            self._watchers.discard(queue)

    @property
    def far(self) -> str:
        """`index 374 of 1,023`; '' while nothing was counted."""
        latest = self.latest
        if not isinstance(latest, ProgressEvent) or not latest.total:
            return ""
        return f"{latest.phase} {latest.done:,} of {latest.total:,}"

    # -- its end

    def check(self) -> None:
        """Raises LoadCancelled once somebody wants it to end; in any thread."""
        if self.cancelled.is_set():
            raise LoadCancelled("the load was cancelled")

    async def unless_cancelled(self, work: Awaitable[T]) -> T:
        """The work's result. Ends it and raises LoadCancelled when a person cancels the load first."""
        return await unless(self._unwanted.wait(), work, LoadCancelled("the load was cancelled"))

    async def in_thread(self, work: Awaitable[T]) -> T:
        """The result of work whose thread looks at `cancelled`. Whatever ends the load, the thread has ended before."""
        job = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(job)
        finally:
            await asyncio.wait({job})

    @asynccontextmanager
    async def holding(self, lock: asyncio.Lock) -> AsyncGenerator[None]:
        """Holds a lock that others may hold for long. Raises LoadCancelled when a person cancels the load first."""
        turn = asyncio.ensure_future(lock.acquire())
        try:
            await self.unless_cancelled(turn)
            yield
        finally:
            if turn.done() and not turn.cancelled():  # also where the load was ended in the moment in which it got it
                lock.release()

    def commit(self) -> None:
        """From now on it cannot be cancelled. Raises LoadCancelled when it was."""
        self.check()
        self._enter(LoadState.COMMITTED)

    async def cancel(self) -> None:
        """Returns when it has ended and what it did is taken back. Raises Conflict when it is too late."""
        if self.state is LoadState.COMMITTED:
            raise Conflict(f"{self.name!r} is loaded already", f"take it out again: lore codex drop {self.name}")
        if self.state is LoadState.RUNNING:
            self._enter(LoadState.CANCELLED)
            self.cancelled.set()
            self._unwanted.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def stop(self, why: str = "the daemon is stopping") -> None:
        """Ends it: at once, but where a thread takes in, at the next file."""
        if self._task is None or self._task.done():
            return
        if self.state is not LoadState.CUT:
            self._enter(LoadState.CUT)
            self._cut = why
            self.cancelled.set()
            self._task.cancel()
        await asyncio.wait([self._task])

    def _enter(self, state: LoadState) -> None:
        assert state in ALLOWED[self.state], f"load of {self.name}: {self.state} → {state}"
        self.state = state

    async def _run(self, work: Callable[[Emit], Awaitable[None]]) -> None:
        try:
            await work(self._emit)
        except LoreError as fault:
            self._fail(self._ended() or fault)
        except BaseException as fault:  # whoever watches must not take the end of the stream for that of the load
            if isinstance(fault, Exception):
                log.error("the load of %s broke off", self.name, exc_info=fault)
            self._fail(
                self._ended()
                or LoreError(f"the load of {self.name} broke off", "see the daemon's log; load again: it continues")
            )
            raise
        finally:
            self._send(None)

    def _ended(self) -> LoreError | None:
        """What is told of a load that the program ended."""
        if self.state is not LoadState.CUT:
            return None
        return NotReady(f"the load of {self.name} was cut off: {self._cut}", "load again: it continues")

    def _fail(self, fault: LoreError) -> None:
        # One that is refused because of others, such as whose name it is, says nothing of the codex that has it.
        self.failed = self._before if isinstance(fault, Conflict) else fault.message
        self._send(fault)

    def _emit(self, event: LoadEvent) -> None:
        self.latest = event
        self._send(event)

    def _send(self, event: LoadEvent | LoreError | None) -> None:
        for queue in tuple(self._watchers):
            queue.put_nowait(event)


class Loads:
    """All of them, by the codex's name or, while that is not known, by its path."""

    def __init__(self) -> None:
        self._last: dict[str, RunningLoad] = {}

    def begin(self, name: str, work: Callable[[RunningLoad, Emit], Awaitable[None]]) -> RunningLoad:
        load = RunningLoad(name, self.failed(name))
        self._last[name] = load
        load.start(lambda emit: work(load, emit))
        return load

    def find(self, name: str) -> RunningLoad | None:
        found = self._last.get(name)
        return found if found is not None and found.running() else None

    def names(self) -> list[str]:
        """What is being loaded now."""
        return [name for name, load in self._last.items() if load.running()]

    async def cancel(self, name: str) -> None:
        """Raises NotFound when nothing of that name is being loaded, Conflict when it just has been."""
        load = self.find(name)
        if load is None:
            raise NotFound(f"no load of {name!r} is running", "`lore status` shows what is")
        await load.cancel()

    def failed(self, name: str) -> str:
        """Why the last load of this name ended early, '' when it did not."""
        last = self._last.get(name)
        return last.failed if last is not None else ""

    def forget(self, name: str) -> None:
        """For a codex that is dropped."""
        if self.find(name) is None:
            self._last.pop(name, None)

    def blind(self, name: str) -> str:
        """What a search of this codex may not see now, in words; '' while it is not being loaded."""
        load = self.find(name)
        if load is None:
            return ""
        far = f" ({load.far})" if load.far else ""
        return f"{name} is being indexed{far}: files that are not yet in may be missing from what was found"

    def far(self, name: str) -> str | None:
        """How far the running load of this name is, in words if anything is known; None: none runs."""
        load = self.find(name)
        return load.far if load is not None else None

    async def stop(self, why: str = "the daemon is stopping") -> None:
        for load in list(self._last.values()):
            await load.stop(why)


@dataclass(frozen=True)
class StateBeforeLoad:
    """`codex` as the catalog had it, with the generation that stood as its newest; None: it was not known. `began`: when
    the load did."""

    name: str
    codex: Codex | None
    standing: CodexState | None
    wishes: Wishes
    hot: tuple[str, ...] | None
    began: float = field(default_factory=time.time)

    @property
    def number(self) -> int | None:
        """The generation that stood."""
        return self.codex.newest if self.codex else None


def state_before(library: Library, ledger: CodexStateStore, name: str, standing: CodexState | None) -> StateBeforeLoad:
    """`standing`: the codex as it stands, None when it was not raised. Raises CodexError."""
    try:
        codex = library.codex(name)
    except UnknownCodex:
        return StateBeforeLoad(name, None, None, Wishes(), None)
    if standing is not None:
        codex = replace(codex, newest=standing.generation.number)
    hot = ledger.frozen(name, codex.newest) if codex.newest is not None else None
    return StateBeforeLoad(name, codex, standing, ledger.wishes(name), hot)


def take_back(library: Library, ledger: CodexStateStore, was: StateBeforeLoad) -> None:
    """Raises CodexError. One that was not known stays, if it got so far, as one that was never loaded to its end."""
    found = was.codex or next((replace(one, newest=None) for one in library.codices() if one.name == was.name), None)
    if found is None:
        return
    library.take_back(found)
    ledger.rewish(was.name, was.wishes)
    if was.number is not None and was.hot is not None:
        ledger.freeze(was.name, was.number, was.hot)


def note_compared(ledger: CodexStateStore, was: StateBeforeLoad) -> None:
    """A load has ended well: from when it began on, changes on disk are seen by whoever follows them."""
    try:
        ledger.compared(was.name, was.began)
    except CodexError as fault:
        log.warning("when %s was loaded was not kept: %s", was.name, fault)


def compared_at(ledger: CodexStateStore, name: str) -> float | None:
    """When the last load that ended well began, in seconds since 1970; None where that is not known."""
    try:
        return ledger.compared_at(name)
    except CodexError:
        return None
