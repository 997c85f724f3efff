"""Loads: from a request to a codex that is served, with progress for whoever watches.

    name ─▶ read and index (library) ─▶ wait for the model ─▶ build, compute the floor (`CodexLifecycle`) ─▶ committed

Each runs in a task of its own. Leaving the stream leaves the load running; others may come and watch. A watcher that
applies changes holds the same lock; a load waits for it.

    RUNNING ──last step done──▶ COMMITTED
       │ a user                    │
       ▼                           │ the program ends
    CANCELLED ─────────────────▶ CUT ◀── also from RUNNING

A cancelled load leaves the codex as it was: `StateBeforeLoad` is what it goes back to. What was read of its files stays in
the catalog, unseen; the next load continues from there. A codex that was not known before stays listed as not loaded to
the end.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from threading import Event
from typing import TypeVar

from codex.errors import LoadCancelled
from codex.library import Library, LoadResult, SampledFile, sample_head
from codex.progress import CodexProgress, OnProgress, progress_at
from codex.reload_match import valid_name
from codex.trees.ignore import Globs
from codex.trees.sources import LoadSpec
from orchestrator.cancellation import unless
from orchestrator.codices.archive import ArchiveUpkeep
from orchestrator.codices.building import mended
from orchestrator.codices.coverages import surveyed
from orchestrator.codices.floors import Floors
from orchestrator.codices.freshness import CodexWatchers, load_or_drop
from orchestrator.codices.lifecycle import CodexLifecycle
from orchestrator.codices.report import CodexReports, progress_event, tokens_of
from orchestrator.codices.resident import ResidentCodices
from orchestrator.codices.state import CodexState
from orchestrator.codices.state_store import CodexStateStore, StateBeforeLoad
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import ChildState
from orchestrator.errors import (
    Conflict,
    FilesWanted,
    InvalidRequest,
    LoadInProgress,
    LoreError,
    NotFound,
    NotPermitted,
    NotReady,
    OverBudget,
    translated,
)
from orchestrator.machine.machine import Machine
from orchestrator.model.chat_model import WHOLE, ChatModel, arriving, engine_ready
from orchestrator.prompt.coverage import coverage_named, decide_coverage
from orchestrator.service import LoadEvent, Principal
from orchestrator.wire.names import OWNED, owned, owner_of, short
from orchestrator.wire.places import PHASES, is_url
from orchestrator.wire.replies import CodexReport, LoadedEvent, LoadReport, ProgressEvent
from orchestrator.wire.requests import LoadBody

T = TypeVar("T")

# Twenty at once held all threads that answers need as well, which are six on two cores: an answer took 5 to 12 s.
AT_ONCE = 2
log = logging.getLogger("lorekeep.codices")


@dataclass(frozen=True)
class CodexLoader:
    """`model_ready` gives a future that is done when the chat model is."""

    library: Library
    residents: ResidentCodices
    lifecycle: CodexLifecycle
    loads: "Loads"
    floors: Floors
    store: CodexStateStore
    machine: Machine
    client: EngineClient
    watchers: CodexWatchers
    upkeep: ArchiveUpkeep
    reports: CodexReports
    model_ready: Callable[[], "asyncio.Future[ChatModel]"]

    async def load(self, principal: Principal, request: LoadBody) -> AsyncIterator[LoadEvent]:
        """Loads or updates a codex. Raises LoreError; Conflict while the same name is being loaded."""
        wanted = library_request(principal, request)
        if request.tier is not None and request.tier != "auto":
            coverage_named(request.tier)
        with translated():
            name = await asyncio.to_thread(self.library.name_of, wanted)
        if request.dry_run:
            if not self.model_ready().done():
                yield progress_event(progress_at("model", int(WHOLE * self.client.loaded), WHOLE, 0.0))
            yield await self._survey(wanted)
            return
        load = self.loads.begin(name, lambda load: self._load(wanted, request, load))
        async with aclosing(load.watch()) as events:
            async for event in events:
                yield event

    async def reload(self, principal: Principal, name: str) -> AsyncIterator[LoadEvent]:
        """Loads a codex again from where it came. Raises NotFound, Conflict."""
        with translated():
            wanted = await asyncio.to_thread(self.library.request, name)
        request = LoadBody(path=wanted.sources[0], name=name, more=tuple(wanted.sources[1:]), watch=watched(wanted))
        for place in () if wanted.sent else wanted.sources:
            readable(principal, place)
        load = self.loads.begin(name, lambda load: self._load(wanted, request, load))
        async with aclosing(load.watch()) as events:
            async for event in events:
                yield event

    async def _load(self, wanted: LoadSpec, request: LoadBody, load: "RunningLoad") -> None:
        """A load that is cancelled or refused leaves the codex as it was."""
        name = load.name
        try:
            was = await self.lifecycle.load_began(name)
            with translated():
                await asyncio.to_thread(self.store.resume, name)
            try:
                with translated():
                    state = await self._loaded(wanted, request, load)
                    load.commit()
                await self.lifecycle.load_committed(was)
            except LoreError as fault:
                if load.state is LoadState.CANCELLED:
                    raise await self._gone_back(was) from fault
                if load.state is LoadState.RUNNING and isinstance(fault, (OverBudget, InvalidRequest)):
                    await self._go_back(was)
                raise
            self.upkeep.forget(name)
            load.emit(LoadedEvent(event="loaded", codex=self.reports.of(state, loading=False)))
        finally:
            self.lifecycle.load_ended(name)
            # One that ended early has left an archive ahead of what is served.
            self.upkeep.begin(name, doubted=load.state is not LoadState.COMMITTED)

    async def _loaded(self, wanted: LoadSpec, request: LoadBody, load: "RunningLoad") -> CodexState:
        """Raises LoreError; LoadCancelled wherever it finds that it was."""
        name = load.name
        async with load.holding(self.residents.disk(name)), load.holding(self.loads.turns):
            if wanted.sent:
                await asyncio.to_thread(self.library.sent.accept, name)
            await load.in_thread(self._read(wanted, load))
        load.check()
        watch = False if wanted.sent else request.watch
        await asyncio.to_thread(self.store.wish, name, request.tier, watch)
        await load.unless_cancelled(self._model(load))
        async with load.holding(self.loads.turns):
            state = await self._built(name, request.tier, load)
        load.check()
        self.watchers.follow(name, (await asyncio.to_thread(self.store.wishes, name)).watch)
        if request.wait:
            await load.unless_cancelled(self._floor(load))
        return self.residents.get(name) or state

    async def _read(self, wanted: LoadSpec, load: "RunningLoad") -> LoadResult:
        report = load.report_of_thread()
        with translated():
            return await mended(lambda: self.library.load(wanted, report, load.cancelled.is_set))

    async def _model(self, load: "RunningLoad") -> None:
        ready = asyncio.ensure_future(engine_ready(self.model_ready(), self.client))
        try:
            async for percent in arriving(ready, self.client):
                paused = self.client.state is ChildState.PAUSED
                load.report(
                    progress_at("pause", percent, WHOLE, 0.0) if paused else progress_at("model", percent, WHOLE, 0.0)
                )
            await ready
        finally:
            ready.cancel()

    async def _built(self, name: str, tier: str | None, load: "RunningLoad") -> CodexState:
        """Raises OverBudget, InvalidRequest where this load itself asks for a coverage that cannot be; one that an earlier
        load, the settings or the codex ask for gives way, with a notice."""
        strict = tier not in (None, "auto")
        try:
            return await self.residents.build(name, load.report_of_thread(load.check), strict=strict, release=False)
        except (OverBudget, InvalidRequest) as fault:
            fault.hint = "; or ".join(filter(None, (fault.hint, "load it without --tier, or with --tier auto")))
            raise

    async def _floor(self, load: "RunningLoad") -> None:
        began = time.monotonic()
        await self.floors.ended(
            load.name, lambda done, total: load.report(progress_at("prefill", done, total, time.monotonic() - began))
        )

    async def _gone_back(self, was: StateBeforeLoad) -> LoreError:
        """The fault of a cancelled load, with the codex as it was."""
        await self._go_back(was)
        if was.number is None:
            return LoreError(f"the load was cancelled: {was.name} is not loaded to the end", load_or_drop(was.name))
        return LoreError(f"the load was cancelled: {was.name} is as it was before")

    async def _go_back(self, was: StateBeforeLoad) -> None:
        await self.residents.go_back(was)
        if was.number is not None:
            self.watchers.follow(was.name, was.wishes.watch)

    async def _survey(self, wanted: LoadSpec) -> LoadEvent:
        """What a load would take; nothing of it is in the catalog."""
        with translated():
            found = await asyncio.to_thread(self.library.survey, wanted)
        chat_model = await asyncio.shield(self.model_ready())
        room = self.machine.room(0)
        sizes = await asyncio.to_thread(surveyed, found.sample, found.files, found.bytes, chat_model.count_in_thread)
        decision = decide_coverage(sizes, room)
        report = CodexReport(
            name=found.name,
            root=wanted.sources[0],
            roots=wanted.sources,
            generation=0,
            files=found.files,
            skipped=dict(found.skipped),
            notices=found.notices,
            tokens=tokens_of(sizes, decision),
            estimated=sizes.estimated,
            tier=decision.coverage.value,
            reason=f"{decision.reason}; {known_from(found.sample, found.files)}",
            hint=decision.hint,
            kv_bytes=round(decision.tokens * self.reports.kv_bytes_per_token),
            indexed_chunks=0,
        )
        return LoadedEvent(event="loaded", codex=report)


def known_from(sample: Sequence[SampledFile], files: int) -> str:
    """How a survey knows its figures: a sample may leave out files, and the ends of long ones."""
    if len(sample) < files:
        return f"estimated from {len(sample):,} of {files:,} files"
    whole = all(sample_head(one.text or "") == (one.text or "") for one in sample)
    return "all its files were read" if whole else f"estimated from the beginnings of all {files:,} files"


def library_request(principal: Principal, request: LoadBody) -> LoadSpec:
    """What the library is asked for. Raises NotPermitted, InvalidRequest."""
    if request.sent:
        return sent_spec(principal, request)
    if OWNED in (request.name or ""):
        raise InvalidRequest(f"name: {OWNED} stands before the owner of a codex", "choose another")
    return LoadSpec(
        sources=tuple(readable(principal, place) for place in (request.path, *request.more)),
        name=request.name,
        globs=Globs(include=request.include, exclude=request.exclude),
        revision=request.revision,
        load_secrets=request.secrets,
        take_name=request.replace,
    )


def sent_spec(principal: Principal, request: LoadBody) -> LoadSpec:
    """Of files that the principal has sent; none is opened by its path. Raises InvalidRequest."""
    if request.more or request.revision or request.include or request.exclude or request.dry_run:
        raise InvalidRequest("sent: the client chooses the files and sends them", "send path, name and sent alone")
    return LoadSpec(
        sources=(request.path,),
        name=sent_name(principal, request.name or ""),
        load_secrets=request.secrets,
        take_name=request.replace,
        sent=True,
    )


def sent_name(principal: Principal, name: str) -> str:
    """The whole name of a codex that the principal sends: always its own. Raises InvalidRequest."""
    if owner_of(name) not in (None, principal.uid):
        raise InvalidRequest(f"name: {name} belongs to another user", "leave out what stands behind ~")
    plain = short(name)
    with translated():
        valid_name(plain)
    return plain if principal.uid == os.geteuid() else owned(plain, principal.uid)


def watched(wanted: LoadSpec) -> bool | None:
    """Whether the daemon follows the disk; None: as wished before. What was sent the client follows."""
    return False if wanted.sent else None


def readable(principal: Principal, place: str) -> str:
    """A daemon reads a path, or asks a URL, only with the peer's rights. Raises NotPermitted."""
    if principal.uid == os.geteuid():
        return place
    if is_url(place):
        raise NotPermitted(f"the daemon asks no {place} for uid {principal.uid}", "clone it, and load the clone")
    raise FilesWanted(f"the daemon opens no {place} for uid {principal.uid}", "lore load sends the files")


# -- those that run


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
