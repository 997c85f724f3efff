"""Loading a codex: from what was asked for to a codex that stands, with progress for whoever watches.

    name it → refuse a second load → take in, index (library) → wait for the model → raise, compute the floor (shelf)

Leaving the stream leaves the load running. A watcher that takes changes in holds the same lock; a load waits for it.
Until the end of its last step a load can be cancelled: the codex then is what it was before.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from codex.loading import LoadResult, SampledFile, sample_head
from codex.progress import CodexProgress, progress_at
from codex.trees.ignore import Globs
from codex.trees.sources import LoadSpec
from orchestrator.codices.archive import ArchiveUpkeep
from orchestrator.codices.codices import Codices
from orchestrator.codices.coverages import surveyed
from orchestrator.codices.faults import mended, translated
from orchestrator.codices.freshness import FreshnessGauge
from orchestrator.codices.loads import Emit, LoadState, RunningLoad, StateBeforeLoad
from orchestrator.codices.report import codex_report, progress_event, survey_report
from orchestrator.codices.state import CodexState
from orchestrator.codices.watching import CodexWatchers
from orchestrator.engine.client.client import EngineClient
from orchestrator.errors import Conflict, InvalidRequest, LoreError, NotPermitted, OverBudget
from orchestrator.machine.machine import Machine
from orchestrator.model.chat_model import WHOLE, ChatModel, arriving
from orchestrator.prompt.coverage import SHIPPED, coverage_named, decide_coverage, share
from orchestrator.service import LoadEvent, Principal
from orchestrator.wire.places import is_url
from orchestrator.wire.replies import CodexReport, LoadedEvent
from orchestrator.wire.requests import LoadBody


@dataclass(frozen=True)
class CodexLoader:
    shelf: Codices
    machine: Machine
    client: EngineClient
    watching: CodexWatchers
    tending: ArchiveUpkeep
    gauge: FreshnessGauge
    model_ready: Callable[[], "asyncio.Future[ChatModel]"]

    async def load(self, principal: Principal, request: LoadBody) -> AsyncIterator[LoadEvent]:
        """Loads or updates a codex. Raises LoreError; Conflict while the same name is being loaded."""
        wanted = library_request(principal, request)
        if request.tier is not None and request.tier != "auto":
            coverage_named(request.tier)
        with translated():
            name = await asyncio.to_thread(self.shelf.library.name_of, wanted)
        if request.dry_run:
            if not self.model_ready().done():
                yield progress_event(progress_at("model", int(WHOLE * self.client.loaded), WHOLE, 0.0))
            yield await self._survey(wanted)
            return
        async with aclosing(self._watched(name, wanted, request)) as events:
            async for event in events:
                yield event

    async def reload(self, principal: Principal, name: str) -> AsyncIterator[LoadEvent]:
        """Loads a codex again from where it came. Raises NotFound, Conflict."""
        with translated():
            wanted = await asyncio.to_thread(self.shelf.library.request, name)
        request = LoadBody(path=wanted.sources[0], name=name, more=tuple(wanted.sources[1:]))
        for place in wanted.sources:
            readable(principal, place)
        async with aclosing(self._watched(name, wanted, request)) as events:
            async for event in events:
                yield event

    async def _watched(self, name: str, wanted: LoadSpec, request: LoadBody) -> AsyncGenerator[LoadEvent]:
        if self.shelf.loads.find(name) is not None:
            raise Conflict(
                f"a load of {name!r} is running", f"watch it with `lore status`, or stop it: lore load --cancel {name}"
            )
        load = self.shelf.loads.begin(name, lambda load, emit: self._load(name, wanted, request, load, emit))
        async with aclosing(load.watch()) as events:
            async for event in events:
                yield event

    async def _load(self, name: str, wanted: LoadSpec, request: LoadBody, load: RunningLoad, emit: Emit) -> None:
        await self.shelf.load_began(name)
        try:
            with translated():
                await asyncio.to_thread(self.shelf.ledger.resume, name)
            await self._load_or_leave(name, wanted, request, load, emit)
        finally:
            self.shelf.load_ended(name)
            # One that ended early has left an archive ahead of what is resident.
            self.tending.begin(name, doubted=load.state is not LoadState.COMMITTED)

    async def _load_or_leave(
        self, name: str, wanted: LoadSpec, request: LoadBody, load: RunningLoad, emit: Emit
    ) -> None:
        """A load that is cancelled or refused leaves the codex as it was."""
        was = await self.shelf.before(name)
        try:
            with translated():
                standing = await self._loaded(wanted, request, load, LoadReporter(name, emit))
                load.commit()
            await self.shelf.settled(was)
            self.tending.forget(name)
            emit(LoadedEvent(event="loaded", codex=self._report(standing)))
        except LoreError as fault:
            if load.state is LoadState.CANCELLED:
                raise await self._gone_back(was) from fault
            if load.state is LoadState.RUNNING and isinstance(fault, (OverBudget, InvalidRequest)):
                await self._stands_as(was)
            raise

    async def _loaded(self, wanted: LoadSpec, request: LoadBody, load: RunningLoad, tell: "LoadReporter") -> CodexState:
        """Takes it in and raises it. Raises LoreError; LoadCancelled wherever it finds that it was."""
        name = tell.name
        async with load.holding(self.shelf.disk(name)):
            await load.in_thread(self._taken_in(wanted, tell.of_thread(), load))
        load.check()
        await asyncio.to_thread(self.shelf.ledger.wish, name, request.tier, request.watch)
        await load.unless_cancelled(self._spoken(tell))
        standing = await self._raised(name, request.tier, tell.of_thread(load.check))
        load.check()
        self.watching.follow(name, (await asyncio.to_thread(self.shelf.ledger.wishes, name)).watch)
        if request.wait:
            await load.unless_cancelled(self._floor_stands(name, tell))
        return self.shelf.seen(name) or standing

    async def _spoken(self, tell: "LoadReporter") -> None:
        async for percent in arriving(self.model_ready(), self.client):
            tell(progress_at("model", percent, WHOLE, 0.0))
        await asyncio.shield(self.model_ready())

    async def _floor_stands(self, name: str, tell: "LoadReporter") -> None:
        began = time.monotonic()
        await self.shelf.floors.stands(
            name, lambda done, total: tell(progress_at("prefill", done, total, time.monotonic() - began))
        )

    async def _gone_back(self, was: StateBeforeLoad) -> LoreError:
        """What a cancelled load is told, with the codex as it was."""
        await self._stands_as(was)
        if was.number is None:
            return LoreError("the load was cancelled", "load again: what was read of its files is not read again")
        return LoreError(f"the load was cancelled: {was.name} stands as before")

    async def _stands_as(self, was: StateBeforeLoad) -> None:
        await self.shelf.go_back(was)
        if was.number is not None:
            self.watching.follow(was.name, was.wishes.watch)

    def _report(self, standing: CodexState) -> CodexReport:
        info, name = self.client.info, standing.name
        return codex_report(
            standing,
            info.kv_bytes_per_token if info else 0.0,
            replace(self.gauge.of(name), loading=""),
            self.shelf.floors.figures(name),
        )

    async def _raised(self, name: str, tier: str | None, told: Callable[[CodexProgress], None]) -> CodexState:
        """Raises OverBudget, InvalidRequest where this load itself asks for a tier that cannot be; one that an earlier
        load, the settings or the codex ask for gives way, with a notice."""
        strict = tier not in (None, "auto")
        try:
            return await self.shelf.build(name, told, strict=strict, settle=False)
        except (OverBudget, InvalidRequest) as fault:
            fault.hint = "; or ".join(filter(None, (fault.hint, "load it without --tier, or with --tier auto")))
            raise

    async def _taken_in(self, wanted: LoadSpec, told: Callable[[CodexProgress], None], load: RunningLoad) -> LoadResult:
        with translated():
            return await mended(lambda: self.shelf.library.load(wanted, told, load.cancelled.is_set))

    async def _survey(self, wanted: LoadSpec) -> LoadEvent:
        with translated():
            found = await asyncio.to_thread(self.shelf.library.survey, wanted)
        chat_model = await asyncio.shield(self.model_ready())
        room = self.machine.room(0)
        map_tokens = share(room.window, SHIPPED.map_share)
        sizes = await asyncio.to_thread(
            surveyed, found.sample, found.files, found.bytes, chat_model.count_in_thread, map_tokens
        )
        decision = decide_coverage(sizes, room)
        info = self.client.info
        report = survey_report(
            found.name,
            wanted.sources,
            found.files,
            found.skipped,
            found.notices,
            sizes,
            decision,
            info.kv_bytes_per_token if info else 0.0,
            known_from(found.sample, found.files),
        )
        return LoadedEvent(event="loaded", codex=report)


@dataclass(frozen=True)
class LoadReporter:
    """Progress of one codex's load, as events with its name."""

    name: str
    emit: Emit

    def __call__(self, progress: CodexProgress) -> None:
        self.emit(progress_event(progress, self.name))

    def of_thread(self, check: Callable[[], None] = lambda: None) -> Callable[[CodexProgress], None]:
        """The same from a worker thread. What `check` raises ends the work that reports."""
        loop = asyncio.get_running_loop()

        def told(progress: CodexProgress) -> None:
            check()
            loop.call_soon_threadsafe(self, progress)

        return told


def known_from(sample: Sequence[SampledFile], files: int) -> str:
    """How a survey knows its figures: a sample may leave out files, and the ends of long ones."""
    if len(sample) < files:
        return f"estimated from {len(sample):,} of {files:,} files"
    whole = all(sample_head(one.text or "") == (one.text or "") for one in sample)
    return "all its files were read" if whole else f"estimated from the beginnings of all {files:,} files"


def library_request(principal: Principal, request: LoadBody) -> LoadSpec:
    """What the library is asked for. Raises NotPermitted."""
    return LoadSpec(
        sources=tuple(readable(principal, place) for place in (request.path, *request.more)),
        name=request.name,
        globs=Globs(include=request.include, exclude=request.exclude),
        revision=request.revision,
        load_secrets=request.secrets,
        take_name=request.replace,
    )


def readable(principal: Principal, place: str) -> str:
    """A daemon reads a path, or asks a URL, only with the peer's rights. Raises NotPermitted."""
    if principal.uid == os.geteuid():
        return place
    what = "ask" if is_url(place) else "read"
    raise NotPermitted(
        f"uid {principal.uid} may not have the daemon of uid {os.geteuid()} {what} {place}",
        "load it as the daemon's user",
    )
