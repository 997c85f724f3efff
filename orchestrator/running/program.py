"""The running program: the service that the routes see, and the order in which its parts start and stop."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from codex.catalog.generations import Codex
from codex.library import Library
from orchestrator.answering.answer import Answers
from orchestrator.answering.sessions import SessionStore
from orchestrator.answering.waiting import own_task
from orchestrator.codices.archive import ArchiveUpkeep
from orchestrator.codices.codices import Codices
from orchestrator.codices.watching import CodexWatchers
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervision import ChildState
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.errors import EngineFailed, LoreError, NotReady
from orchestrator.machine.machine import Machine
from orchestrator.model.chat_model import ChatModel, why_waiting
from orchestrator.model.embedding.meaning import Meaning
from orchestrator.model.folder import setting_of
from orchestrator.reports.about import About
from orchestrator.running.operations import Operations
from orchestrator.running.waking import Waking
from orchestrator.service import Ask, AskEvent, Embedded, LoadEvent, LoadRequest, Principal, Report

log = logging.getLogger("lorekeep")

OURSELVES = Principal(os.geteuid(), os.getegid(), os.getpid(), scopes=frozenset({"admin"}))


class Awaited:
    """The voice that everybody waits for: a future that is done when the model is first ready, or is given up."""

    def __init__(self) -> None:
        self._future: asyncio.Future[ChatModel] | None = None

    def __call__(self) -> "asyncio.Future[ChatModel]":
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future

    def succeed(self, voice: ChatModel) -> None:
        if not self().done():
            self().set_result(voice)

    def now(self) -> ChatModel:
        """Raises NotReady before it is loaded."""
        if self._future is None or not self._future.done() or self._future.exception() is not None:
            raise NotReady("the model is loading", "ask again when it is ready", retry_after=2.0)
        return self._future.result()

    def fail(self, error: LoreError) -> None:
        future = self()
        if not future.done():
            future.set_exception(error)
            future.exception()  # seen here: whether anybody waits is not known


@dataclass
class Program:
    """Implements `service.Service` by handing each call to the part that does it."""

    answers: Answers
    operations: Operations
    about: About
    client: EngineClient
    machine: Machine
    shelf: Codices
    watching: CodexWatchers
    tending: ArchiveUpkeep
    meaning: Meaning
    library: Library
    session_store: SessionStore
    voice: Awaited
    speak: Callable[[], ChatModel]
    closing: Sequence[Callable[[], None]] = ()
    exchange: Callable[[str], AsyncIterator[Report]] | None = None  # to another model; set by who can
    waking: Waking = field(default_factory=Waking)
    _silenced: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    # -- life

    async def start(self) -> None:
        """Returns when questions can be taken; the model goes on loading."""
        self.voice()
        await self.machine.start()
        self.client.start()
        self.meaning.bridge.open()
        codices = await asyncio.to_thread(self.library.codices)
        self.meaning.filling.start([codex.name for codex in codices])
        for codex in codices:
            self.tending.begin(codex.name)
        await self._follow(codices)  # before anybody can ask: what changed while no daemon ran is not taken in yet
        self._tasks.append(asyncio.create_task(self._wake(), name="wake"))

    async def stop(self) -> None:
        await self.silence()
        self.close()

    async def silence(self, why: str = "the daemon is stopping") -> None:
        """Everything that runs ends, the engine's child last; what is left of loads and answers ends with a retryable
        fault that says why."""
        self._silenced.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.watching.stop()
        await self.shelf.stop(why)
        await self.tending.stop()
        await self.machine.stop()
        await self.client.stop(why)
        await self.meaning.filling.stop()  # its batch ends with the engine

    def close(self) -> None:
        """The files of it; nobody may be asking any more."""
        self.session_store.close()
        self.library.close()
        for one in self.closing:
            one()

    async def _wake(self) -> None:
        try:
            await self._woken()
        except Exception as fault:  # whatever it is, nobody may wait for ever for a model that is there
            log.critical("the start failed", exc_info=True)
            why = f"the start failed ({type(fault).__name__}: {fault})"
            self.voice.fail(EngineFailed(why, "see the daemon's log, then start it again"))
        finally:
            self.waking.end()

    async def _woken(self) -> None:
        """Once the model is ready: its voice, its real costs, and everything that was loaded before."""
        try:
            info = await self.client.ensure_ready()
        except EngineUnavailable as error:
            log.error("the model cannot be used: %s", error)
            self.voice.fail(
                EngineFailed(f"the model cannot be used: {error}", "see `lore doctor`, or choose another with --model")
            )
            return
        await self.machine.loaded(info)
        self.voice.succeed(self.speak())
        await self.shelf.wake(self.waking.at)

    async def _follow(self, codices: Sequence[Codex]) -> None:
        """All that was loaded, also where no model can be used: searches need none."""
        for codex in codices:
            if codex.newest is not None:
                wishes = await asyncio.to_thread(self.shelf.ledger.wishes, codex.name)
                self.watching.follow(codex.name, wishes.watch)

    # -- the service

    def ask(self, ask: Ask) -> AsyncIterator[AskEvent]:
        return own_task(self.answers.ask(ask))

    async def plan(self, ask: Ask, *, prompt: bool = False) -> Report:
        return await self.answers.plan(ask, prompt=prompt)

    def load(self, request: LoadRequest) -> AsyncIterator[LoadEvent]:
        return self.operations.load(request)

    async def cancel_load(self, principal: Principal, name: str) -> Report:
        return await self.operations.cancel_load(principal, name)

    async def codices(self, principal: Principal) -> list[Report]:
        return await self.operations.codices(principal)

    async def codex(self, principal: Principal, name: str) -> Report:
        return await self.operations.codex(principal, name)

    def reload(self, principal: Principal, name: str) -> AsyncIterator[LoadEvent]:
        return self.operations.reload(principal, name)

    async def drop(self, principal: Principal, name: str) -> None:
        await self.operations.drop(principal, name)

    async def search(
        self, principal: Principal, query: str, codex: str | None, n: int, graph: bool, cwd: str
    ) -> Report:
        return await self.operations.search(principal, query, codex, n, graph, cwd)

    async def embed(self, principal: Principal, texts: Sequence[str]) -> Embedded:
        del principal
        return await self.meaning.embed(texts)

    async def sessions(self, principal: Principal) -> list[Report]:
        return await self.operations.sessions_of(principal)

    async def session(self, principal: Principal, name: str) -> Report:
        return await self.operations.session(principal, name)

    async def rename_session(self, principal: Principal, name: str, new: str) -> None:
        await self.operations.rename_session(principal, name, new)

    async def drop_session(self, principal: Principal, name: str) -> None:
        await self.operations.drop_session(principal, name)

    async def models(self, principal: Principal) -> list[Report]:
        del principal
        return await self.about.models()

    async def model(self, principal: Principal, name: str) -> Report:
        return await self.about.one_model(name, anywhere=principal.uid == os.geteuid())

    async def use_model(self, principal: Principal, name: str) -> AsyncIterator[Report]:
        del principal
        assert self.exchange is not None, "whoever starts a program says how another takes its place"
        setting = await asyncio.to_thread(setting_of, name, self.about.folder)
        async with aclosing(cast(Any, self.exchange(setting))) as events:
            async for event in events:
                yield event

    async def floors(self) -> list[Report]:
        """What stands computed: each codex with the tokens of its floor."""
        known = await self.operations.codices(OURSELVES)
        return [{"name": one["name"], "tokens": one["floor_tokens"]} for one in known if one.get("floor_tokens")]

    async def status(self, principal: Principal) -> Report:
        sessions = await asyncio.to_thread(self.session_store.count)
        report = self.about.status(await self.operations.codices(principal), sessions)
        return {**report, "embedding": self.meaning.report()}

    async def cache(self, principal: Principal) -> Report:
        del principal
        return self.about.cache()

    def events(self, principal: Principal) -> AsyncIterator[Report]:
        del principal
        return self.about.events(self._silenced)

    async def ready(self) -> tuple[bool, str]:
        voice = self.voice()
        if not voice.done():
            return False, why_waiting(self.client)
        error = voice.exception()
        if error is not None:
            return False, str(error)
        # What is known of the model outlives a child; an answer needs one that runs.
        return self.client.state is ChildState.READY, self.client.reason
