"""Every loaded codex as questions meet it: built when first needed, served while it holds, replaced in one step.

    Codices ─ events ─▶ Successors ─▶ transitions (pure)       when a codex gets its next floor
       ▲                    │
       └── prepare, compute, commit ──                         the work of that (`FloorWork`)

What happens to a codex is done at once where somebody waits for it, and reported as an event; what the events lead to is
decided in `transitions`. Owns the state of each codex and two locks of each: for builds, and for comparisons with the disk.
Does not know questions, only that one was asked.
"""

import asyncio
import logging
import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath

from codex.catalog.generations import Codex
from codex.errors import CodexError
from codex.following.amendments import rebase_reason
from codex.library import Library
from codex.progress import Report, silent
from formatters.context import IdentityView
from governor.settings import PressureSettings
from orchestrator.codices.building import CodexBuilder, mended
from orchestrator.codices.floors import DEFAULT, Floors, ServingIdentities, ServingIdentity
from orchestrator.codices.state import CodexState, CodexStateStore, FloorKey, StateBeforeLoad, state_before, take_back
from orchestrator.codices.successors import IDLE_S, Successors
from orchestrator.codices.transitions import (
    CodexFacts,
    CodexForgotten,
    DiskChanged,
    DueFloor,
    GrantChanged,
    IdentityChanged,
    LoadBegan,
    LoadEnded,
    QuestionEnded,
)
from orchestrator.errors import LoadInProgress, LoreError, NotFound, NotReady, lore_error, translated
from orchestrator.machine.machine import Machine
from orchestrator.prompt.composing import Floor
from orchestrator.prompt.coverage import (
    Coverage,
    CoverageDecision,
    FloorRoom,
    Pending,
    change_due,
    coverage_named,
    left,
    redecide,
)
from orchestrator.prompt.situation import ReadableCodex
from orchestrator.wire.answers import IdentityState

log = logging.getLogger("lorekeep.codices")

SOON_S = 2.0  # after which a question that was refused may be asked again


@dataclass(frozen=True)
class Successor:
    """What a codex is served as next: the state, its floor and whose that is. `anew`: the state was built for it;
    `computed`: the floor is resident."""

    state: CodexState
    key: FloorKey
    floor: Floor
    anew: bool
    computed: bool = False


