"""The shelf: every loaded codex as it meets questions, raised when first needed and kept while it holds.

It settles which tier a codex stands in, has its floor computed, and takes it through loads and changes on disk. It does
not know questions, only that one was asked.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from codex.errors import CodexError
from codex.library import Library
from codex.progress import Report
from formatters.context import IdentityView
from orchestrator.context.assembled import Floor
from orchestrator.context.codex_choice import Candidate
from orchestrator.context.tier import FloorTier, Room, TierDecision, tier_named
from orchestrator.errors import NotReady
from orchestrator.hosting.machine import Machine
from orchestrator.identities import Identities
from orchestrator.shelf.before import Before, before, note_compared, take_back
from orchestrator.shelf.changed import changed_parts
from orchestrator.shelf.faults import mended, translated
from orchestrator.shelf.floor_of import floor_of
from orchestrator.shelf.floors import Floors, pool_name
from orchestrator.shelf.generations import Generations, Grown
from orchestrator.shelf.ledger import Ledger
from orchestrator.shelf.loads import Loads
from orchestrator.shelf.raising import Raising, Wanted, quiet, tokens_of
from orchestrator.shelf.rebasing import IDLE_S
from orchestrator.shelf.standing import Standing
from orchestrator.shelf.unready import candidates_of
from orchestrator.shelf.wake import raise_all

log = logging.getLogger("lorekeep.shelf")


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
        idle_s: float = IDLE_S,
    ) -> None:
        self.library = library
        self.floors = floors
        self.loads = loads
        self.ledger = ledger
        self._identities = identities
        self._machine = machine
        self._forced_by_settings = forced
        self._raising: Raising | None = None
        self._identity_size = 0  # tokens, as counted last: before anything stands it has been
        self._standing: dict[str, Standing] = {}
        self._raise_locks: dict[str, asyncio.Lock] = {}
        self._disk_locks: dict[str, asyncio.Lock] = {}
        self._generations = Generations(library, floors, self, idle_s)

    # -- looking

    async def candidates(self, asked: str | None = None, cwd: str = "") -> list[Candidate]:
        """What can be asked about, with its root. Raises LoreError; see `candidates_of`."""
        with translated():
            return candidates_of(await asyncio.to_thread(self.library.codices), asked, cwd, self.loads.far)

    def seen(self, name: str) -> Standing | None:
        """The codex as it stands now, without waiting."""
        return self._standing.get(name)

    def loading(self, name: str) -> bool:
        """Whether a load is taking it in or raising it."""
        return self.loads.find(name) is not None

    def all_seen(self) -> list[Standing]:
        return list(self._standing.values())

    def restate(self, before: Standing, after: Standing) -> None:
        """The same codex with something of it told anew, nothing that its floor is made of; unless it moved meanwhile."""
        if self._standing.get(before.name) is before:
            self._standing[before.name] = after

    async def standing(self, name: str) -> Standing:
        """The codex as it stands, raised now when it was not yet. Raises NotFound, NotReady and what counting raises."""
        found = self._standing.get(name)
        if found is None:
            return await self.raise_codex(name)
        if found.amended and found.overfull(self._room()):
            await self._generations.now(name)
        return self._standing.get(name, found)

    def overfull(self, standing: Standing) -> bool:
        """Whether nobody can ask before it is rebased, as far as that can be told now."""
        return self._machine.outlook.budget is not None and standing.overfull(self._room())

    def _room(self) -> Room:
        return self._machine.room(self._identity_size)

    def reconsider(self) -> None:
        """The machine has changed: what fitted may do so no longer."""
        for standing in self.all_seen():
            if standing.amended and self.overfull(standing):
                self._generations.amended(standing.name)

    def answered(self, name: str, paths: list[str]) -> None:
        """A question about a codex was answered from these of its files."""
        try:
            self.ledger.touch(name, paths)
        except CodexError as fault:
            log.warning("what questions touched was not kept: %s", fault)
        self._generations.answered(name)

    def rebasing(self, name: str) -> bool:
        """Whether a new generation is on its way."""
        return self._generations.under_way(name)

    def disk(self, name: str) -> asyncio.Lock:
        """Held by whoever compares a codex with the disk: a load, or a watcher's news."""
        return self._disk_locks.setdefault(name, asyncio.Lock())

    # -- raising

    @property
    def can_raise(self) -> bool:
        return self._raising is not None

    def speak(self, raising: Raising) -> None:
        """The model is known from now on: codices can be counted and their floors computed."""
        self._raising = raising

    async def raise_codex(
        self,
        name: str,
        report: Report = quiet,
        keep: TierDecision | None = None,
        *,
        strict: bool = False,
        settle: bool = True,
    ) -> Standing:
        """Raises the newest generation of a codex and has its floor computed; older generations are released, without
        `settle` by `settled` or `go_back`. `strict`: raises OverBudget for a forced tier that does not fit, instead of
        letting another one stand.
        """
        await self._generations.give_up(name)
        async with self._raise_locks.setdefault(name, asyncio.Lock()):
            standing = await self._raised(name, report, keep, strict=strict)
            return await self._take(standing, settle=settle)

    async def _raised(self, name: str, report: Report, keep: TierDecision | None, *, strict: bool) -> Standing:
        raising = self._ready()
        room = self._machine.room(await self.identity_tokens())
        with translated():
            tier = (await asyncio.to_thread(self.ledger.wishes, name)).tier
            forced = self._forced_by_settings if tier is None else tier_named(tier)
            return await raising.raised(Wanted(name, room, forced, keep, strict), self._identity(), report)

    async def _take(self, standing: Standing, *, settle: bool = True) -> Standing:
        """The codex stands as this from now on, with what was logged since it was raised."""
        name = standing.name
        async with self.disk(name):
            with translated():
                log_now = await asyncio.to_thread(self.library.amendments, name, standing.generation.number)
                if len(log_now) != len(standing.log):
                    standing = await self._ready().amended(standing, log_now)
                before = self._standing.get(name)
                self._standing[name] = standing if before is None else standing.behind(before)
                is_new = before is None or before.generation.number != standing.generation.number
                if is_new:
                    self._generations.began(name)
                if is_new and settle:
                    await asyncio.to_thread(self.library.release, name)
        self.floors.warm(name, await self._floor(standing), self.pool(name), new_generation=is_new and settle)
        return standing

    def _ready(self) -> Raising:
        if self._raising is None:
            raise NotReady("the model is loading", "ask again when it is ready", retry_after=2.0)
        return self._raising

    def _identity(self) -> IdentityView:
        return self._identities.get(None, self._ready().voice.tools)

    async def identity_tokens(self) -> int:
        (self._identity_size,) = await self._ready().voice.tokens.count([self._identity().text])
        return self._identity_size

    def pool(self, name: str) -> str:
        return pool_name(self._identity().name, name)

    async def _floor(self, standing: Standing) -> Floor:
        return await floor_of(standing.view, self._identity(), self._ready().voice)

    # -- a load's end

    async def before(self, name: str) -> Before:
        """What a load of this codex must leave when it is cancelled. No new generation is made beside a load."""
        await self._generations.give_up(name)
        with translated():
            return await asyncio.to_thread(before, self.library, self.ledger, name, self._standing.get(name))

    async def settled(self, was: Before) -> None:
        """The load has ended well: what stood before goes."""
        await asyncio.to_thread(note_compared, self.ledger, was)
        standing = self._standing.get(was.name)
        if standing is not None and standing.generation.number != was.number:
            with translated():
                await asyncio.to_thread(self.library.release, was.name)
            self.floors.settle(was.name)

    async def go_back(self, was: Before) -> None:
        """The codex stands as it did before a load. Raises LoreError."""
        name = was.name
        async with self._raise_locks.setdefault(name, asyncio.Lock()):
            async with self.disk(name):
                with translated():
                    await asyncio.to_thread(take_back, self.library, self.ledger, was)
            if was.standing is None:
                self._standing.pop(name, None)
                self.floors.drop(name)
            elif self._standing.get(name) is not was.standing:
                await self._take(was.standing)

    # -- following the disk

    async def changed(self, name: str) -> None:
        """Files of a codex may have changed: its log grows, its index follows, its floor gets the new entries behind it.

        Needs no model where the codex does not stand yet. Raises Conflict while another process loads it.
        """
        async with self.disk(name):
            standing = self._standing.get(name)  # None: it could not be raised yet, and will be with this log
            number = None if standing is None else standing.generation.number
            with translated():
                followed = await mended(
                    lambda: self.library.follow(
                        name,
                        number,
                        count=lambda text: tokens_of(text, self._raising),
                        changed_definitions=changed_parts,
                    )
                )
            if standing is None:
                return
            with translated():
                chunks = await asyncio.to_thread(self._ready().chunks, name)
            now = replace(standing, tree=followed.changes.state)
            if not followed.new:
                self.restate(standing, now)
                return
            amended = await self._ready().amended(replace(now, chunks=chunks), followed.log)
            if self._standing.get(name) is not standing:
                amended = replace(amended, decision=self._standing[name].decision)
            self._standing[name] = amended
        log.info("codex %s: %d %s taken in", name, followed.new, "change" if followed.new == 1 else "changes")
        if not self.overfull(amended):
            self.floors.warm(name, await self._floor(amended), self.pool(name))
        self._generations.amended(name)

    # -- new generations

    async def beside(self, name: str) -> Grown:
        """The newest generation, raised beside the one that stands."""
        standing = await self._raised(name, quiet, None, strict=False)
        return Grown(standing, await self._floor(standing))

    async def move(self, grown: Grown) -> None:
        """The codex stands as this from now on."""
        async with self._raise_locks.setdefault(grown.standing.name, asyncio.Lock()):
            await self._take(grown.standing)

    # -- ends

    async def drop(self, name: str) -> None:
        """Raises NotFound, Conflict."""
        await self._generations.give_up(name)
        async with self.disk(name):
            with translated():
                await asyncio.to_thread(self.library.drop, name)
                await asyncio.to_thread(self.ledger.forget, name)
            self._standing.pop(name, None)
        self._generations.forget(name)
        self.loads.forget(name)
        self.floors.drop(name)

    async def wake(self, told: Callable[[int, int], None]) -> None:
        """After a start: everything loaded is raised again, so that its floor is restored before the first question."""
        await raise_all(self, told)

    async def stop(self, why: str = "the daemon is stopping") -> None:
        await self._generations.stop()
        await self.loads.stop(why)
        await self.floors.stop()
        self.ledger.close()
