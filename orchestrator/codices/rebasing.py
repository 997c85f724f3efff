"""New floors in the background: when a codex's log has grown too long or its identity has changed, and while nobody asks.

    due? ─▶ idle, and its turn? ─▶ take in, raise ─▶ compute the new floor beside the old one ─▶ the codex moves to it
                     ▲                                   │ a question comes
                     └───────────────────────────────────┘ what was computed stays

The old floor serves until the new one stands. One codex at a time, in order of last use. Knows neither disk nor engine;
what the steps do is handed in.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from codex.errors import CodexError
from orchestrator.codices.floors import Questions
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.errors import EngineFailed, LoreError, NotReady

log = logging.getLogger("lorekeep.codices")

IDLE_S = 3.0  # nothing asked for this long: whoever reads an answer is likely to ask again
LOOK_S = 0.2  # between two looks whether waiting still makes sense
AGAIN_S = 1.0  # after an attempt that the engine's end, or memory that cannot be planned, has ended
PATIENCE_S = 60.0  # that a question waits for such a one: the model is loaded again in that time
PASSING = (EngineUnavailable, EngineFailed, NotReady)
Grown = TypeVar("Grown")


@dataclass(frozen=True)
class Due:
    """What a codex is to get, and why: a new generation, or the new version of an identity; '' for nothing."""

    what: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Steps(Generic[Grown]):
    """What a new floor takes, of one codex.

    `due`: what it is to get now; `used`: when it was asked about last, any clock; `urgent`: nobody can ask about
    it before, so it neither waits for an idle moment nor gives way to other questions. `prepare` makes what will stand,
    `grow` computes its floor, may be cancelled, and gives it back as one that stands; `install` moves the codex to it.
    `back` returns when the engine answers again, and raises EngineUnavailable where it will not.
    """

    due: Callable[[str], Due]
    used: Callable[[str], float]
    urgent: Callable[[str], bool]
    prepare: Callable[[str], Awaitable[Grown]]
    grow: Callable[[Grown], Awaitable[Grown]]
    install: Callable[[Grown], Awaitable[None]]
    back: Callable[[], Awaitable[object]]


class Rebasing(Generic[Grown]):
    """At most one attempt at a time, but for urgent ones. One event loop calls all of it."""

    def __init__(
        self,
        questions: Questions,
        steps: Steps[Grown],
        idle_s: float = IDLE_S,
        again_s: float = AGAIN_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._asking = questions
        self._steps = steps
        self._idle_s = idle_s
        self._again_s = again_s
        self._patience_s = patience_s
        self._hindered: dict[str, str] = {}
        self._reasons: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._waiting: set[str] = set()
        self._at_work = ""  # whose turn it is

    def consider(self, name: str) -> None:
        """Begins where one is due; it waits for its idle moment by itself."""
        if self.running(name):
            return
        due = self._steps.due(name)
        if due.what:
            log.info("codex %s gets a new %s when idle: %s", name, due.what, due.reason)
            self._hindered.pop(name, None)
            self._tasks[name] = asyncio.create_task(self._run(name), name=f"rebase of {name}")

    def running(self, name: str) -> bool:
        task = self._tasks.get(name)
        return task is not None and not task.done()

    def reason(self, name: str) -> str:
        """Why the newest one of this codex was begun; '' where there was none."""
        return self._reasons.get(name, "")

    def hindered(self, name: str) -> str:
        """Why the last attempt failed; '' where none did. One that is still running is about to try again."""
        return self._hindered.get(name, "")

    async def ended(self, name: str) -> None:
        """Returns when none of this codex is under way, or it was hindered for as long as anybody should wait."""
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

    def _due(self, name: str) -> bool:
        due = self._steps.due(name)
        if due.what:
            self._reasons[name] = due.reason
        return bool(due.what)

    async def _run(self, name: str) -> None:
        try:
            while self._due(name):
                await self._moment(name)
                if self._due(name):  # also where the moment was long in coming
                    await self._unhindered(name)
            self._hindered.pop(name, None)
        except (CodexError, LoreError, EngineUnavailable) as fault:
            self._hindered[name] = str(fault)
            log.warning("codex %s stays as it is: %s", name, fault)

    async def _unhindered(self, name: str) -> None:
        """An attempt; what passes by itself is waited for. Raises what does not."""
        try:
            await self._in_turn(name)
        except PASSING as fault:
            if self.hindered(name) != str(fault):
                log.info("codex %s: its new floor is tried again: %s", name, fault)
            self._hindered[name] = str(fault)
            await self._steps.back()
            await asyncio.sleep(self._again_s)
        else:
            self._hindered.pop(name, None)

    # -- when

    async def _moment(self, name: str) -> None:
        """Returns when nobody asks and it is this codex's turn, or nobody can ask."""
        self._waiting.add(name)
        try:
            await asyncio.sleep(0)  # others that were found due with it say that they wait too
            while not self._steps.urgent(name):
                if await self._quiet():
                    if self._is_next(name):
                        return
                    await asyncio.sleep(LOOK_S)
        finally:
            self._waiting.discard(name)

    async def _quiet(self) -> bool:
        """Whether nobody has asked for long enough, or soon will not have."""
        try:
            async with asyncio.timeout(LOOK_S):
                await self._asking.idle(self._idle_s)
        except TimeoutError:
            return False
        return True

    def _is_next(self, name: str) -> bool:
        return not self._at_work and name == max(self._waiting, key=lambda one: (self._steps.used(one), one))

    # -- one attempt

    async def _in_turn(self, name: str) -> None:
        mine = not self._at_work
        self._at_work = self._at_work or name
        try:
            await self._attempt(name)
        finally:
            if mine:
                self._at_work = ""

    async def _attempt(self, name: str) -> None:
        """Ends without installing anything when a question comes in between."""
        urgent = self._steps.urgent(name)
        prepared = await self._steps.prepare(name)
        grown = prepared if urgent else await self._grown(name, prepared)
        if grown is not None:
            await self._steps.install(grown)

    async def _grown(self, name: str, prepared: Grown) -> Grown | None:
        """None when a question came in between, it is no longer wanted, or became urgent. Raises what `grow` does."""
        growing = asyncio.ensure_future(self._steps.grow(prepared))
        asked = asyncio.ensure_future(self._asking.asked())
        try:
            while not growing.done() and not asked.done() and self._due(name) and not self._steps.urgent(name):
                await asyncio.wait({growing, asked}, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            growing.cancel()  # does nothing to one that has ended
            await asyncio.gather(growing, asked, return_exceptions=True)
        return None if growing.cancelled() else growing.result()
