"""The running program: what the routes call, and the order in which its parts start and stop."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from codex.catalog.generations import Codex
from codex.library import Library
from codex.trees.port import TreeState
from codex.trees.sent import FilesOffer, SentFile
from orchestrator.answering.answer import Answers
from orchestrator.answering.condensing import shortened
from orchestrator.answering.plain_texts import PlainTexts
from orchestrator.answering.report import strategy_state
from orchestrator.answering.tending import Tending
from orchestrator.codices.archive import ArchiveSearch, ArchiveUpkeep
from orchestrator.codices.floor_files import FloorFiles
from orchestrator.codices.freshness import CodexWatchers
from orchestrator.codices.identities import Identities
from orchestrator.codices.lifecycle import CodexLifecycle, refusal
from orchestrator.codices.loading import CodexLoader, sent_name
from orchestrator.codices.loads import Loads
from orchestrator.codices.reading import CodexFiles, CodexMaps
from orchestrator.codices.report import CodexReports
from orchestrator.codices.resident import ResidentCodices
from orchestrator.codices.state import CodexState
from orchestrator.codices.state_store import CodexStateStore
from orchestrator.codices.symbols import CodexSymbols
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import ChildState, EngineUnavailable
from orchestrator.errors import Conflict, EngineFailed, LoreError, NotFound, NotReady, translated
from orchestrator.machine.machine import Machine
from orchestrator.machine.yielding import Yielding
from orchestrator.model.chat_model import ChatModel, paused, why_waiting
from orchestrator.model.meaning import Meaning
from orchestrator.model.measuring import ContextMeter
from orchestrator.model.model_file import setting_of
from orchestrator.prompt.strategy import advice, consulted, size_of_text
from orchestrator.records import UserRecords
from orchestrator.reports import visible
from orchestrator.reports.status import About, away_event
from orchestrator.service import (
    Ask,
    AskEvent,
    Embedded,
    LoadEvent,
    MeasureEvent,
    ModelEvent,
    Principal,
    TextAsk,
    TextEvent,
)
from orchestrator.waking import AwaitedModel, PartsFollowing, WakeProgress
from orchestrator.wire.answers import PlanReply, StrategyState
from orchestrator.wire.base import ReplyShape
from orchestrator.wire.identities import DefaultIdentity, IdentityChange, IdentityReport, IdentityRow, ShortIdentity
from orchestrator.wire.models import ColdFloor, ContextReport, KvLossEvent, KvLossProgress, ModelReport, ModelRow
from orchestrator.wire.replies import (
    Cancelled,
    CodexCosts,
    CodexMap,
    CodexReport,
    FileLines,
    ImportedFloor,
    MapLine,
    OfferReply,
    SearchReply,
    SymbolRow,
    SymbolsReply,
)
from orchestrator.wire.requests import USUAL_LINES, LoadBody, OfferBody, ReadBody, StrategyBody, SymbolsBody
from orchestrator.wire.status import (
    AwayEvent,
    CacheReply,
    ClientStats,
    EngineWork,
    PauseReply,
    ResumeReply,
    StatusReply,
)
from orchestrator.wire.texts import PropsReply

log = logging.getLogger("lorekeep")
T = TypeVar("T")

WHAT_IS_HERE = {
    "pause": "there is no memory here to give away",
    "floors": "there are no checkpoints here to export or import",
}
TEND_EVERY_S = 4 * 3600.0
IMPORT_AFTER_S = 0.3  # seconds for what the daemon was started for, such as a `lore status`


@dataclass
class Program:
    """One model with all that was loaded: starts, stops, and is what the routes call.

    Every method may raise LoreError. Streams end by themselves; closing one early cancels what it runs. The routes hold
    to the scopes. `principal` is for what depends on who asks: of codices that it may not read nothing is told, and a name
    of one is not found.

    `exchange` puts a program with another model in this one's place. `import_agent` imports what the first question
    needs, in any thread.
    """

    answers: Answers
    texts: PlainTexts
    about: About
    library: Library
    states: CodexStateStore
    loads: Loads
    loader: CodexLoader
    residents: ResidentCodices
    lifecycle: CodexLifecycle
    reports: CodexReports
    searcher: ArchiveSearch
    codex_symbols: CodexSymbols
    files: CodexFiles
    floor_files: FloorFiles
    maps: CodexMaps
    records: UserRecords
    tending: Tending
    identity_files: Identities
    machine: Machine
    meter: ContextMeter
    client: EngineClient
    yielding: Yielding
    watchers: CodexWatchers
    upkeep: ArchiveUpkeep
    meaning: Meaning
    model_ready: AwaitedModel
    exchange: Callable[[str], AsyncIterator[ModelEvent]]
    make_chat_model: Callable[[], ChatModel]
    import_agent: Callable[[], object]
    closing: Sequence[Callable[[], None]] = ()
    waking: WakeProgress = field(default_factory=WakeProgress)
    silenced: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    # -- life

    async def start(self) -> None:
        """Returns when questions can be taken; the model goes on loading."""
        await self.machine.start(PartsFollowing(self.lifecycle, self.meaning, self.yielding))
        self.yielding.begin()
        self.yielding.start()
        codices = await asyncio.to_thread(self.library.catalog.codices)
        self.meaning.filling.keep_only([codex.name for codex in codices])
        for codex in codices:
            self.upkeep.begin(codex.name)
        await self._follow(codices)  # before anybody can ask: what changed while no daemon ran is not taken in yet
        imports = asyncio.create_task(self._import_early(), name="imports")
        self._tasks += [imports, asyncio.create_task(self._wake(imports), name="wake")]
        self._tasks.append(asyncio.create_task(self._tend_memories(), name="tending"))

    async def stop(self) -> None:
        await self.silence()
        self.close()

    async def silence(self, why: str = "the daemon is stopping") -> None:
        """Everything that runs ends, the engine's child last; what is left of loads and answers ends with a retryable
        fault that says why."""
        self.silenced.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.watchers.stop()
        await self.loads.stop(why)
        await self.lifecycle.stop()
        await self.upkeep.stop()
        await self.machine.stop()
        await self.yielding.stop()
        await self.client.stop(why)
        await self.meaning.filling.stop()  # its batch ends with the engine

    def close(self) -> None:
        """Closes its databases; nobody may be asking any more."""
        for one in self.closing:
            one()

    async def _wake(self, imports: "asyncio.Task[None]") -> None:
        try:
            await self._woken(imports)
        except Exception as fault:  # whatever it is, nobody may wait for ever for a model that is there
            log.critical("the start failed", exc_info=True)
            why = f"the start failed ({type(fault).__name__}: {fault})"
            self.model_ready.fail(EngineFailed(why, "see the daemon's log, then start it again"))
        finally:
            self.waking.end()

    async def _woken(self, imports: "asyncio.Task[None]") -> None:
        """Once the model is ready: its real costs, the chat model, and everything that was loaded before."""
        try:
            info = await self.client.ensure_ready()
        except EngineUnavailable as error:
            log.error("the model cannot be used: %s", error)
            self.model_ready.fail(
                EngineFailed(f"the model cannot be used: {error}", "see `lore doctor`, or choose another with --model")
            )
            return
        await imports
        await self.machine.loaded(info, await self.meter.limit())
        self.model_ready.succeed(self.make_chat_model())
        await self.lifecycle.wake(self.waking.at)

    async def _import_early(self) -> None:
        """Beside the loading of the model."""
        await asyncio.sleep(IMPORT_AFTER_S)
        await asyncio.to_thread(self.import_agent)

    async def _tend_memories(self) -> None:
        """Now and every few hours, as long as it runs."""
        while True:
            try:
                await asyncio.to_thread(self.tending.tend)
            except LoreError as fault:
                log.warning("memories could not be tended: %s; %s", fault.message, fault.hint)
            await asyncio.sleep(TEND_EVERY_S)

    async def _follow(self, codices: Sequence[Codex]) -> None:
        """All that was loaded, also where no model can be used: searches need none."""
        for codex in codices:
            if codex.newest is not None:
                wishes = await asyncio.to_thread(self.states.wishes, codex.name)
                self.watchers.follow(codex.name, wishes.watch)

    # -- asking

    def ask(self, ask: Ask) -> AsyncIterator[AskEvent]:
        return self.answers.ask(ask)

    async def plan(self, ask: Ask, *, prompt: bool = False) -> PlanReply:
        found = await self.answers.plan(ask, prompt=prompt)
        if found.memory is None:
            return found
        kind, loss = self.about.kv()
        shown = visible.kv_loss(ask.principal, loss)
        memory = found.memory.model_copy(update={"kv_type": kind, "kv_loss": shown})
        return found.model_copy(update={"memory": memory})

    # -- loading

    def load(self, principal: Principal, request: LoadBody) -> AsyncIterator[LoadEvent]:
        """Loads or updates a codex. Closing the stream does not stop the load; `cancel_load` does."""
        return self._needing_the_engine(self.loader.load(principal, request))

    def reload(self, principal: Principal, name: str) -> AsyncIterator[LoadEvent]:
        """Loads a codex again from where it came. Raises NotFound."""
        return self._needing_the_engine(self._reloaded(principal, name))

    async def _reloaded(self, principal: Principal, name: str) -> AsyncIterator[LoadEvent]:
        name = await self.lifecycle.own(principal, name)
        async with aclosing(cast(Any, self.loader.reload(principal, name))) as events:
            async for event in events:
                yield event

    async def _needing_the_engine(self, events: AsyncIterator[T], *, waits: bool = True) -> AsyncIterator[T]:
        """The events of what needs the engine as a question does. Raises Paused where it `waits` for no end of a pause."""
        if not waits and (away := self.yielding.paused) is not None:
            raise paused(away)
        with self.yielding.question():
            async with aclosing(cast(Any, events)) as all_events:
                async for event in all_events:
                    yield event

    async def offer(self, principal: Principal, body: OfferBody) -> OfferReply:
        """What of a codex's files the daemon has not yet. Raises InvalidRequest for names that leave the codex, and for too
        much."""
        name = sent_name(principal, body.name)
        files = tuple(SentFile(one.path, one.size, one.sha256, one.volatility) for one in body.files)
        given = FilesOffer(files, body.skipped, TreeState(body.branch, body.revision, body.dirty))
        with translated():
            wanted = await asyncio.to_thread(self.library.sent.offer, name, given)
        return OfferReply(codex=name, wanted=tuple(wanted))

    async def take_files(self, principal: Principal, name: str, body: bytes) -> int:
        """Keeps files that were offered. Raises InvalidRequest where they are others."""
        with translated():
            return await asyncio.to_thread(self.library.sent.take, sent_name(principal, name), body)

    async def sent_changed(self, principal: Principal, name: str) -> CodexReport:
        """What was offered last is what the codex has now. Raises NotFound, InvalidRequest while files are missing."""
        whole = await self.lifecycle.own(principal, sent_name(principal, name))
        async with self.residents.disk(whole):
            with translated():
                await asyncio.to_thread(self.library.sent.accept, whole)
        await self.lifecycle.changed(whole)
        return await self.codex(principal, whole)

    async def cancel_load(self, principal: Principal, name: str) -> Cancelled:
        """Ends a load, or the computing of the floor that one left in the background, and returns when it has ended. Raises
        NotFound, Conflict."""
        name = await self.lifecycle.own(principal, name, self.loads.names())
        if self.loads.find(name) is None and await self.residents.halt(name):
            return Cancelled(cancelled=name, what="floor")
        await self.loads.cancel(name)
        return Cancelled(cancelled=name, what="load")

    # -- codices

    async def codices(self, principal: Principal) -> list[CodexReport]:
        codices = await self.lifecycle.readable(principal)
        states = [(codex, self.residents.get(codex.name)) for codex in codices]
        return [self._codex_report(state) if state else self._bare_report(codex) for codex, state in states]

    async def codex(self, principal: Principal, name: str) -> CodexReport:
        name = await self.lifecycle.named(principal, name)
        with translated():
            codex = await asyncio.to_thread(self.library.catalog.codex, name)
        if codex.newest is None:
            raise refusal(codex, self.loads.far(name))
        if not self.model_ready().done() and (away := self.yielding.paused) is not None:
            raise paused(away)
        await asyncio.shield(self.model_ready())
        state = self.residents.get(name)  # one that waits for its new generation is reported as it is
        return self._codex_report(state or await self.lifecycle.ensure_built(name))

    def _codex_report(self, codex: CodexState) -> CodexReport:
        embedding = self.meaning.filling.report(codex.name) if self.meaning.model.file else None
        more = {
            "identity": self.lifecycle.identity(codex),
            "embedding": embedding,
            "load": self.loads.report(codex.name),
        }
        return self.reports.of(codex).model_copy(update=more)

    def _bare_report(self, codex: Codex) -> CodexReport:
        """Of one that is not built yet, or is being loaded for the first time."""
        return self.reports.bare(codex).model_copy(update={"load": self.loads.report(codex.name)})

    async def codex_map(self, principal: Principal, name: str, most: int) -> CodexMap:
        """Lines of at most so many characters. Raises NotFound."""
        name = await self.lifecycle.named(principal, name)
        found = await asyncio.to_thread(self.maps.of, name, most)
        lines = tuple(MapLine(path=path, line=line) for path, line in found.lines.items())
        return CodexMap(files=lines, left_out=found.left_out)

    async def codex_costs(self, principal: Principal, name: str, most: int) -> CodexCosts:
        """Of at most so many files. Raises NotFound, NotReady."""
        name = await self.lifecycle.named(principal, name)
        state, ready = self.residents.get(name), self.model_ready()
        if state is None or not ready.done() or self.client.state is not ChildState.READY:
            raise NotReady(f"the prefix of codex {name} is being made", "ask again", retry_after=2.0)
        return await asyncio.to_thread(self.reports.costs, state, ready.result().count_in_thread, most)

    def export_floor(self, principal: Principal, name: str) -> AsyncIterator[bytes]:
        """An archive of the codex's floor, computed where it is not resident. Faults come before the first piece."""
        return self._needing_the_engine(self._exported(principal, name), waits=False)

    async def _exported(self, principal: Principal, name: str) -> AsyncIterator[bytes]:
        self._refuse_elsewhere("floors")
        name = await self.lifecycle.named(principal, name)
        await asyncio.shield(self.model_ready())
        pieces = self.floor_files.exported(await self.lifecycle.ensure_built(name))
        async with aclosing(cast(Any, pieces)) as archive:
            async for piece in archive:
                yield piece

    async def import_floor(self, body: AsyncIterator[bytes]) -> ImportedFloor:
        """What such an archive held, once prompts find it; all or nothing."""
        self._refuse_elsewhere("floors")
        if (away := self.yielding.paused) is not None:
            raise paused(away)
        with self.yielding.question():
            await asyncio.shield(self.model_ready())
            return await self.floor_files.imported(body)

    async def drop(self, principal: Principal, name: str) -> None:
        """Of another user's only with `admin`. Raises NotFound, NotPermitted, Conflict."""
        name = await self.lifecycle.own(principal, name)
        with self.loads.dropping(name):
            self.watchers.forget(name)
            await self.lifecycle.drop(name)
            self.loads.forget(name)
            self.upkeep.forget(name)

    async def search(
        self, principal: Principal, query: str, codex: str | None, n: int, graph: bool, cwd: str
    ) -> SearchReply:
        """Hits, and what the search may not have seen. Raises NotFound for a codex that is not loaded."""
        name, choice = await self.lifecycle.choose(principal, codex, cwd)
        if name is None:
            raise NotFound("the bare model has no archive", "name a codex with -c")
        with translated():
            branch = await self._branch(name)
            found = await self.searcher.report(query, name, n, graph=graph, branch=branch)
        return found.model_copy(update={"notices": (choice, *found.notices)}) if choice else found

    async def symbols(self, principal: Principal, body: SymbolsBody) -> SymbolsReply:
        """Of the codex's current generation. Raises NotFound, NotReady where its files are still being read."""
        name, choice = await self.lifecycle.choose(principal, body.codex, body.cwd)
        if name is None:
            raise NotFound("the bare model has no files", "name a codex with -c")
        found = await self.codex_symbols.ask(name, body.what, body.name)
        return SymbolsReply(
            symbols=tuple(SymbolRow.of(one) for one in found.symbols),
            meant=tuple(SymbolRow.of(one) for one in found.meant),
            near=found.near,
            notices=tuple(filter(None, (choice, *found.notices))),
        )

    async def read(self, principal: Principal, body: ReadBody) -> FileLines:
        """Of the codex as it answers now. Raises NotFound for what is no file of it, or has no such line."""
        name, choice = await self.lifecycle.choose(principal, body.codex, body.cwd)
        if name is None:
            raise NotFound("the bare model has no files", "name a codex with -c")
        path, end = body.path.strip().removeprefix("./"), body.end or body.start + USUAL_LINES - 1
        found = await asyncio.to_thread(self.files.lines_of, name, path, body.start, end)
        return FileLines.of(found, path=path, notices=(choice,) if choice else ())

    async def consult(self, principal: Principal, body: StrategyBody) -> StrategyState:
        """Whether a text should be read whole or searched. Raises NotReady where no window is known."""
        window = body.model_context_length or self.texts.window
        if window is None:
            raise NotReady(
                "how long a prompt may be is not known before the model is loaded", "name model_context_length"
            )
        characters = body.char_count
        if body.file_paths and not characters:
            name, _ = await self.lifecycle.choose(principal, body.codex, body.cwd)
            if name is None:
                raise NotFound("the bare model has no files", "name a codex")
            characters = await asyncio.to_thread(self.files.size_of, name, body.file_paths)
        content, used = size_of_text(characters), min(body.used_tokens, window)
        decision = consulted(body.query, content, window, used)
        said = {"reason": advice(decision, content), "steps": ()}  # steps are of a codex and its floor
        return strategy_state(decision, used).model_copy(update=said)

    async def _branch(self, name: str) -> str | None:
        """Of all that is indexed of a codex: a checkout moves it without a chunk being written again."""
        state = self.residents.get(name)
        if state is not None:
            return state.generation_now().state.branch
        return (await asyncio.to_thread(self.library.catalog.generation, name)).state.branch

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Raises NotFound where no model is configured that embeds."""
        with self.yielding.question():
            return await self.meaning.embed(texts)

    # -- plain text

    async def window(self) -> int | None:
        """Tokens of prompt and answer together; None before a model is loaded."""
        return self.texts.window

    async def props(self) -> PropsReply:
        return self.texts.props()

    def continued(self, ask: TextAsk) -> AsyncIterator[TextEvent]:
        return self.texts.continued(ask)

    async def tokens_of(self, text: str) -> Sequence[int]:
        """Ids of a text as content. This and the next raise NotReady before a model is loaded."""
        with self.yielding.question():
            return await self.texts.tokens_of(text)

    async def text_of(self, ids: Sequence[int]) -> str:
        with self.yielding.question():
            return await self.texts.text_of(ids)

    # -- giving the memory away

    async def pause(self, why: str, seconds: float | None) -> PauseReply:
        """Returns when nothing of the memory is the engine's. Without `seconds` until `resume`."""
        self._refuse_elsewhere("pause")
        with kept():
            pause = await self.yielding.pause(why, seconds)
        return PauseReply(name=pause.name, away=self.about.away())

    async def hold(self, why: str, seconds: float | None, name: str) -> AsyncIterator[AwayEvent]:
        """A pause that lasts until `resume`, also when the iterator is closed. `name`: one that a daemon before began."""
        self._refuse_elsewhere("pause")
        with kept():
            async with aclosing(cast(Any, self.yielding.hold(why, seconds, name))) as pauses:
                async for pause in pauses:
                    yield away_event(None) if pause is None else away_event(self.about.away(), pause.name)

    def _refuse_elsewhere(self, what: str) -> None:
        """Raises Conflict for what only an engine here can do."""
        if (remote := self.client.spec.remote) is not None:
            hint = "only an engine on this machine can do that; the server has tools of its own"
            raise Conflict(f"{WHAT_IS_HERE[what]}: the memory is that of {remote.name} (engine.url)", hint)

    def resume(self, name: str | None = None) -> ResumeReply:
        """Ends one pause, or whatever keeps the engine away."""
        ended = self.yielding.end(name)
        return ResumeReply(ended=tuple(pause.why for pause in ended), engine=self.client.state.value)

    # -- identities

    async def identities(self, principal: Principal) -> tuple[IdentityRow, ...]:
        return tuple(visible.identity(principal, one) for one in await self.identity_files.rows())

    async def identity(self, principal: Principal, name: str) -> IdentityReport:
        return visible.identity(principal, await self.identity_files.report(name))

    async def use_identity(self, principal: Principal, name: str, *, dry_run: bool) -> DefaultIdentity:
        return visible.identity_change(principal, await self.identity_files.use(name, dry_run=dry_run))

    async def condense_identity(self, principal: Principal, name: str) -> ShortIdentity:
        report = await self.identity_files.report(name)
        short = await shortened(self.ask, principal, report.text, report.tokens)
        tokens = await self.identity_files.tokens(short.text)
        report = visible.identity(principal, report)
        return ShortIdentity(identity=report, short=short.text, short_tokens=tokens, by=short.by, why=short.why)

    async def put_identity(
        self, principal: Principal, name: str, text: str, *, dry_run: bool, keep: bool = False
    ) -> IdentityChange:
        """Writes its file, or with `dry_run` only tells what the change costs."""
        changed = await self.identity_files.change(name, text, dry_run=dry_run, keep=keep)
        return visible.identity_change(principal, changed)

    # -- models, and what the daemon says of itself

    async def models(self) -> list[ModelRow]:
        """All at hand. Reads the header of every file, which takes a quarter of a second: no question may wait for it."""
        return await self.about.models()

    async def loaded_model(self) -> str:
        """The id of the one that answers, or will once it is loaded."""
        return self.about.model.setting

    async def model(self, principal: Principal, name: str) -> ModelReport:
        found = await self.about.one_model(name, anywhere=principal.uid == os.geteuid())
        return visible.model(principal, found)

    async def use_model(self, name: str) -> AsyncIterator[ModelEvent]:
        """The running daemon changes to this model. Progress; then the change, when it is loaded; then progress of
        building codices. Closing it leaves the change in effect."""
        if (away := self.yielding.paused) is not None:
            raise paused(away)
        setting = await asyncio.to_thread(setting_of, name, self.about.folder)
        async with aclosing(cast(Any, self.exchange(setting))) as events:
            async for event in events:
                yield event

    def measure_kv(
        self, principal: Principal, codex: str | None, cwd: str
    ) -> AsyncIterator[KvLossProgress | KvLossEvent]:
        """Measures on a codex what the type of KV changes, and keeps it. Raises NotReady where there is no room."""
        return self._needing_the_engine(self._kv_measured(principal, codex, cwd), waits=False)

    async def _kv_measured(
        self, principal: Principal, codex: str | None, cwd: str
    ) -> AsyncIterator[KvLossProgress | KvLossEvent]:
        await asyncio.shield(self.model_ready())
        name, _ = await self.lifecycle.choose(principal, codex, cwd)
        if name is None:
            raise NotFound("the bare model has no codex to measure on", "name one with -c NAME, or: lore load PATH")
        await self.lifecycle.ensure_built(name)
        floor = self.reports.floors.of(name)
        if floor is None:
            raise NotReady(f"the prefix of codex {name} is being made", "ask again", retry_after=2.0)
        async with aclosing(cast(Any, self.about.measured_kv(name, floor.ids))) as events:
            async for event in events:
                yield event

    async def context(self) -> ContextReport:
        """How long a text the model follows. Waits for it to be loaded."""
        return await self.meter.report()

    def measure_context(self, *, again: bool) -> AsyncIterator[MeasureEvent]:
        """Closing the stream ends it; what was measured is kept."""
        return self._needing_the_engine(self.meter.measure(again=again), waits=False)

    async def floors(self) -> tuple[ColdFloor, ...]:
        """The floors of the daemon's owner that are computed: who changes the model learns of no other's."""
        known = await self.codices(Principal(os.geteuid(), -1, 0))
        return tuple(ColdFloor(name=one.name, tokens=one.floor_tokens) for one in known if one.floor_tokens)

    async def status(self, principal: Principal) -> StatusReply:
        sessions = await asyncio.to_thread(self.records.conversations.count, principal.uid)
        found = self.about.status(await self.codices(principal), sessions, self.meaning.report())
        return visible.status(principal, found)

    async def cache(self) -> CacheReply:
        return self.about.cache()

    async def engine_work(self, principal: Principal) -> EngineWork:
        """Waits for no model."""
        return visible.work(principal, await self.about.work(self.reports.floors.codex_of))

    async def client_stats(self, principal: Principal) -> ClientStats:
        """What the asking user's clients made of the cache."""
        return ClientStats(clients=self.answers.clients.rows(principal.uid))

    async def events(self, principal: Principal) -> AsyncIterator[ReplyShape]:
        """What changes from now on; the first reports the present state. Nothing of codices that the principal may not
        read. Endless: the client ends it."""
        async with aclosing(cast(Any, self.about.events(self.silenced))) as events:
            async for event in events:
                if (told := visible.event(principal, event)) is not None:
                    yield told

    async def ready(self) -> tuple[bool, str]:
        ready = self.model_ready()
        if not ready.done():
            return False, why_waiting(self.client)
        error = ready.exception()
        if error is not None:
            return False, str(error)
        # What is known of the model outlives a child; an answer needs one that runs.
        return self.client.state is ChildState.READY, self.client.reason


@contextmanager
def kept() -> Iterator[None]:
    """Raises LoreError where a pause cannot be written: it would end with the daemon."""
    try:
        yield
    except OSError as fault:
        hint = "make room there, or the folder writable, then pause again"
        raise LoreError(f"the pause cannot be kept: {fault}", hint) from fault
