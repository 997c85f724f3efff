"""Every loaded codex as it is served now: built when first needed, kept while it holds, replaced in one step.

Owns the state of each codex and the floor that the engine has of it. Does not decide when a codex gets another floor; it
does the work of that (`FloorWork`), and tells what is due.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from codex.following.amendments import RebaseCase, RebaseDecision, should_rebase
from codex.library import Library
from codex.progress import Report
from formatters.context import CodexView, IdentityView
from orchestrator.codices.building import BuildRequest, CodexBuilder, apply_changes, quiet
from orchestrator.codices.faults import mended, translated
from orchestrator.codices.floors import Floors
from orchestrator.codices.identities import DEFAULT, ServingIdentities, ServingIdentity
from orchestrator.codices.loads import StateBeforeLoad, note_compared, state_before, take_back
from orchestrator.codices.state import CodexState, FloorKey
from orchestrator.codices.state_store import CodexStateStore
from orchestrator.codices.transitions import CodexFacts, DueFloor
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.errors import LoreError, NotReady
from orchestrator.machine.machine import Machine
from orchestrator.prompt.composing import Floor
from orchestrator.prompt.coverage import Coverage, CoverageDecision, FloorRoom, coverage_named

log = logging.getLogger("lorekeep.codices")


@dataclass(frozen=True)
class Successor:
    """What a codex is served as next: the state, its floor and whose that is. `anew`: the state was built for it;
    `computed`: the floor is resident."""

    state: CodexState
    key: FloorKey
    floor: Floor
    anew: bool
    computed: bool = False


class ResidentCodices:
    """One event loop calls all of it. `forced`: the coverage that the settings name for all."""

    def __init__(
        self,
        library: Library,
        builder: CodexBuilder,
        identities: ServingIdentities,
        machine: Machine,
        floors: Floors,
        store: CodexStateStore,
        forced: Coverage | None,
    ) -> None:
        self._library = library
        self._builder = builder
        self._identities = identities
        self._machine = machine
        self._floors = floors
        self._store = store
        self._forced_by_settings = forced
        self._identity_size = 0  # tokens, as counted last: before a codex is built it has been
        self._states: dict[str, CodexState] = {}
        self._questions: dict[str, int] = {}  # about the generation that is resident
        self._halted: set[str] = set()  # a person has stopped the computing of their floors
        self._build_locks: dict[str, asyncio.Lock] = {}
        self._disk_locks: dict[str, asyncio.Lock] = {}

    # -- looking

    def get(self, name: str) -> CodexState | None:
        return self._states.get(name)

    def all(self) -> list[CodexState]:
        return list(self._states.values())

    def restate(self, was: CodexState, after: CodexState) -> None:
        """The same codex with another reason or the like, nothing that its floor is made of; unless it moved meanwhile."""
        if self._states.get(was.name) is was:
            self._states[was.name] = after

    def overfull(self, state: CodexState) -> bool:
        """Whether no conversation fits behind its floor, as far as that can be told now."""
        return self._machine.outlook.budget is not None and state.overfull(self._machine.room(self._identity_size))

    def disk(self, name: str) -> asyncio.Lock:
        """Held by whoever compares a codex with the disk: a load, or a watcher's news."""
        return self._disk_locks.setdefault(name, asyncio.Lock())

    async def room(self, name: str) -> FloorRoom:
        """What its floor may take now."""
        (size,) = await self._builder.model().tokens.count([self._identities.newest(name).text])
        self._identity_size = size
        return self._machine.room(size)

    # -- building

    async def build(
        self, name: str, report: Report, keep: CoverageDecision | None, *, strict: bool, settle: bool
    ) -> CodexState:
        """The newest generation is built and its floor computed; older generations are released, without `settle` by
        `settled` or `go_back`. `strict`: raises OverBudget for a forced coverage that does not fit."""
        async with self._build_locks.setdefault(name, asyncio.Lock()):
            with translated():
                halted = await asyncio.to_thread(self._store.halted, name)
            self._halted = self._halted | {name} if halted else self._halted - {name}
            state = await self._built(name, report, keep, strict=strict)
            state, is_new = await self._put(state, settle=settle)
            await self.warm(state, to_stay=is_new and settle)
            return state

    async def _built(self, name: str, report: Report, keep: CoverageDecision | None, *, strict: bool) -> CodexState:
        room, identity = await self.room(name), self._identities.newest(name)
        with translated():
            tier = (await asyncio.to_thread(self._store.wishes, name)).tier
            forced = self._forced_by_settings if tier is None else coverage_named(tier)
            return await self._builder.raised(BuildRequest(name, room, forced, keep, strict), identity, report)

    async def _put(self, state: CodexState, *, settle: bool) -> tuple[CodexState, bool]:
        """The codex is served as this from now on, with what was logged since it was built. And whether it is another
        generation than before, whose floors have then been left."""
        name = state.name
        async with self.disk(name):
            with translated():
                log_now = await asyncio.to_thread(self._library.amendments, name, state.generation.number)
                if len(log_now) != len(state.log):
                    state = await self._builder.amended(state, log_now)
                before = self._states.get(name)
                self._states[name] = state if before is None else state.behind(before)
                is_new = before is None or before.generation.number != state.generation.number
                if is_new:
                    self._questions[name] = 0
                if is_new and settle:
                    await asyncio.to_thread(self._library.release, name)
        return state, is_new

    async def warm(self, state: CodexState, *, to_stay: bool = False) -> None:
        """Computes its floor in the background, under the version of the default identity that answers now."""
        identity = (await self.serving(state)).view
        floor = await self._builder.floor(state.view, identity)
        key = FloorKey.of(state.view, identity)
        if state.name in self._halted:
            self._floors.take(floor, key, to_stay=to_stay)
            return
        task = self._floors.warm(floor, key, to_stay=to_stay)
        task.add_done_callback(partial(self._warmed, key))

    async def halt(self, name: str) -> bool:
        """Stops the computing of its floor, which begins again with a question or a load, also behind a restart. False
        where it is not being computed."""
        if not self._floors.halt(name):
            return False
        self._halted.add(name)
        with translated():
            await asyncio.to_thread(self._store.halt, name)
        return True

    def _warmed(self, key: FloorKey, task: "asyncio.Task[bool]") -> None:
        if not task.cancelled() and task.exception() is None and task.result():
            self.computed(key)

    # -- identities

    async def serving(self, state: CodexState | None, name: str | None = None) -> ServingIdentity:
        """The version of an identity that answers now. Raises NotFound, InvalidRequest.

        One that was resident in an earlier run is believed once its floor was found in the checkpoints: where that was
        deleted, the old version would cost as much as the new one.
        """
        view = state.view if state is not None else None
        found = self._identities.now(view, name)
        if view is None or not found.doubted:
            return found
        if await self._is_kept(view, found.view):
            self._identities.confirmed(view.name, found.view.name)
        else:
            log.info("codex %s: the floor of identity %s was not kept", view.name, found.view.name)
            self._identities.lost(view.name, found.view.name)
        return self._identities.now(view, name)

    async def _is_kept(self, view: CodexView, identity: IdentityView) -> bool:
        try:
            return await self._floors.is_kept(await self._builder.floor(view, identity), FloorKey.of(view, identity))
        except EngineUnavailable:
            return True  # whoever asks waits for the engine, and finds out

    async def renew(self, state: CodexState, identity: IdentityView) -> None:
        """An identity that changed before its floor was resident is computed in its place."""
        if self._floors.is_of_another(FloorKey.of(state.view, identity)):
            await self.warm(state)

    def computed(self, key: FloorKey) -> None:
        """A floor was computed or asked on: its version is kept as the resident one, where it is the one that answers."""
        state = self._states.get(key.codex)
        if key.codex and state is None:
            return
        view = state.view if state is not None else None
        try:
            found = self._identities.now(view, key.identity.name)
        except LoreError:
            return  # its file is gone meanwhile
        self._halted.discard(key.codex)
        if key == FloorKey.of(view, found.view):
            self._identities.stood(key)

    # -- a load's end

    async def before(self, name: str) -> StateBeforeLoad:
        with translated():
            return await asyncio.to_thread(state_before, self._library, self._store, name, self._states.get(name))

    async def settled(self, was: StateBeforeLoad) -> None:
        """The load has ended well: what was before goes."""
        await asyncio.to_thread(note_compared, self._store, was)
        state = self._states.get(was.name)
        if state is not None and state.generation.number != was.number:
            with translated():
                await asyncio.to_thread(self._library.release, was.name)
            self._floors.settle(was.name)

    async def go_back(self, was: StateBeforeLoad) -> None:
        """The codex is served as before a load. Raises LoreError."""
        name = was.name
        async with self._build_locks.setdefault(name, asyncio.Lock()):
            async with self.disk(name):
                with translated():
                    await asyncio.to_thread(take_back, self._library, self._store, was)
            if was.standing is None:
                self._states.pop(name, None)
                self._floors.drop(name)
            elif self._states.get(name) is not was.standing:
                state, is_new = await self._put(was.standing, settle=True)
                await self.warm(state, to_stay=is_new)

    async def drop(self, name: str) -> None:
        """Raises NotFound, Conflict."""
        async with self.disk(name):
            with translated():
                await asyncio.to_thread(self._library.drop, name)
                await asyncio.to_thread(self._store.forget, name)
            self._states.pop(name, None)
        self._questions.pop(name, None)
        self._identities.forget(name)
        self._floors.drop(name)

    # -- following the disk

    async def apply_changes(self, name: str) -> bool:
        """The log grows by what changed on disk, the index follows, the floor gets the new entries behind it. Whether
        there were any. Needs no model for a codex that is not built yet. Raises Conflict while another process loads it."""
        async with self.disk(name):
            state = self._states.get(name)  # None: it could not be built yet, and will be with this log
            found = await apply_changes(self._builder, name, state)
            if state is None or found is None:
                return False
            amended = found.state
            if not found.new:
                self.restate(state, amended)
                return False
            if (now := self._states.get(name)) is not None and now is not state:
                amended = replace(amended, decision=now.decision)
            self._states[name] = amended
        log.info("codex %s: %d %s applied", name, found.new, "change" if found.new == 1 else "changes")
        if not self.overfull(amended):
            await self.warm(amended)
        return True

    # -- what is due, and the work of the next floor

    def asked(self, name: str) -> None:
        """A question more about the generation that is resident."""
        self._questions[name] = self._questions.get(name, 0) + 1

    def facts(self) -> Mapping[str, CodexFacts]:
        return {name: self.facts_of(name) for name in self._states}

    def facts_of(self, name: str) -> CodexFacts:
        state = self._states.get(name)
        found = self.due(state) if state is not None else DueFloor()
        return CodexFacts(found, self._store.used(name) if found else 0.0)

    def due(self, state: CodexState) -> DueFloor:
        """A new generation before a new identity: its floor is made under the newest one anyway."""
        urgent = self.overfull(state)
        decision = self._rebase(state, overfull=urgent)
        if decision.rebase and (urgent or state.name not in self._halted):
            return DueFloor(files=decision.reason, urgent=urgent)
        coming = self._coming(state) if state.name not in self._halted else None
        return DueFloor(identity=f"{coming.name} is now version {coming.version}" if coming else "")

    def _coming(self, state: CodexState) -> IdentityView | None:
        try:
            return self._identities.coming(state.view)
        except NotReady:
            return None

    def _rebase(self, state: CodexState, *, overfull: bool) -> RebaseDecision:
        case = RebaseCase(
            idle=True,  # it begins only then
            codex=state.tokens,
            amendments=state.amended,
            to_compute=state.behind_first_change(),
            questions=self._questions.get(state.name, 0),
            overfull=overfull,
        )
        own = state.rebase_share
        return should_rebase(case, self._library.settings.amendments.rebase_share if own is None else own)

    async def prepare(self, name: str, due: DueFloor) -> Successor:
        """The newest generation built, or the resident one under the newest version of an identity."""
        state = self._states[name]
        identity = self._coming(state)
        if due.files or identity is None:
            await asyncio.shield(asyncio.ensure_future(self._load_again(name, due.files)))
            state, identity = await self._built(name, quiet, None, strict=False), self._identities.newest(name)
        floor = await self._builder.floor(state.view, identity)
        return Successor(state, FloorKey.of(state.view, identity), floor, anew=state is not self._states.get(name))

    async def _load_again(self, name: str, why: str) -> None:
        """Shielded: a thread cannot be cancelled, and the lock must be held as long as it works."""
        async with self.disk(name):
            with translated():
                request = await asyncio.to_thread(self._library.request, name)
                await mended(lambda: self._library.load(request, asked=False, why=why))

    async def compute(self, made: Successor) -> Successor:
        await self._floors.grow(made.floor, made.key)
        return replace(made, computed=True)

    async def commit(self, made: Successor) -> None:
        """The codex is served on this floor from now on. Floors of older generations and versions are released."""
        key, name = made.key, made.key.codex
        async with self._build_locks.setdefault(name, asyncio.Lock()):
            state = made.state if made.anew else self._states.get(name, made.state)
            state, is_new = await self._put(state, settle=True)
            if made.computed:
                self._identities.stood(key)
            if key.identity.name == DEFAULT:
                await self.warm(state, to_stay=is_new or made.computed)
            else:
                self._floors.replace(key)
        _log_commit(made)
        if made.anew:  # what changed while the floor was computed went into the log of the old generation
            await self.apply_changes(name)

    async def engine(self) -> None:
        await self._floors.engine()


def _log_commit(made: Successor) -> None:
    name, identity, generation = made.key.codex, made.key.identity, made.state.generation
    if not made.anew:
        log.info("codex %s is asked under version %s of identity %s", name, identity.version, identity.name)
        return
    fields = {"codex": name, "generation": generation.number, "reason": generation.why}
    log.info("codex %s moved to generation %d: %s", name, generation.number, generation.why, extra={"fields": fields})