class Codices:
    """One event loop calls all of it. `forced`: the coverage that the settings name for all; `dwell`: how long a wish for
    another coverage must last. `far` says how far the running load of a codex is, None where none runs. Before the model is
    loaded, no codex is built."""

    def __init__(
        self,
        library: Library,
        builder: CodexBuilder,
        identities: ServingIdentities,
        machine: Machine,
        floors: Floors,
        store: CodexStateStore,
        far: Callable[[str], str | None],
        forced: Coverage | None,
        dwell: PressureSettings,
        idle_s: float = IDLE_S,
    ) -> None:
        self._library = library
        self._builder = builder
        self._identities = identities
        self._machine = machine
        self._floors = floors
        self._store = store
        self._far = far
        self._forced_by_settings = forced
        self._dwell = dwell
        self._identity_size = 0  # tokens, as counted last: before a codex is built it has been
        self._states: dict[str, CodexState] = {}
        self._questions: dict[str, int] = {}  # about the generation that is resident
        self._halted: set[str] = set()  # a user has stopped the computing of their floors
        self._pending: dict[str, Pending | None] = {}  # wishes for another coverage
        self._moves: dict[str, CoverageDecision] = {}  # those that have lasted long enough
        self._build_locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._disk_locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._successors: Successors[Successor] = Successors(self, floors.questions, idle_s)

    # -- looking

    async def candidates(self, asked: str | None = None, cwd: str = "") -> list[ReadableCodex]:
        """What can be asked about, with its root. Raises LoreError; see `candidates_of`."""
        try:
            codices = await asyncio.to_thread(self._library.catalog.codices)
        except CodexError as error:
            raise lore_error(error) from error
        return candidates_of(codices, asked, cwd, self._far)

    def get(self, name: str) -> CodexState | None:
        """The codex as it is now, without waiting; None where it is not built yet."""
        return self._states.get(name)

    def digests(self, name: str, paths: Collection[str]) -> Mapping[str, str]:
        """Of those of these files that the codex answers from. For a worker thread. Raises CodexError."""
        state = self._states.get(name)
        if state is not None:
            return {path: state.digests[path] for path in paths if path in state.digests}
        return {path: digest for path, (digest, _) in self._library.catalog.file_digests(name, paths).items()}

    def disk(self, name: str) -> asyncio.Lock:
        """Held by whoever compares a codex with the disk: a load, or what a watcher reports."""
        return self._disk_locks[name]

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

    async def ensure_built(self, name: str) -> CodexState:
        """The codex as it is now, with room for a conversation. Raises NotFound, NotReady and what counting raises."""
        state = self._states.get(name)
        if state is None:
            return await self.build(name)
        if state.amended and self._overfull(state):
            self._successors.report(QuestionEnded({name: self._facts_of(name)}))
            await self._successors.ended(name)
            state = self._states.get(name, state)
            if state.amended and self._overfull(state):
                why = self._successors.fault(name) or "one is on its way"
                raise NotReady(f"codex {name} needs a new generation first: {why}", "ask again", retry_after=SOON_S)
        return state

    def _overfull(self, state: CodexState) -> bool:
        """Whether no conversation fits behind its floor, as far as that is known now."""
        return self._machine.outlook.budget is not None and state.overfull(self._machine.room(self._identity_size))

    async def served(self, state: CodexState | None, identity: str | None = None) -> ServingIdentity:
        """The version of an identity that answers now; a newer one is prepared. Raises NotFound, InvalidRequest."""
        found = self._identities.now(state.view if state is not None else None, identity)
        if state is not None:
            if found.coming is None and self._floors.is_of_another(FloorKey.of(state.view, found.view)):
                await self._warm(state)  # it changed before its floor was resident
            self._successors.report(IdentityChanged({state.name: self._facts_of(state.name)}))
        return found

    def answered(self, key: FloorKey, paths: list[str]) -> None:
        """A question was answered on this floor, from these files."""
        self._computed(key)
        if name := key.codex:
            self._store.asked(name, paths)
            self._questions[name] = self._questions.get(name, 0) + 1
            self._successors.report(QuestionEnded({name: self._facts_of(name)}))

    # -- building

    async def build(
        self, name: str, report: Report = silent, *, strict: bool = False, release: bool = True
    ) -> CodexState:
        """Builds the newest generation of a codex and has its floor computed; older generations are released, without
        `release` by `load_committed` or `go_back`. `strict`: raises OverBudget for a forced coverage that does not fit,
        instead of taking another one."""
        async with self._build_locks[name]:
            with translated():
                halted = await asyncio.to_thread(self._store.halted, name)
            self._halted = self._halted | {name} if halted else self._halted - {name}
            state, is_new = await self._put(await self._built(name, report, strict=strict), release=release)
            await self._warm(state, to_stay=is_new and release)
            return state

    async def _built(
        self, name: str, report: Report = silent, keep: CoverageDecision | None = None, *, strict: bool = False
    ) -> CodexState:
        room, identity = await self._room(name), self._identities.newest(name)
        with translated():
            tier = (await asyncio.to_thread(self._store.wishes, name)).tier
            forced = self._forced_by_settings if tier is None else coverage_named(tier)
            return await self._builder.built(name, room, identity, report, forced, keep, strict=strict)

    async def _room(self, name: str) -> FloorRoom:
        """What its floor may take now."""
        (size,) = await self._builder.model().tokens.count([self._identities.newest(name).text])
        self._identity_size = size
        return self._machine.room(size)

    async def _put(self, state: CodexState, *, release: bool) -> tuple[CodexState, bool]:
        """The codex is served as this from now on, with what was logged since it was built. And whether it is another
        generation than before, whose floors have then been left."""
        name = state.name
        async with self.disk(name):
            with translated():
                log_now = await asyncio.to_thread(self._library.catalog.amendments, name, state.generation.number)
                if len(log_now) != len(state.log):
                    state = await self._builder.amended(state, log_now)
                before = self._states.get(name)
                self._states[name] = state if before is None else state.behind(before)
                self._moves.pop(name, None)
                is_new = before is None or before.generation.number != state.generation.number
                if is_new:
                    self._questions[name] = 0
                if is_new and release:
                    await asyncio.to_thread(self._library.release, name)
        return state, is_new

    async def _warm(self, state: CodexState, *, to_stay: bool = False) -> None:
        """Computes its floor in the background, under the version of the default identity that answers now."""
        if state.amended and self._overfull(state):
            self._floors.halt(state.name)  # nobody can ask on it: the next one is urgent
            return
        identity = self._identities.now(state.view).view
        floor, key = await self._builder.floor(state.view, identity), FloorKey.of(state.view, identity)
        if state.name in self._halted:
            self._floors.take(floor, key, to_stay=to_stay)
            return
        task = self._floors.warm(floor, key, to_stay=to_stay)
        task.add_done_callback(partial(self._warmed, key))

    def _warmed(self, key: FloorKey, task: "asyncio.Task[bool]") -> None:
        if not task.cancelled() and task.exception() is None and task.result():
            self._computed(key)

    def _computed(self, key: FloorKey) -> None:
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
            self._identities.now_resident(key)

    # -- loads

    async def load_began(self, name: str) -> StateBeforeLoad:
        """No next floor of it is made until as many loads have ended. What it goes back to when the load is cancelled."""
        self._successors.report(LoadBegan(name))
        await self._successors.cancelled(name)
        with translated():
            return await asyncio.to_thread(state_before, self._library, self._store, name, self._states.get(name))

    def load_ended(self, name: str) -> None:
        """Well or not."""
        self._successors.report(LoadEnded({name: self._facts_of(name)}))

    async def load_committed(self, was: StateBeforeLoad) -> None:
        """The load has ended well: what was before goes, and later changes on disk are seen by whoever follows them."""
        await asyncio.to_thread(self._store.compared, was.name, was.began)
        state = self._states.get(was.name)
        if state is not None and state.generation.number != was.number:
            with translated():
                await asyncio.to_thread(self._library.release, was.name)
            self._floors.release_earlier(was.name)

    async def go_back(self, was: StateBeforeLoad) -> None:
        """The codex is served as before a load. Raises LoreError."""
        name = was.name
        async with self._build_locks[name]:
            async with self.disk(name):
                with translated():
                    await asyncio.to_thread(take_back, self._library, self._store, was)
            if was.state is None:
                self._states.pop(name, None)
                self._floors.drop(name)
            elif self._states.get(name) is not was.state:
                state, is_new = await self._put(was.state, release=True)
                await self._warm(state, to_stay=is_new)

    async def halt(self, name: str) -> bool:
        """Stops the computing of a floor that a load has left in the background. It begins again with a question or a load,
        also after a restart. False where none is computed."""
        if not self._floors.halt(name):
            return False
        self._halted.add(name)
        with translated():
            await asyncio.to_thread(self._store.halt, name)
        return True

    # -- disk and machine

    async def changed(self, name: str) -> None:
        """Files of a codex may have changed: the log grows by what did, the index follows, and the floor gets the new
        entries behind it. Needs no model for a codex that is not built yet. Raises Conflict while another process loads it.
        """
        async with self.disk(name):
            state = self._states.get(name)  # None: it could not be built yet, and will be with this log
            amended, new = await self._builder.with_changes(name, state)
            if state is None or amended is None:
                return
            if not new:
                self._restate(state, amended)
                return
            if (now := self._states.get(name)) is not None and now is not state:
                amended = replace(amended, decision=now.decision)
            self._states[name] = amended
        log.info("codex %s: %d %s applied", name, new, "change" if new == 1 else "changes")
        await self._warm(amended)
        self._successors.report(DiskChanged({name: self._facts_of(name)}))

    def _restate(self, was: CodexState, after: CodexState) -> None:
        """The same codex with another reason or the like, nothing that its floor is made of; unless it moved meanwhile."""
        if self._states.get(was.name) is was:
            self._states[was.name] = after

    async def reconsider(self) -> float | None:
        """After a new reading: a coverage that no longer fits becomes smaller, one that may grow becomes larger, neither at
        once. Returns the seconds after which the next wish has lasted long enough, None without one."""
        if self._machine.outlook.budget is None:
            return None
        before = set(self._moves)
        waits = [await self._reconsidered(one) for one in list(self._states.values())]
        changed = before | set(self._moves) | {one.name for one in self._states.values() if self._overfull(one)}
        self._successors.report(GrantChanged({name: self._facts_of(name) for name in changed}))
        return min((wait for wait in waits if wait is not None), default=None)

    async def _reconsidered(self, state: CodexState) -> float | None:
        """Notes that another coverage is due; else the seconds until it is, None when the codex may stay as it is."""
        name, now_has = state.name, state.decision
        if state.forced is not None:
            return None
        room, level = await self._room(name), self._machine.levels.memory or "calm"
        wanted = redecide(now_has, state.sizes, room, level, settings=state.settings)
        move = self._moves.pop(name, None)
        if move is not None and move.coverage is wanted.coverage:
            self._moves[name] = move  # it is under way
            return None
        now, dwell = time.monotonic(), (self._dwell.worse_s, self._dwell.better_s)
        pending, now_due = change_due(self._pending.get(name), now_has.coverage, wanted.coverage, now, *dwell)
        self._pending[name] = None if now_due else pending
        if now_due:
            self._moves[name] = wanted
        elif pending is not None:
            return left(pending, now_has.coverage, now, *dwell)
        elif wanted.reason != now_has.reason:
            self._restate(state, replace(state, decision=replace(now_has, reason=wanted.reason)))
        return None

    # -- what is due, and the work of the next floor

    def facts(self) -> Mapping[str, CodexFacts]:
        return {name: self._facts_of(name) for name in self._states}

    def _facts_of(self, name: str) -> CodexFacts:
        state = self._states.get(name)
        found = self._due(state) if state is not None else DueFloor()
        return CodexFacts(found, self._store.used(name) if found else 0.0)

    def _due(self, state: CodexState) -> DueFloor:
        """Where a user has stopped the computing of its floor, only what cannot wait."""
        may_wait = state.name not in self._halted
        now_has, move = state.decision.coverage, self._moves.get(state.name)
        if move is not None and (may_wait or move.coverage.rank < now_has.rank):
            reason = f"{move.coverage} instead of {now_has}, {move.reason}"
            return DueFloor(coverage=reason, urgent=move.coverage.rank < now_has.rank)
        urgent = self._overfull(state)
        reason = self._rebase_reason(state, overfull=urgent)
        if reason and (urgent or may_wait):
            return DueFloor(files=reason, urgent=urgent)
        coming = self._coming(state) if may_wait else None
        return DueFloor(identity=f"{coming.name} is now version {coming.version}" if coming else "")

    def _coming(self, state: CodexState) -> IdentityView | None:
        try:
            return self._identities.coming(state.view)
        except NotReady:
            return None

    def _rebase_reason(self, state: CodexState, *, overfull: bool) -> str:
        if not state.amended:
            return ""
        own, usual = state.rebase_share, self._library.settings.amendments.rebase_share
        questions, share = self._questions.get(state.name, 0), usual if own is None else own
        to_compute = state.behind_first_change()
        return rebase_reason(state.tokens, state.amended, to_compute, questions, share, overfull=overfull)

    async def prepare(self, name: str, due: DueFloor) -> Successor:
        """The codex in another coverage, its newest generation, or the resident one under the newest identity."""
        state = self._states[name]
        move, identity = self._moves.get(name) if due.coverage else None, self._coming(state)
        if move is not None:
            try:
                state, identity = await self._built(name, keep=move), self._identities.newest(name)
            except LoreError:
                self._moves.pop(name, None)  # wished again after another dwell time
                raise
        elif due.files or identity is None:
            await asyncio.shield(asyncio.ensure_future(self._load_again(name, due.files)))
            state, identity = await self._built(name), self._identities.newest(name)
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
        async with self._build_locks[name]:
            state = made.state if made.anew else self._states.get(name, made.state)
            state, is_new = await self._put(state, release=True)
            if made.computed:
                self._identities.now_resident(key)
            if key.identity.name == DEFAULT:
                await self._warm(state, to_stay=is_new or made.computed)
            else:
                self._floors.replace(key)
        generation = state.generation
        if is_new:
            fields = {"codex": name, "generation": generation.number, "reason": generation.why}
            moved = "codex %s moved to generation %d: %s"
            log.info(moved, name, generation.number, generation.why, extra={"fields": fields})
            await self._catch_up(name)
        elif made.anew:
            log.info("codex %s moved to the coverage %s: %s", name, state.decision.coverage, state.decision.reason)
        else:
            log.info("codex %s is asked under version %s of identity %s", name, key.identity.version, key.identity.name)

    async def _catch_up(self, name: str) -> None:
        """What changed while a floor was computed went into the log of the old generation."""
        while True:
            try:
                return await self.changed(name)
            except LoadInProgress:  # of another codex of the same files
                await asyncio.sleep(SOON_S)

    async def engine(self) -> None:
        await self._floors.client.ensure_ready()

    # -- start and end

    async def wake(self, report: Callable[[int, int], None]) -> None:
        """After a start: everything loaded is built again, in order of last use, so that its floor is restored before the
        first question. `report` gets how many are done, of how many."""
        self._successors.start()
        names = await asyncio.to_thread(codices_of, self._library, self._store)
        for done, name in enumerate(names):
            report(done, len(names))
            if name not in self._states:
                try:
                    await self.build(name)
                except NotFound:
                    continue  # it was dropped meanwhile
                except Exception as error:  # noqa: BLE001 - one damaged codex must not keep the others down
                    log.warning("codex %s could not be built: %s", name, error)
        report(len(names), len(names))

    async def drop(self, name: str) -> None:
        """Raises NotFound, Conflict."""
        self._successors.report(LoadBegan(name))  # no next floor is made meanwhile
        try:
            await self._successors.cancelled(name)
            async with self.disk(name):
                with translated():
                    await asyncio.to_thread(self._library.drop, name)
                    await asyncio.to_thread(self._store.forget, name)
                self._states.pop(name, None)
        finally:
            self.load_ended(name)
        self._successors.report(CodexForgotten(name))
        for noted in (self._questions, self._pending, self._moves):
            noted.pop(name, None)
        self._identities.forget(name)
        self._floors.drop(name)

    async def stop(self) -> None:
        await self._successors.stop()
        await self._floors.stop()
        self._store.close()


