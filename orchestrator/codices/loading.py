"""From a request to a codex that is served.

    name ─▶ read and index (library) ─▶ wait for the model ─▶ build, compute the floor (`CodexLifecycle`) ─▶ committed

A watcher that applies changes holds the same lock; a load waits for it. A load that is cancelled goes back to
`StateBeforeLoad`. What was read of its files stays in the catalog, unseen; the next load continues from there. A codex that
was not known before stays listed as not loaded to the end.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from codex.library import Library, LoadResult, SampledFile, sample_head
from codex.progress import progress_at
from codex.reload_match import valid_name
from codex.trees.ignore import Globs
from codex.trees.sources import LoadSpec
from orchestrator.codices.archive import ArchiveUpkeep
from orchestrator.codices.building import mended
from orchestrator.codices.coverages import surveyed
from orchestrator.codices.floors import Floors
from orchestrator.codices.freshness import CodexWatchers, load_or_drop
from orchestrator.codices.lifecycle import CodexLifecycle
from orchestrator.codices.loads import Loads, LoadState, RunningLoad
from orchestrator.codices.report import CodexReports, progress_event, tokens_of
from orchestrator.codices.resident import ResidentCodices
from orchestrator.codices.state import CodexState
from orchestrator.codices.state_store import CodexStateStore, StateBeforeLoad
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import ChildState
from orchestrator.errors import FilesWanted, InvalidRequest, LoreError, NotPermitted, OverBudget, translated
from orchestrator.machine.machine import Machine
from orchestrator.model.chat_model import WHOLE, ChatModel, arriving, engine_ready
from orchestrator.prompt.coverage import coverage_named, decide_coverage
from orchestrator.service import LoadEvent, Principal
from orchestrator.wire.names import OWNED, owned, owner_of, short
from orchestrator.wire.places import is_url
from orchestrator.wire.replies import CodexReport, LoadedEvent
from orchestrator.wire.requests import LoadBody


@dataclass(frozen=True)
class CodexLoader:
    """`model_ready` gives a future that is done when the chat model is."""

    library: Library
    residents: ResidentCodices
    lifecycle: CodexLifecycle
    loads: Loads
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

    async def _built(self, name: str, coverage: str | None, load: "RunningLoad") -> CodexState:
        """Raises OverBudget, InvalidRequest where this load itself asks for a coverage that cannot be; one that an earlier
        load, the settings or the codex ask for gives way, with a notice."""
        strict = coverage not in (None, "auto")
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
