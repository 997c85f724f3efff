"""Loads that run: progress for whoever watches, and their end.

Each runs in a task of its own. Leaving the stream leaves the load running; others may come and watch.

    RUNNING ──last step done──▶ COMMITTED
       │ a user                    │
       ▼                           │ the program ends
    CANCELLED ─────────────────▶ CUT ◀── also from RUNNING

A cancelled load leaves the codex as it was. Does not know what a load does.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from threading import Event
from typing import TypeVar

from codex.errors import LoadCancelled
from codex.progress import CodexProgress, OnProgress
from orchestrator.cancellation import unless
from orchestrator.codices.report import progress_event
from orchestrator.errors import Conflict, LoadInProgress, LoreError, NotFound, NotReady
from orchestrator.service import LoadEvent
from orchestrator.wire.places import PHASES
from orchestrator.wire.replies import LoadReport, ProgressEvent

T = TypeVar("T")

# Twenty at once held all threads that answers need as well, which are six on two cores: an answer took 5 to 12 s.
AT_ONCE = 2
log = logging.getLogger("lorekeep.codices")


class LoadState(StrEnum):
    RUNNING = "running"
    COMMITTED = "committed"  # nobody can cancel it any more
    CANCELLED = "cancelled"  # it goes back to what was before
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

    def __init__(
        self, name: str, work: Callable[["RunningLoad"], Awaitable[None]], before: str = "", number: int = 1
    ) -> None:
        """Begins the work. `before`: why the last one of this name ended early."""
        self.name = name
        self.reported = LoadReport(
            codex=name, number=number, phase=None, done=0, total=0, rate=0.0, eta_s=None, ended=False, failed=""
        )
        self._before = before
        self.cancelled = Event()
        self.latest: LoadEvent | None = None
        self.failed = ""
        self.state = LoadState.RUNNING
        self._unwanted = asyncio.Event()  # once it is CANCELLED
        self._cut = ""  # why it is CUT
        self._watchers: set[asyncio.Queue[LoadEvent | LoreError | None]] = set()
        self._task = asyncio.create_task(self._run(work), name=f"load of {name}")

    def running(self) -> bool:
        return not self._task.done()

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

    def emit(self, event: LoadEvent) -> None:
        """To all who watch."""
        self.latest = event
        if isinstance(event, ProgressEvent):
            self._note(phase=event.phase, done=event.done, total=event.total, rate=event.rate, eta_s=event.eta_s)
        self._send(event)

    def _note(self, **changed: object) -> None:
        """In what is told of the load to who does not watch it."""
        self.reported = self.reported.model_copy(update=changed)

    def report(self, progress: CodexProgress) -> None:
        self.emit(progress_event(progress, self.name))

    def report_of_thread(self, check: Callable[[], None] = lambda: None) -> OnProgress:
        """`report` for a worker thread. What `check` raises ends the work that reports."""
        loop = asyncio.get_running_loop()

        def report(progress: CodexProgress) -> None:
            check()
            loop.call_soon_threadsafe(self.report, progress)

        return report

    @property
    def far(self) -> str:
        """`indexing files, 374 of 1,023`; '' while nothing was counted."""
        latest = self.latest
        if not isinstance(latest, ProgressEvent) or not latest.total:
            return ""
        return f"{PHASES[latest.phase]}, {latest.done:,} of {latest.total:,}"

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
    async def holding(self, lock: asyncio.Lock | asyncio.Semaphore) -> AsyncGenerator[None]:
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
        await asyncio.wait([self._task])

    async def stop(self, why: str = "the daemon is stopping") -> None:
        """Ends it: at once, but where a thread reads files, at the next one."""
        if self._task.done():
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

    async def _run(self, work: Callable[["RunningLoad"], Awaitable[None]]) -> None:
        try:
            await work(self)
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
            self._note(ended=True)
            self._send(None)

    def _ended(self) -> LoreError | None:
        """The fault of a load that the program ended."""
        if self.state is not LoadState.CUT:
            return None
        return NotReady(f"the load of {self.name} was cut off: {self._cut}", "load again: it continues")

    def _fail(self, fault: LoreError) -> None:
        # One that is refused because of others, such as whose name it is, says nothing of the codex that has it.
        self.failed = self._before if isinstance(fault, Conflict) else fault.message
        self._note(failed=fault.message)
        self._send(fault)

    def _send(self, event: LoadEvent | LoreError | None) -> None:
        for queue in tuple(self._watchers):
            queue.put_nowait(event)


class Loads:
    """All of them, by the codex's name or, while that is not known, by its path. Who reads, indexes or counts has one of
    the `turns`."""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(AT_ONCE)
        self._last: dict[str, RunningLoad] = {}
        self._begun = 0
        self._dropped: set[str] = set()  # they are being dropped

    def begin(self, name: str, work: Callable[[RunningLoad], Awaitable[None]]) -> RunningLoad:
        """Raises Conflict while a load of that name runs, or it is being dropped."""
        self._refuse_taken(name)
        self._begun += 1
        self._last[name] = load = RunningLoad(name, work, self.failed(name), self._begun)
        return load

    def find(self, name: str) -> RunningLoad | None:
        found = self._last.get(name)
        return found if found is not None and found.running() else None

    @contextmanager
    def dropping(self, name: str) -> Iterator[None]:
        """No load of that name begins inside. Raises Conflict while one runs."""
        self._refuse_taken(name)
        self._dropped.add(name)
        try:
            yield
        finally:
            self._dropped.discard(name)

    def _refuse_taken(self, name: str) -> None:
        if name in self._dropped:
            raise Conflict(f"{name!r} is being dropped", "try again in a moment")
        if self.find(name) is not None:
            watch = "watch it with `lore status`"
            raise LoadInProgress(f"a load of {name!r} is running", f"{watch}, or stop it: lore load --cancel {name}")

    def names(self) -> list[str]:
        """What is being loaded now."""
        return [name for name, load in self._last.items() if load.running()]

    def reports(self) -> tuple[LoadReport, ...]:
        """The last load of each name; of a codex that was dropped none."""
        return tuple(load.reported for load in self._last.values())

    def report(self, name: str) -> LoadReport | None:
        """None: no load of this name runs."""
        load = self.find(name)
        return load.reported if load is not None else None

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

    def unseen(self, name: str) -> str:
        """What a search of this codex may not see now, in words; '' while it is not being loaded."""
        load = self.find(name)
        if load is None:
            return ""
        far = f" ({load.far})" if load.far else ""
        return f"{name} is being loaded{far}: files that are not yet in may be missing from what was found"

    def far(self, name: str) -> str | None:
        """How far the running load of this name is, in words if anything is known; None: none runs."""
        load = self.find(name)
        return load.far if load is not None else None

    async def stop(self, why: str = "the daemon is stopping") -> None:
        for load in list(self._last.values()):
            await load.stop(why)