# -- which can be asked about


def candidates_of(
    codices: Sequence[Codex], asked: str | None, cwd: str, far: Callable[[str], str | None]
) -> list[ReadableCodex]:
    """What can be asked about, with its roots; `far` says how far a codex's load is, None where none runs. Raises NotReady,
    NotFound where what is asked about, or holds the working directory, was never loaded to its end."""
    half = _half_loaded(asked, cwd, codices)
    if half is not None:
        raise refusal(half, far(half.name))
    return [ReadableCodex(one.name, root) for one in codices if one.newest is not None for root in one.roots]


def _half_loaded(asked: str | None, cwd: str, codices: Sequence[Codex]) -> Codex | None:
    """The codex without a generation that is named, or whose folder, before that of any other, holds the directory."""
    if asked is None:
        here = PurePosixPath(cwd)
        around = [(len(root), one) for one in codices for root in one.roots if cwd and here.is_relative_to(root)]
        return next((one for _, one in sorted(around, key=lambda pair: -pair[0])[:1] if one.newest is None), None)
    return next((one for one in codices if one.name == asked and one.newest is None), None)


def refusal(codex: Codex, far: str | None) -> LoreError:
    """What a question about a codex without a generation is answered; `far` as above."""
    if far is not None:
        how_far = f" ({far})" if far else ""
        hint = "ask again when it is loaded; `lore status` shows how far it is"
        return NotReady(f"codex {codex.name!r} is being loaded{how_far}", hint, retry_after=SOON_S)
    again = f"run `lore load {shlex.join(codex.roots)} --name {codex.name}`: it continues"
    return NotFound(f"codex {codex.name!r} was not loaded to the end", again)


def codices_of(library: Library, store: CodexStateStore) -> list[str]:
    """Names of what can be built, asked about last first; what is noted of others is forgotten. Raises CodexError."""
    noted = store.noted()  # first: what is loaded meanwhile is in the catalog before anything is noted of it
    codices = library.catalog.codices()
    for name in noted - {one.name for one in codices}:
        store.forget(name)
    names = [one.name for one in codices if one.newest is not None]
    return sorted(names, key=store.used, reverse=True)
