"""Codices move with the machine: a tier that no longer fits steps down, one that may grow steps up, neither at once."""

import logging
import time
from dataclasses import replace

from governor.settings import PressureSettings
from orchestrator.codices.codices import Codices
from orchestrator.codices.state import CodexState
from orchestrator.errors import LoreError
from orchestrator.machine.machine import Machine
from orchestrator.prompt.coverage import CoverageDecision, Pending, due, left, redecide

log = logging.getLogger("lorekeep.codices")


class Moving:
    """`dwell`: how long a wish for another tier must last."""

    def __init__(self, shelf: Codices, machine: Machine, dwell: PressureSettings) -> None:
        self._shelf = shelf
        self._machine = machine
        self._dwell = dwell
        self._pending: dict[str, Pending | None] = {}

    async def reconsider(self) -> float | None:
        """After a new reading. Returns the seconds after which the next wish has lasted long enough, None without one."""
        if self._machine.outlook.budget is None:
            return None
        waits = [await self._reconsidered(one) for one in self._shelf.all_seen()]
        self._shelf.generations.reconsider(self._shelf.all_seen())
        return min((wait for wait in waits if wait is not None), default=None)

    async def _reconsidered(self, standing: CodexState) -> float | None:
        """Moves one codex when that is due; else the seconds until it is, None when it may stay."""
        name, stands = standing.name, standing.decision
        if standing.forced is not None:
            return None
        identity_tokens = await self._shelf.identity_tokens(name)
        room, level = self._machine.room(identity_tokens), self._machine.levels.memory or "calm"
        wanted = redecide(stands, standing.sizes, room, level, settings=standing.settings).decision
        now, dwell = time.monotonic(), (self._dwell.worse_s, self._dwell.better_s)
        pending, now_due = due(self._pending.get(name), stands.tier, wanted.tier, now, *dwell)
        self._pending[name] = None if now_due else pending
        if now_due:
            await self._move(standing, wanted)
        elif pending is not None:
            return left(pending, stands.tier, now, *dwell)
        elif wanted.reason != stands.reason:
            self._shelf.restate(standing, replace(standing, decision=replace(stands, reason=wanted.reason)))
        return None

    async def _move(self, standing: CodexState, wanted: CoverageDecision) -> None:
        log.info("codex %s moves from %s to %s: %s", standing.name, standing.decision.tier, wanted.tier, wanted.reason)
        try:
            await self._shelf.raise_codex(standing.name, keep=wanted)
        except LoreError as error:
            log.warning("codex %s stays as it is: %s", standing.name, error)
