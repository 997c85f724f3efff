"""New generations in the background: when a codex's log has grown too long, and while nobody asks.

    log too long? ─▶ idle? ─▶ take in, raise ─▶ compute the new floor beside the old one ─▶ the codex moves to it
                       ▲                                   │ a question comes
                       └───────────────────────────────────┘ what was computed stays

The old generation serves until the new floor stands. Knows neither disk nor engine; what the steps do is handed in.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from codex.amendments import RebaseCase, RebaseDecision, should_rebase
from codex.errors import CodexError
from orchestrator.engine.parent.supervisor import EngineUnavailable
from orchestrator.errors import EngineFailed, LoreError, NotReady
from orchestrator.shelf.floors import Floors

log = logging.getLogger("lorekeep.shelf")

IDLE_S = 3.0  # nothing asked for this long: whoever reads an answer is likely to ask again
LOOK_S = 0.2  # between two looks whether waiting still makes sense
AGAIN_S = 1.0  # after an attempt that the engine's end, or memory that cannot be planned, has ended
PATIENCE_S = 60.0  # that a question waits for such a one: the model is loaded again in that time
PASSING = (EngineUnavailable, EngineFailed, NotReady)
Grown = TypeVar("Grown")


@dataclass(frozen=True)
class Steps(Generic[Grown]):
    """What rebasing does to one codex.

    `case`: its numbers, None when it does not stand; `share`: of its tokens that a log may reach; `urgent`: nobody can ask
    about it before, so it neither waits for an idle moment nor gives way to other questions. `prepare` takes a new
    generation in and raises it, `grow` computes its floor and may be cancelled, `install` moves the codex to it.
    `back` returns when the engine answers again, and raises EngineUnavailable where it will not.
    """

    case: Callable[[str], RebaseCase | None]
    share: Callable[[str], float]
    urgent: Callable[[str], bool]
    prepare: Callable[[str], Awaitable[Grown]]
    grow: Callable[[Grown], Awaitable[bool]]
    install: Callable[[Grown], Awaitable[None]]
    back: Callable[[], Awaitable[object]]


class Rebasing(Generic[Grown]):
    """At most one rebase of each codex at a time. One event loop calls all of it."""

    def __init__(
        self,
        floors: Floors,
        steps: Steps[Grown],
        idle_s: float = IDLE_S,
        again_s: float = AGAIN_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._floors = floors
        self._steps = steps
        self._idle_s = idle_s
        self._again_s = again_s
        self._patience_s = patience_s
        self._hindered: dict[str, str] = {}
        self._reasons: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def consider(self, name: str) -> None:
        """Begins a rebase where the numbers call for one; it waits for its idle moment by itself."""
        if self.running(name):
            return
        decision = self._decided(name)
        if decision.rebase:
            log.info("codex %s gets a new generation when idle: %s", name, decision.reason)
            self._hindered.pop(name, None)
            self._tasks[name] = asyncio.create_task(self._run(name), name=f"rebase of {name}")

    def running(self, name: str) -> bool:
        task = self._tasks.get(name)
        return task is not None and not task.done()

    def reason(self, name: str) -> str:
        """Why the newest rebase of this codex was begun; '' where there was none."""
        return self._reasons.get(name, "")

    def hindered(self, name: str) -> str:
        """Why the last attempt failed; '' where none did. One that is still running is about to try again."""
        return self._hindered.get(name, "")

    async def ended(self, name: str) -> None:
        """Returns when no rebase of this codex is under way, or it was hindered for as long as anybody should wait."""
        task, waited = self._tasks.get(name), 0.0
        while task is not None and not task.done() and waited < self._patience_s:
            await asyncio.wait([task], timeout=LOOK_S)
            waited = waited + LOOK_S if self.hindered(name) else 0.0

    async def give_up(self, name: str) -> None:
        """For a codex that is loaded anew or dropped."""
        task = self._tasks.pop(name, None)
        self._hindered.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def stop(self) -> None:
        for name in list(self._tasks):
            await self.give_up(name)

    def _decided(self, name: str) -> RebaseDecision:
        case = self._steps.case(name)
        if case is None:
            return RebaseDecision(False, "it does not stand")
        return should_rebase(case, self._steps.share(name))

    def _due(self, name: str) -> bool:
        decision = self._decided(name)
        if decision.rebase:
            self._reasons[name] = decision.reason
        return decision.rebase

    async def _run(self, name: str) -> None:
        try:
            await self._moment(name)
            while self._due(name) and not await self._unhindered(name):
                await self._moment(name)
            self._hindered.pop(name, None)
        except (CodexError, LoreError, EngineUnavailable) as fault:
            self._hindered[name] = str(fault)
            log.warning("codex %s keeps its amendments: %s", name, fault)

    async def _unhindered(self, name: str) -> bool:
        """An attempt; what passes by itself is waited for. Raises what does not."""
        try:
            done = await self._attempt(name)
        except PASSING as fault:
            if self.hindered(name) != str(fault):
                log.info("codex %s: its new generation is tried again: %s", name, fault)
            self._hindered[name] = str(fault)
            await self._steps.back()
            await asyncio.sleep(self._again_s)
            return False
        self._hindered.pop(name, None)
        return done

    async def _moment(self, name: str) -> None:
        """Returns when nobody asks, or nobody can."""
        idle = asyncio.ensure_future(self._floors.idle(self._idle_s))
        try:
            while not idle.done() and not self._steps.urgent(name):
                await asyncio.wait({idle}, timeout=LOOK_S)
        finally:
            idle.cancel()
            await asyncio.gather(idle, return_exceptions=True)

    async def _attempt(self, name: str) -> bool:
        """False when a question came in between."""
        urgent = self._steps.urgent(name)
        grown = await self._steps.prepare(name)
        if urgent:
            await self._steps.install(grown)
            return True
        growing = asyncio.ensure_future(self._steps.grow(grown))
        asked = asyncio.ensure_future(self._floors.asked())
        try:
            await asyncio.wait({growing, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            if not growing.done():
                growing.cancel()
            await asyncio.gather(growing, asked, return_exceptions=True)
        if growing.cancelled():
            return False
        if not growing.result():
            # Both floors do not fit, or the engine ended: nobody asks now, so the new one takes the old one's place.
            log.info("codex %s: its new generation replaces the old one in place", name)
        await self._steps.install(grown)
        return True
