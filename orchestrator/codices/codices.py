"""The codices as everybody else meets them: asked about, loaded, followed, moved with the machine, dropped.

    codices ─▶ successors ─▶ transitions (pure)      when a codex gets its next floor
       │            │
       └────────────┴──────▶ residents               what each codex is served as now

What happens to a codex is done at once where somebody waits for it, and reported as an event; what the events lead to is
decided in `transitions`. Does not know questions, only that one was asked.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from codex.library import Library
from codex.progress import Report
from governor.settings import PressureSettings
from orchestrator.codices.building import CodexBuilder, quiet
from orchestrator.codices.faults import candidates_of, translated
from orchestrator.codices.floors import Floors
from orchestrator.codices.identities import DEFAULT, ServingIdentities, ServingIdentity
from orchestrator.codices.loads import Loads, StateBeforeLoad
from orchestrator.codices.residents import ResidentCodices, Successor
from orchestrator.codices.state import CodexState, FloorKey
from orchestrator.codices.state_store import CodexStateStore
from orchestrator.codices.successors import IDLE_S, Successors
from orchestrator.codices.transitions import (
    CodexFacts,
    CodexForgotten,
    DiskChanged,
    GrantChanged,
    IdentityChanged,
    LoadBegan,
    LoadEnded,
    QuestionEnded,
)
from orchestrator.errors import LoreError, NotReady
from orchestrator.machine.machine import Machine
from orchestrator.prompt.coverage import Coverage, CoverageDecision, Pending, due, left, redecide
from orchestrator.prompt.situation import ReadableCodex
from orchestrator.wire.lore import IdentityState

log = logging.getLogger("lorekeep.codices")


class Codices:
    """`dwell`: how long a wish for another coverage must last. Before the model is loaded, no codex is built."""

    def __init__(
        self,
        library: Library,
        builder: CodexBuilder,
        identities: ServingIdentities,
        machine: Machine,
        floors: Floors,
        loads: Loads,
        ledger: CodexStateStore,
        forced: Coverage | None,
        dwell: PressureSettings,
        idle_s: float = IDLE_S,
    ) -> None:
        self.library = library
        self.floors = floors
        self.loads = loads
        self.ledger = ledger
        self._identities = identities
        self._machine = machine
        self._dwell = dwell
        self._pending: dict[str, Pending | None] = {}
        self._residents = ResidentCodices(library, builder, identities, machine, floors, ledger, forced)
        self._successors: Successors[Successor] = Successors(self._residents, floors.questions, idle_s)

    # -- looking

    async def candidates(self, asked: str | None = None, cwd: str = "") -> list[ReadableCodex]:
        """What can be asked about, with its root. Raises LoreError; see `candidates_of`."""
        with translated():
            return candidates_of(await asyncio.to_thread(self.library.codices), asked, cwd, self.loads.far)

    def seen(self, name: str) -> CodexState | None:
        """The codex as it is now, without waiting; None where it is not built yet."""
        return self._residents.get(name)

    def loading(self, name: str) -> bool:
        """Whether a load of it runs."""
        return self.loads.find(name) is not None

    def disk(self, name: str) -> asyncio.Lock:
        """Held by whoever compares a codex with the disk: a load, or a watcher's news."""
        return self._residents.disk(name)

    def rebasing(self, name: str) -> bool:
        """Whether a new generation is on its way; a new version of an identity says nothing of the files."""
        return self._successors.under_way(name) and bool(self._successors.due(name).files)

    def identity(self, state: CodexState) -> IdentityState:
        """Which version of the default identity answers, and what is known of the next."""
        try:
            found = self._identities.now(state.view).state()
        except LoreError as fault:
            return IdentityState(name=DEFAULT, version="", fault=fault.message)
        hindered = self._successors.fault(state.name)
        return found.model_copy(update={"fault": hindered}) if found.preparing and hindered else found

    # -- questions

    async def standing(self, name: str) -> CodexState:
        """The codex as it is now, built where it was not yet. Raises NotFound, NotReady and what counting raises."""
        found = self._residents.get(name)
        if found is None:
            return await self.build(name)
        if found.amended and self._residents.overfull(found):
            await self._with_room(name)
        return self._residents.get(name) or found

    async def _with_room(self, name: str) -> None:
        """Returns when there is room for a conversation again. Raises NotReady where a new generation is late."""
        self._successors.report(QuestionEnded(name, self._facts(name)))
        await self._successors.ended(name)
        state = self._residents.get(name)
        if state is not None and state.amended and self._residents.overfull(state):
            why = self._successors.fault(name) or "one is on its way"
            raise NotReady(f"codex {name} needs a new generation first: {why}", "ask again", retry_after=2.0)

    async def served(self, state: CodexState | None, identity: str | None = None) -> ServingIdentity:
        """The version of an identity that answers now; a newer one is prepared. Raises NotFound, InvalidRequest."""
        found = await self._residents.serving(state, identity)
        if state is not None and found.coming is None:
            await self._residents.renew(state, found.view)
        if state is not None:
            self._successors.report(IdentityChanged({state.name: self._facts(state.name)}))
        return found

    def answered(self, place: FloorKey, paths: list[str]) -> None:
        """A question was answered on this floor, from these files."""
        self._residents.computed(place)
        if place.codex:
            self.ledger.asked(place.codex, paths)
            self._residents.asked(place.codex)
            self._successors.report(QuestionEnded(place.codex, self._facts(place.codex)))

    def _facts(self, name: str) -> CodexFacts:
        return self._residents.facts_of(name)

    # -- loads

    async def build(
        self,
        name: str,
        report: Report = quiet,
        keep: CoverageDecision | None = None,
        *,
        strict: bool = False,
        settle: bool = True,
    ) -> CodexState:
        """Builds the newest generation of a codex and has its floor computed; older generations are released, without
        `settle` by `settled` or `go_back`. `strict`: raises OverBudget for a forced coverage that does not fit, instead
        of taking another one."""
        async with self._held(name):
            return await self._residents.build(name, report, keep, strict=strict, settle=settle)

    @asynccontextmanager
    async def _held(self, name: str) -> AsyncGenerator[None]:
        """No next floor is made meanwhile: what happens here makes its own."""
        await self.load_began(name)
        try:
            yield
        finally:
            self.load_ended(name)

    async def load_began(self, name: str) -> None:
        """From now on, until as many loads have ended, no next floor of it is made."""
        self._successors.report(LoadBegan(name))
        await self._successors.cancelled(name)

    def load_ended(self, name: str) -> None:
        """Well or not."""
        self._successors.report(LoadEnded(name, self._facts(name)))

    async def halt(self, name: str) -> bool:
        """Stops the computing of a codex's floor that a load has left in the background; False where there is none."""
        return await self._residents.halt(name)

    async def before(self, name: str) -> StateBeforeLoad:
        """What a load of this codex must leave when it is cancelled."""
        return await self._residents.before(name)

    async def settled(self, was: StateBeforeLoad) -> None:
        """The load has ended well: what was before goes."""
        await self._residents.settled(was)

    async def go_back(self, was: StateBeforeLoad) -> None:
        """The codex is served as before a load. Raises LoreError."""
        await self._residents.go_back(was)

    # -- disk and machine

    async def changed(self, name: str) -> None:
        """Files of a codex may have changed. Raises Conflict while another process loads it."""
        if await self._residents.apply_changes(name):
            self._successors.report(DiskChanged(name, self._facts(name)))

    async def reconsider(self) -> float | None:
        """After a new reading: a coverage that no longer fits becomes smaller, one that may grow becomes larger, neither at
        once. Returns the seconds after which the next wish has lasted long enough, None without one."""
        if self._machine.outlook.budget is None:
            return None
        waits = [await self._reconsidered(one) for one in self._residents.all()]
        overfull = [one.name for one in self._residents.all() if one.amended and self._residents.overfull(one)]
        self._successors.report(GrantChanged({name: self._facts(name) for name in overfull}))
        return min((wait for wait in waits if wait is not None), default=None)

    async def _reconsidered(self, state: CodexState) -> float | None:
        """Moves one codex when that is due; else the seconds until it is, None when it may stay."""
        name, now_has = state.name, state.decision
        if state.forced is not None:
            return None
        room, level = await self._residents.room(name), self._machine.levels.memory or "calm"
        wanted = redecide(now_has, state.sizes, room, level, settings=state.settings)
        now, dwell = time.monotonic(), (self._dwell.worse_s, self._dwell.better_s)
        pending, now_due = due(self._pending.get(name), now_has.coverage, wanted.coverage, now, *dwell)
        self._pending[name] = None if now_due else pending
        if now_due:
            await self._move(state, wanted)
        elif pending is not None:
            return left(pending, now_has.coverage, now, *dwell)
        elif wanted.reason != now_has.reason:
            self._residents.restate(state, replace(state, decision=replace(now_has, reason=wanted.reason)))
        return None

    async def _move(self, state: CodexState, wanted: CoverageDecision) -> None:
        log.info(
            "codex %s moves from %s to %s: %s", state.name, state.decision.coverage, wanted.coverage, wanted.reason
        )
        try:
            await self.build(state.name, keep=wanted)
        except LoreError as error:
            log.warning("codex %s stays as it is: %s", state.name, error)

    # -- start and end

    async def wake(self, report: Callable[[int, int], None]) -> None:
        """After a start: everything loaded is built again, in order of last use, so that its floor is restored before the
        first question. `report` gets how many are done, of how many."""
        self._successors.start()
        names = await asyncio.to_thread(codices_of, self.library, self.ledger)
        for done, name in enumerate(names):
            report(done, len(names))
            if self._residents.get(name) is None:
                try:
                    await self.build(name)
                except Exception as error:  # noqa: BLE001 - one damaged codex must not keep the others down
                    log.warning("codex %s could not be built: %s", name, error)
        report(len(names), len(names))

    async def drop(self, name: str) -> None:
        """Raises NotFound, Conflict."""
        async with self._held(name):
            await self._residents.drop(name)
        self._successors.report(CodexForgotten(name))
        self._pending.pop(name, None)
        self.loads.forget(name)

    async def stop(self, why: str = "the daemon is stopping") -> None:
        await self._successors.stop()
        await self.loads.stop(why)
        await self.floors.stop()
        self.ledger.close()


def codices_of(library: Library, store: CodexStateStore) -> list[str]:
    """Names of what can be built, asked about last first; what is noted of others is forgotten. Raises CodexError."""
    noted = store.noted()  # first: what is loaded meanwhile is in the catalog before anything is noted of it
    codices = library.codices()
    for name in noted - {one.name for one in codices}:
        store.forget(name)
    names = [one.name for one in codices if one.newest is not None]
    return sorted(names, key=store.used, reverse=True)
