"""The shelf: every loaded codex as it meets questions, raised when first needed and kept while it holds.

It settles which tier a codex stands in, has its floor computed, and takes it through loads and changes on disk. It does not
know questions.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from codex.errors import CodexError
from codex.library import Library
from codex.progress import Progress
from formatters.context import SigilView, TurnContext
from governor.settings import PressureSettings
from orchestrator.context.codex_choice import Candidate
from orchestrator.context.composing import context_of
from orchestrator.context.tier import FloorTier, TierDecision, tier_named
from orchestrator.context.tier_moves import Pending, due, left, redecide
from orchestrator.errors import LoreError
from orchestrator.identities import Identities
from orchestrator.machine import Machine
from orchestrator.shelf.changed import changed_definitions
from orchestrator.shelf.faults import translated
from orchestrator.shelf.floors import Floors
from orchestrator.shelf.loads import Loads
from orchestrator.shelf.raising import Raising, amendment_of
from orchestrator.shelf.standing import Standing

log = logging.getLogger("lorekeep.shelf")


def quiet(progress: Progress) -> None:
    """A report nobody reads."""


class Shelf:
    """`raising` is known once the model is; before, nothing stands."""

    def __init__(
        self,
        library: Library,
        identities: Identities,
        machine: Machine,
        floors: Floors,
        chunks: Callable[[str], int],
        forced: FloorTier | None,
        dwell: PressureSettings,
    ) -> None:
        self.library = library
        self.floors = floors
        self.loads = Loads()
        self._identities = identities
        self._machine = machine
        self._chunks = chunks
        self._forced_by_settings = forced
        self._dwell = dwell
        self._forced: dict[str, FloorTier] = {}
        self._raising: Raising | None = None
        self._standing: dict[str, Standing] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._pending: dict[str, Pending | None] = {}

    # -- looking

    async def candidates(self) -> list[Candidate]:
        """What can be asked about, with its root."""
        codices = await asyncio.to_thread(self.library.codices)
        return [Candidate(one.name, one.roots[0]) for one in codices if one.newest is not None]

    def seen(self, name: str) -> Standing | None:
        """The codex as it stands now, without waiting."""
        return self._standing.get(name)

    async def standing(self, name: str) -> Standing:
        """The codex as it stands, raised now when it was not yet. Raises NotFound, NotReady and what counting raises."""
        found = self._standing.get(name)
        return found if found is not None else await self.raise_codex(name)

    # -- raising

    def speak(self, raising: Raising) -> None:
        """The model is known from now on: codices can be counted and their floors computed."""
        self._raising = raising

    async def raise_codex(
        self, name: str, report: Callable[[Progress], None] = quiet, keep: TierDecision | None = None
    ) -> Standing:
        """Raises the newest generation of a codex and has its floor computed."""
        assert self._raising is not None, "codices are raised once the model is ready"
        async with self._locks.setdefault(name, asyncio.Lock()):
            identity = self._identities.get(None, self._raising.voice.tools)
            room = self._machine.room(await self._identity_tokens())
            forced = self._forced.get(name, self._forced_by_settings)
            chunks = await asyncio.to_thread(self._chunks, name)
            with translated():
                standing = await self._raising.raised(name, identity, room, forced, chunks, report, keep)
            self._standing[name] = standing
            await self._warm(standing)
            return standing

    async def _identity_tokens(self) -> int:
        assert self._raising is not None
        identity = self._identities.get(None, self._raising.voice.tools)
        (count,) = await self._raising.voice.tokens.count([identity.text])
        return count

    async def _warm(self, standing: Standing) -> None:
        assert self._raising is not None
        voice = self._raising.voice
        turn = TurnContext(
            identity=self._identities.get(None, voice.tools),
            sigil=SigilView(name="owner", uid=0),
            codex=standing.view,
            query="?",
        )
        composed = await voice.composer.compose(context_of(turn))
        self.floors.warm(standing.name, composed.assembled.floor)

    def force(self, name: str, tier: str | None) -> None:
        """Remembers the tier that a load asked for."""
        if tier is not None and tier != "auto":
            self._forced[name] = tier_named(tier)

    # -- moving with the machine

    async def reconsider(self) -> float | None:
        """After a new reading: codices whose tier no longer fits step down, those that may grow step up.

        Returns the seconds after which the next wish for another tier has lasted long enough, None when there is none.
        """
        if self._raising is None or self._machine.outlook.budget is None:
            return None
        identity_tokens = await self._identity_tokens()
        waits = [await self._reconsidered(one, identity_tokens) for one in list(self._standing.values())]
        return min((wait for wait in waits if wait is not None), default=None)

    async def _reconsidered(self, standing: Standing, identity_tokens: int) -> float | None:
        """Moves one codex when that is due; else the seconds until it is, None when it may stay."""
        name, stands = standing.name, standing.decision
        if self._raising is None or name in self._forced or self._forced_by_settings is not None:
            return None
        room, level = self._machine.room(identity_tokens), self._machine.levels.memory or "calm"
        wanted = redecide(stands, standing.sizes, room, level, settings=self._raising.settings).decision
        now, dwell = time.monotonic(), (self._dwell.worse_s, self._dwell.better_s)
        pending, now_due = due(self._pending.get(name), stands.tier, wanted.tier, now, *dwell)
        self._pending[name] = None if now_due else pending
        if now_due:
            await self._move(standing, wanted)
        elif pending is not None:
            return left(pending, stands.tier, now, *dwell)
        elif wanted.reason != stands.reason:
            self._standing[name] = replace(standing, decision=replace(stands, reason=wanted.reason))
        return None

    async def _move(self, standing: Standing, wanted: TierDecision) -> None:
        log.info("codex %s moves from %s to %s: %s", standing.name, standing.decision.tier, wanted.tier, wanted.reason)
        try:
            await self.raise_codex(standing.name, keep=wanted)
        except LoreError as error:
            log.warning("codex %s stays as it is: %s", standing.name, error)

    async def changed(self, name: str) -> None:
        """Files of a codex may have changed: its log grows, its index follows, its floor gets the new entries behind it."""
        standing = self._standing.get(name)
        if standing is None or self._raising is None:
            return
        with translated():
            followed = await asyncio.to_thread(
                self.library.follow,
                name,
                standing.generation.number,
                count=lambda text: self._raising.voice.count_in_thread([text])[0] if self._raising else 0,
                changed_definitions=changed_definitions,
            )
        if not followed.new:
            return
        view = standing.view.model_copy(update={"amendments": tuple(amendment_of(one) for one in followed.log)})
        self._standing[name] = replace(standing, view=view, log=followed.log)
        log.info("codex %s: %d changes taken in", name, followed.new)
        await self._warm(self._standing[name])

    async def drop(self, name: str) -> None:
        """Raises NotFound, Conflict."""
        with translated():
            await asyncio.to_thread(self.library.drop, name)
        self._standing.pop(name, None)
        self._forced.pop(name, None)
        self.floors.drop(name)

    async def wake(self) -> None:
        """After a start: everything loaded is raised again, so that its floor is restored before the first question."""
        for codex in await asyncio.to_thread(self.library.codices):
            if codex.newest is not None and codex.name not in self._standing:
                try:
                    await self.raise_codex(codex.name)
                except (CodexError, Exception) as error:  # noqa: BLE001 - one damaged codex must not keep the others down
                    log.warning("codex %s could not be raised: %s", codex.name, error)

    async def stop(self) -> None:
        await self.loads.stop()
        await self.floors.stop()
