"""Another model in a running daemon: one program after the other behind the same sockets.

    check the new one ─▶ running answers end ─▶ the old program ends ─▶ the new one starts ─▶ its model is loaded
          │ refused                                                                              │ cannot be
          ▼                                                                                      ▼
     nothing happened                                                            the old one is started again

What is wrong with a file is found before anything stops. Floors of the old model stay on disk: its name is in theirs.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from codex.progress import progress_at
from orchestrator.api.app import Gate
from orchestrator.codices.report import progress_event
from orchestrator.errors import Conflict, InvalidRequest, LoreError
from orchestrator.model.chat_model import WHOLE, arriving
from orchestrator.model.model_file import ModelFile
from orchestrator.program import Program
from orchestrator.service import ModelEvent
from orchestrator.settings.model import Settings
from orchestrator.wire.models import ChangedEvent, ModelChange, ModelNames
from orchestrator.wire.names import owner_of
from orchestrator.wire.places import ChangePhase
from orchestrator.wire.replies import ProgressEvent

log = logging.getLogger("lorekeep")
OnPhase = Callable[[ChangePhase, int, int], None]  # where a change is: phase, done, of how many

LEAVING_S = 5.0  # what is cut off has its error at once; this is for writing it


class ModelSwitch:
    """Owns the program that runs, at first the one that is given. `check` reads a model's file and raises LoreError;
    `build` makes a program, not yet started; `serve` takes each further one when it is started."""

    def __init__(
        self,
        settings: Settings,
        program: Program,
        gate: Gate,
        *,
        check: Callable[[Settings], ModelFile],
        build: Callable[[Settings], Awaitable[Program]],
        serve: Callable[[Program], None],
    ) -> None:
        self._settings = settings
        self._program = program
        self._gate = gate
        self._check = check
        self._build = build
        self._serve = serve
        self._work: asyncio.Task[ModelChange] | None = None

    async def stop(self) -> None:
        """Ends the program that runs, and a change that is under way before."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        await self._program.stop()

    async def to(self, setting: str) -> AsyncIterator[ModelEvent]:
        """Changes to the model of this setting: progress, then `changed` when that is loaded, then how many codices are
        built with it. The one who asked may leave.

        Raises InvalidRequest for a model that cannot be used, and the old one goes on; Conflict while codices are loaded,
        another change is under way or servers compute.
        """
        if servers := self._settings.engine.url:
            raise Conflict(
                f"the model is the server's at {servers[0]}", "take engine.url out of the settings to load one here"
            )
        if self._work is not None and not self._work.done():
            raise Conflict("the model is being changed already", "wait until that is done: lore status")
        reported: asyncio.Queue[ProgressEvent | None] = asyncio.Queue()

        def report(phase: ChangePhase, done: int, total: int) -> None:
            reported.put_nowait(progress_event(progress_at(phase, done, total, 0.0)))

        self._work = asyncio.create_task(self._change(setting, report), name="change of the model")
        async with aclosing(reported_during(self._work, reported)) as events:
            async for event in events:
                yield event
        yield ChangedEvent(event="changed", **dict(await self._work))
        # Codices, counted in the new model's tokens. The phase's name is a contract.
        follow = self._program.waking.follow(partial(report, "raising"))
        building = asyncio.create_task(follow, name="reporting built codices")
        try:
            async with aclosing(reported_during(building, reported)) as events:
                async for event in events:
                    yield event
        finally:
            building.cancel()
            await asyncio.gather(building, return_exceptions=True)

    async def _change(self, setting: str, report: OnPhase) -> ModelChange:
        report("checking", 0, 1)
        old, before = self._program, with_identity(self._settings, self._program.identity_files.default)
        self._settings = before
        wanted = with_model(before, setting)
        found = await asyncio.to_thread(self._check, wanted)
        if found.states == old.about.model.states and (await old.ready())[0]:
            self._settings = wanted  # one that runs because none was chosen is chosen from now on
            return ModelChange(model=names_of(old), changed=False, cold=())
        if loads := old.loads.names():
            told = [name for name in loads if owner_of(name) is None]  # what others load is theirs
            what = ", ".join(told) or "a codex of another user"
            stop = f", or: lore load --cancel {told[0]}" if told else ""
            raise Conflict(f"{what} is being loaded", f"wait for it{stop}")
        cold = await old.floors()
        await self._end(old, report)
        why = await self._begin(wanted, partial(report, "loading"))
        if why:
            await self._back(before, why, report)
            raise InvalidRequest(
                f"{setting} cannot be loaded: {why}",
                f"{before.model.path or 'the built-in model'} answers again; `lore model list` shows those at hand",
            )
        return ModelChange(model=names_of(self._program), changed=True, cold=cold)

    async def _end(self, program: Program, report: OnPhase) -> None:
        """Answers that run may end by themselves for a while; then they fail, and may be asked again."""
        self._gate.close_to_questions()
        report("stopping", 0, self._gate.inside)  # while so many requests end by themselves
        await self._gate.empty(self._settings.serve.shutdown_grace)
        self._gate.close()
        await program.silence("the model was changed")
        await self._gate.empty(LEAVING_S)
        program.close()

    async def _begin(self, settings: Settings, report: Callable[[int, int], None]) -> str:
        """Why its model cannot be loaded; "" when it is. Questions may come while it is loading."""
        report(0, WHOLE)
        try:
            await self._take(await self._build(settings), settings)
        except LoreError as error:
            return error.message
        finally:
            self._gate.open()
        ready = self._program.model_ready()
        async for percent in arriving(ready, self._program.client):
            report(percent, WHOLE)
        fault = ready.exception()
        return "" if fault is None else str(fault)

    async def _back(self, settings: Settings, why: str, report: OnPhase) -> None:
        log.error("the model was not changed: %s", why)
        if self._settings is not settings:
            await self._end(self._program, report)
        await self._begin(settings, partial(report, "loading the model before"))

    async def _take(self, program: Program, settings: Settings) -> None:
        self._program, self._settings = program, settings
        await program.start()
        self._serve(program)


async def reported_during(
    work: asyncio.Task[Any], reported: asyncio.Queue[ProgressEvent | None]
) -> AsyncGenerator[ProgressEvent]:
    """All that is reported until the work has ended. Neither cancels the work nor raises its fault."""
    work.add_done_callback(lambda _: reported.put_nowait(None))
    while (event := await reported.get()) is not None:
        yield event


def with_model(settings: Settings, setting: str) -> Settings:
    return settings.model_copy(update={"model": settings.model.model_copy(update={"path": setting})})


def with_identity(settings: Settings, default: str) -> Settings:
    """That was changed since the daemon's start."""
    return settings.model_copy(update={"identity": settings.identity.model_copy(update={"default": default})})


def names_of(program: Program) -> ModelNames:
    model = program.about.model
    return ModelNames(name=model.setting, path=str(model.path), notice=model.notice)
