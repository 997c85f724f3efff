"""The shelf: every loaded codex as it meets questions, raised when first needed and kept while it holds.

It settles which tier a codex stands in, has its floor computed, and takes it through loads and changes on disk. It does
not know questions, only that one was asked.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from codex.library import Library
from codex.progress import Report
from orchestrator.codices.building import BuildRequest, CodexBuilder, apply_changes, quiet
from orchestrator.codices.faults import candidates_of, translated
from orchestrator.codices.floors import Floors
from orchestrator.codices.generations import Generations, Grown
from orchestrator.codices.loads import Loads, StateBeforeLoad, note_compared, state_before, take_back
from orchestrator.codices.personas import Personas
from orchestrator.codices.rebasing import IDLE_S
from orchestrator.codices.serving import Served
from orchestrator.codices.state import CodexState, FloorKey
from orchestrator.codices.state_store import CodexStateStore
from orchestrator.errors import NotReady
from orchestrator.identities import DEFAULT
from orchestrator.machine.machine import Machine
from orchestrator.prompt.coverage import Coverage, CoverageDecision, FloorRoom, coverage_named
from orchestrator.prompt.situation import ReadableCodex

log = logging.getLogger("lorekeep.codices")


class Codices:
    """`raising` is known once the model is; before, nothing stands."""

    def __init__(
        self,
        library: Library,
        personas: Personas,
        machine: Machine,
        floors: Floors,
        loads: Loads,
        ledger: CodexStateStore,
        forced: Coverage | None,
        idle_s: float = IDLE_S,
    ) -> None:
        self.library = library
        self.floors = floors
        self.loads = loads
        self.ledger = ledger
        self.personas = personas
        self._machine = machine
        self._forced_by_settings = forced
        self._raising: CodexBuilder | None = None
        self._identity_size = 0  # tokens, as counted last: before anything stands it has been
        self._standing: dict[str, CodexState] = {}
        self._raise_locks: dict[str, asyncio.Lock] = {}
        self._disk_locks: dict[str, asyncio.Lock] = {}
        self.generations = Generations(library, floors, self, personas, idle_s)
        floors.on_stood(self._computed)

    # -- looking

    async def candidates(self, asked: str | None = None, cwd: str = "") -> list[ReadableCodex]:
        """What can be asked about, with its root. Raises LoreError; see `candidates_of`."""
        with translated():
            return candidates_of(await asyncio.to_thread(self.library.codices), asked, cwd, self.loads.far)

    def seen(self, name: str) -> CodexState | None:
        """The codex as it stands now, without waiting."""
        return self._standing.get(name)

    def loading(self, name: str) -> bool:
        """Whether a load is taking it in or raising it."""
        return self.loads.find(name) is not None

    def all_seen(self) -> list[CodexState]:
        return list(self._standing.values())

    def restate(self, was: CodexState, after: CodexState) -> None:
        """The same codex with something of it told anew, nothing that its floor is made of; unless it moved meanwhile."""
        if self._standing.get(was.name) is was:
            self._standing[was.name] = after

    async def standing(self, name: str) -> CodexState:
        """The codex as it stands, raised now when it was not yet. Raises NotFound, NotReady and what counting raises."""
        found = self._standing.get(name)
        if found is None:
            return await self.raise_codex(name)
        if found.amended and found.overfull(self._room()):
            await self.generations.now(name)
        return self._standing.get(name, found)

    def overfull(self, standing: CodexState) -> bool:
        """Whether nobody can ask before it is rebased, as far as that can be told now."""
        return self._machine.outlook.budget is not None and standing.overfull(self._room())

    def _room(self) -> FloorRoom:
        return self._machine.room(self._identity_size)

    def answered(self, place: FloorKey, paths: list[str]) -> None:
        """A question was answered on this floor, from these files."""
        self._computed(place)
        if place.codex:
            self.ledger.asked(place.codex, paths)
            self.generations.answered(place.codex)

    def disk(self, name: str) -> asyncio.Lock:
        """Held by whoever compares a codex with the disk: a load, or a watcher's news."""
        return self._disk_locks.setdefault(name, asyncio.Lock())

    # -- raising

    def speak(self, raising: CodexBuilder) -> None:
        """The model is known from now on: codices can be counted and their floors computed."""
        self._raising = raising
        self.personas.speak(raising.voice)
        self.generations.follow(self.all_seen)

    async def raise_codex(
        self,
        name: str,
        report: Report = quiet,
        keep: CoverageDecision | None = None,
        *,
        strict: bool = False,
        settle: bool = True,
    ) -> CodexState:
        """Raises the newest generation of a codex and has its floor computed; older generations are released, without
        `settle` by `settled` or `go_back`. `strict`: raises OverBudget for a forced tier that does not fit, instead of
        letting another one stand.
        """
        await self.generations.give_up(name)
        async with self._raise_locks.setdefault(name, asyncio.Lock()):
            standing = await self._raised(name, report, keep, strict=strict)
            return await self._take(standing, settle=settle)

    async def _raised(self, name: str, report: Report, keep: CoverageDecision | None, *, strict: bool) -> CodexState:
        raising = self._ready()
        room = self._machine.room(await self.identity_tokens(name))
        identity = self.personas.newest(name)
        with translated():
            tier = (await asyncio.to_thread(self.ledger.wishes, name)).tier
            forced = self._forced_by_settings if tier is None else coverage_named(tier)
            return await raising.raised(BuildRequest(name, room, forced, keep, strict), identity, report)

    async def _take(self, standing: CodexState, *, settle: bool = True, grown: FloorKey | None = None) -> CodexState:
        """The codex stands as this from now on, with what was logged since it was raised; its floor may be grown there."""
        name = standing.name
        async with self.disk(name):
            with translated():
                log_now = await asyncio.to_thread(self.library.amendments, name, standing.generation.number)
                if len(log_now) != len(standing.log):
                    standing = await self._ready().amended(standing, log_now)
                state_before = self._standing.get(name)
                self._standing[name] = standing if state_before is None else standing.behind(state_before)
                if grown is not None:
                    self.personas.stood(grown)
                is_new = state_before is None or state_before.generation.number != standing.generation.number
                if is_new:
                    self.generations.began(name)
                if is_new and settle:
                    await asyncio.to_thread(self.library.release, name)
        await self._warm(standing, to_stay=is_new and settle)
        return standing

    def _ready(self) -> CodexBuilder:
        if self._raising is None:
            raise NotReady("the model is loading", "ask again when it is ready", retry_after=2.0)
        return self._raising

    async def _warm(self, standing: CodexState, *, to_stay: bool = False) -> None:
        floor, place = await self.personas.floor(standing.view)
        self.floors.warm(floor, place, to_stay=to_stay)
        self.generations.consider(standing.name)

    # -- identities

    async def identity_tokens(self, name: str) -> int:
        self._identity_size = await self.personas.tokens(name)
        return self._identity_size

    async def served(self, standing: CodexState | None, identity: str | None = None) -> Served:
        """The version of an identity that answers now; a newer one is prepared. Raises NotFound, InvalidRequest."""
        served = await self.personas.served(standing.view if standing else None, identity)
        if standing is not None and served.coming is not None:
            self.generations.consider(standing.name)
        elif standing is not None and self.floors.is_of_another(FloorKey.of(standing.view, served.view)):
            await self._warm(standing)  # it changed before its floor stood
        return served

    def _computed(self, place: FloorKey) -> None:
        standing = self._standing.get(place.codex)
        if standing is not None or not place.codex:
            self.personas.computed(standing.view if standing else None, place)

    # -- a load's end

    async def before(self, name: str) -> StateBeforeLoad:
        """What a load of this codex must leave when it is cancelled. No new generation is made beside a load."""
        await self.generations.give_up(name)
        with translated():
            return await asyncio.to_thread(state_before, self.library, self.ledger, name, self._standing.get(name))

    async def settled(self, was: StateBeforeLoad) -> None:
        """The load has ended well: what stood before goes."""
        await asyncio.to_thread(note_compared, self.ledger, was)
        standing = self._standing.get(was.name)
        if standing is not None and standing.generation.number != was.number:
            with translated():
                await asyncio.to_thread(self.library.release, was.name)
            self.floors.settle(was.name)

    async def go_back(self, was: StateBeforeLoad) -> None:
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
        Needs no model where the codex does not stand yet. Raises Conflict while another process loads it."""
        async with self.disk(name):
            standing = self._standing.get(name)  # None: it could not be raised yet, and will be with this log
            seen = await apply_changes(self.library, self._raising, name, standing)
            if standing is None or seen is None:
                return
            amended = seen.standing
            if not seen.new:
                self.restate(standing, amended)
                return
            if self._standing.get(name) is not standing:
                amended = replace(amended, decision=self._standing[name].decision)
            self._standing[name] = amended
        log.info("codex %s: %d %s taken in", name, seen.new, "change" if seen.new == 1 else "changes")
        if not self.overfull(amended):
            await self._warm(amended)
        self.generations.consider(name)

    # -- new floors

    async def beside(self, name: str) -> CodexState:
        """The newest generation, raised; nothing is changed by that."""
        return await self._raised(name, quiet, None, strict=False)

    async def move(self, grown: Grown) -> None:
        """The codex stands as this from now on. Older generations and versions of its identity are released."""
        name, place = grown.place.codex, grown.place
        async with self._raise_locks.setdefault(name, asyncio.Lock()):
            if grown.standing is not None:
                await self._take(grown.standing, grown=place if grown.stands else None)
                return
            self.personas.stood(place)
            if place.identity.name != DEFAULT:
                self.floors.replace(place)
            elif (standing := self._standing.get(name)) is not None:
                await self._warm(standing, to_stay=True)

    # -- ends

    async def drop(self, name: str) -> None:
        """Raises NotFound, Conflict."""
        await self.generations.give_up(name)
        async with self.disk(name):
            with translated():
                await asyncio.to_thread(self.library.drop, name)
                await asyncio.to_thread(self.ledger.forget, name)
            self._standing.pop(name, None)
        self.personas.forget(name)
        self.generations.forget(name)
        self.loads.forget(name)
        self.floors.drop(name)

    async def wake(self, told: Callable[[int, int], None]) -> None:
        """After a start: everything loaded is raised again, so that its floor is restored before the first question."""
        await raise_all(self, told)

    async def stop(self, why: str = "the daemon is stopping") -> None:
        await self.generations.stop()
        await self.loads.stop(why)
        await self.floors.stop()
        self.ledger.close()


class Raised(Protocol):
    library: Library
    ledger: CodexStateStore

    def seen(self, name: str) -> CodexState | None: ...

    async def raise_codex(self, name: str) -> CodexState: ...


def codices_of(library: Library, ledger: CodexStateStore) -> list[str]:
    """Names of what can be raised, asked about last first; what is noted of others is forgotten. Raises CodexError."""
    noted = ledger.noted()  # first: what is loaded meanwhile is in the catalog before anything is noted of it
    codices = library.codices()
    for name in noted - {one.name for one in codices}:
        ledger.forget(name)
    names = [one.name for one in codices if one.newest is not None]
    return sorted(names, key=ledger.used, reverse=True)


async def raise_all(shelf: Raised, told: Callable[[int, int], None]) -> None:
    """`told` hears how many are done, of how many."""
    names = await asyncio.to_thread(codices_of, shelf.library, shelf.ledger)
    for done, name in enumerate(names):
        told(done, len(names))
        if shelf.seen(name) is None:
            try:
                await shelf.raise_codex(name)
            except Exception as error:  # noqa: BLE001 - one damaged codex must not keep the others down
                log.warning("codex %s could not be raised: %s", name, error)
    told(len(names), len(names))
