"""The shelf: every loaded codex as it meets questions, raised when first needed and kept while it holds.

It settles which tier a codex stands in, has its floor computed, and takes it through loads, changes on disk and new
generations. It does not know questions, only that one was asked.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from codex.amendments import RebaseCase
from codex.errors import CodexError
from codex.library import Library
from codex.progress import Progress
from formatters.context import IdentityView, SigilView, TurnContext
from governor.settings import PressureSettings
from orchestrator.context.assembled import Floor
from orchestrator.context.codex_choice import Candidate
from orchestrator.context.composing import context_of
from orchestrator.context.tier import FloorTier, TierDecision, tier_named
from orchestrator.context.tier_moves import Pending, due, left, redecide
from orchestrator.errors import LoreError, NotReady
from orchestrator.identities import Identities
from orchestrator.machine import Machine
from orchestrator.shelf.changed import changed_definitions
from orchestrator.shelf.faults import translated
from orchestrator.shelf.floors import Floors, pool_name
from orchestrator.shelf.ledger import Ledger
from orchestrator.shelf.loads import Loads
from orchestrator.shelf.raising import Raising, Wanted, quiet
from orchestrator.shelf.rebasing import IDLE_S, Rebasing, Steps
from orchestrator.shelf.standing import Standing

log = logging.getLogger("lorekeep.shelf")


@dataclass(frozen=True)
class Grown:
    """A generation that was raised beside the one that stands, with its floor."""

    standing: Standing
    floor: Floor


class Shelf:
    """`raising` is known once the model is; before, nothing stands."""

    def __init__(
        self,
        library: Library,
        identities: Identities,
        machine: Machine,
        floors: Floors,
        loads: Loads,
        ledger: Ledger,
        forced: FloorTier | None,
        dwell: PressureSettings,
        idle_s: float = IDLE_S,
    ) -> None:
        self.library = library
        self.floors = floors
        self.loads = loads
        self.ledger = ledger
        self._identities = identities
        self._machine = machine
        self._forced_by_settings = forced
        self._dwell = dwell
        self._forced: dict[str, FloorTier] = {}
        self._raising: Raising | None = None
        self._standing: dict[str, Standing] = {}
        self._questions: dict[str, int] = {}
        self._raise_locks: dict[str, asyncio.Lock] = {}
        self._disk_locks: dict[str, asyncio.Lock] = {}
        self._pending: dict[str, Pending | None] = {}
        steps = Steps(self._case, self._share, self._prepare, self._grow, self._install)
        self._rebasing = Rebasing(floors, steps, idle_s)

    # -- looking

    async def candidates(self) -> list[Candidate]:
        """What can be asked about, with its root."""
        codices = await asyncio.to_thread(self.library.codices)
        return [Candidate(one.name, root) for one in codices if one.newest is not None for root in one.roots]

    def seen(self, name: str) -> Standing | None:
        """The codex as it stands now, without waiting."""
        return self._standing.get(name)

    async def standing(self, name: str) -> Standing:
        """The codex as it stands, raised now when it was not yet. Raises NotFound, NotReady and what counting raises."""
        found = self._standing.get(name)
        return found if found is not None else await self.raise_codex(name)

    def answered(self, name: str, paths: list[str]) -> None:
        """A question about a codex was answered from these of its files."""
        self._questions[name] = self._questions.get(name, 0) + 1
        try:
            self.ledger.touch(name, paths)
        except CodexError as fault:
            log.warning("what questions touched was not kept: %s", fault)
        self._rebasing.consider(name)

    def rebasing(self, name: str) -> bool:
        """Whether a new generation is on its way."""
        return self._rebasing.running(name)

    def disk(self, name: str) -> asyncio.Lock:
        """Held by whoever compares a codex with the disk: a load, or a watcher's news."""
        return self._disk_locks.setdefault(name, asyncio.Lock())

    # -- raising

    def speak(self, raising: Raising) -> None:
        """The model is known from now on: codices can be counted and their floors computed."""
        self._raising = raising

    async def raise_codex(
        self, name: str, report: Callable[[Progress], None] = quiet, keep: TierDecision | None = None
    ) -> Standing:
        """Raises the newest generation of a codex and has its floor computed; older generations are released."""
        await self._rebasing.give_up(name)
        async with self._raise_locks.setdefault(name, asyncio.Lock()):
            standing = await self._raised(name, report, keep)
            return await self._take(standing)

    async def _raised(
        self, name: str, report: Callable[[Progress], None] = quiet, keep: TierDecision | None = None
    ) -> Standing:
        raising = self._ready()
        room = self._machine.room(await self._identity_tokens())
        wanted = Wanted(name, room, self._forced.get(name, self._forced_by_settings), keep)
        with translated():
            return await raising.raised(wanted, self._identity(), report)

    async def _take(self, standing: Standing) -> Standing:
        """The codex stands as this from now on, with what was logged since it was raised."""
        name = standing.name
        async with self.disk(name):
            with translated():
                log_now = await asyncio.to_thread(self.library.amendments, name, standing.generation.number)
                if len(log_now) != len(standing.log):
                    standing = await self._ready().amended(standing, log_now)
                before = self._standing.get(name)
                self._standing[name] = standing
                is_new = before is None or before.generation.number != standing.generation.number
                if is_new:
                    self._questions[name] = 0
                    await asyncio.to_thread(self.library.release, name)
        self.floors.warm(name, await self._floor(standing), self._pool(name), new_generation=is_new)
        return standing

    def _ready(self) -> Raising:
        if self._raising is None:
            raise NotReady("the model is loading", "ask again when it is ready", retry_after=2.0)
        return self._raising

    def _identity(self) -> IdentityView:
        return self._identities.get(None, self._ready().voice.tools)

    async def _identity_tokens(self) -> int:
        (count,) = await self._ready().voice.tokens.count([self._identity().text])
        return count

    def _pool(self, name: str) -> str:
        return pool_name(self._identity().name, name)

    async def _floor(self, standing: Standing) -> Floor:
        turn = TurnContext(
            identity=self._identity(), sigil=SigilView(name="owner", uid=0), codex=standing.view, query="?"
        )
        return (await self._ready().voice.composer.compose(context_of(turn))).assembled.floor

    def force(self, name: str, tier: str | None) -> None:
        """Remembers the tier that a load asked for."""
        if tier == "auto":
            self._forced.pop(name, None)
        elif tier is not None:
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
        if self._raising is None or standing.forced is not None:
            return None
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
            self._standing[name] = replace(standing, decision=replace(stands, reason=wanted.reason))
        return None

    async def _move(self, standing: Standing, wanted: TierDecision) -> None:
        log.info("codex %s moves from %s to %s: %s", standing.name, standing.decision.tier, wanted.tier, wanted.reason)
        try:
            await self.raise_codex(standing.name, keep=wanted)
        except LoreError as error:
            log.warning("codex %s stays as it is: %s", standing.name, error)

    # -- following the disk

    async def changed(self, name: str) -> None:
        """Files of a codex may have changed: its log grows, its index follows, its floor gets the new entries behind it.

        Raises Conflict while another process loads it.
        """
        if self._raising is None:
            return
        async with self.disk(name):
            standing = self._standing.get(name)
            if standing is None:
                return
            with translated():
                followed = await asyncio.to_thread(
                    self.library.follow,
                    name,
                    standing.generation.number,
                    count=lambda text: self._ready().voice.count_in_thread([text])[0],
                    changed_definitions=changed_definitions,
                )
                chunks = await asyncio.to_thread(self._raising.chunks, name)
            if not followed.new:
                return
            amended = await self._raising.amended(replace(standing, chunks=chunks), followed.log)
            if self._standing.get(name) is not standing:
                amended = replace(amended, decision=self._standing[name].decision)
            self._standing[name] = amended
        log.info("codex %s: %d changes taken in", name, followed.new)
        self.floors.warm(name, await self._floor(amended), self._pool(name))
        self._rebasing.consider(name)

    # -- new generations

    def _case(self, name: str) -> RebaseCase | None:
        standing = self._standing.get(name)
        if standing is None:
            return None
        return RebaseCase(
            idle=True,  # it begins only then
            codex=standing.tokens,
            amendments=standing.amended,
            to_compute=standing.behind_first_change(),
            questions=self._questions.get(name, 0),
        )

    def _share(self, name: str) -> float:
        standing = self._standing.get(name)
        own = standing.rebase_share if standing else None
        return self.library.settings.amendments.rebase_share if own is None else own

    async def _prepare(self, name: str) -> Grown:
        await asyncio.shield(asyncio.ensure_future(self._take_in_again(name)))
        standing = await self._raised(name)
        return Grown(standing, await self._floor(standing))

    async def _take_in_again(self, name: str) -> None:
        """Shielded: a thread cannot be cancelled, and the lock must be held as long as it works."""
        async with self.disk(name):
            with translated():
                request = await asyncio.to_thread(self.library.request, name)
                await asyncio.to_thread(self.library.load, request)

    async def _grow(self, grown: Grown) -> bool:
        return await self.floors.grow(grown.floor, self._pool(grown.standing.name))

    async def _install(self, grown: Grown) -> None:
        name = grown.standing.name
        async with self._raise_locks.setdefault(name, asyncio.Lock()):
            await self._take(grown.standing)
        log.info("codex %s moved to generation %d", name, grown.standing.generation.number)

    # -- ends

    async def drop(self, name: str) -> None:
        """Raises NotFound, Conflict."""
        await self._rebasing.give_up(name)
        async with self.disk(name):
            with translated():
                await asyncio.to_thread(self.library.drop, name)
                await asyncio.to_thread(self.ledger.forget, name)
            self._standing.pop(name, None)
        self._forced.pop(name, None)
        self._questions.pop(name, None)
        self.floors.drop(name)

    async def wake(self) -> None:
        """After a start: everything loaded is raised again, so that its floor is restored before the first question."""
        for codex in await asyncio.to_thread(self.library.codices):
            if codex.newest is not None and codex.name not in self._standing:
                try:
                    await self.raise_codex(codex.name)
                except Exception as error:  # noqa: BLE001 - one damaged codex must not keep the others down
                    log.warning("codex %s could not be raised: %s", codex.name, error)

    async def stop(self) -> None:
        await self._rebasing.stop()
        await self.loads.stop()
        await self.floors.stop()
        self.ledger.close()
