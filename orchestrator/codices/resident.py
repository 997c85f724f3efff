"""What each codex is served as: built when it is first needed, and replaced in one step by a successor.

    build          catalog ─▶ state ─▶ its floor is computed in the background
    a change       disk ─▶ log ─▶ the same state with a longer log
    a next floor   prepare ─▶ compute ─▶ commit: another coverage or generation, or a new version of the identity

Owns the state of each codex and two locks of each: for builds, and for comparisons with the disk. Says what is due of a
codex; when that is done is decided in `transitions`. Does not know who asks.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from codex.following.amendments import rebase_reason
from codex.library import Library
from codex.progress import OnProgress, silent
from formatters.context import IdentityView
from governor.settings import PressureSettings
from orchestrator.codices.building import CodexBuilder, mended
from orchestrator.codices.floors import Floors
from orchestrator.codices.serving_identities import ServingIdentities
from orchestrator.codices.state import CodexState, FloorKey
from orchestrator.codices.state_store import CodexStateStore, StateBeforeLoad, take_back
from orchestrator.codices.transitions import CodexFacts, DueFloor
from orchestrator.errors import LoreError, NotReady, translated
from orchestrator.machine.machine import Machine
from orchestrator.prompt.composing import Floor
from orchestrator.prompt.coverage import (
    Coverage,
    CoverageDecision,
    FloorRoom,
    Pending,
    change_due,
    coverage_named,
    direction,
    redecide,
)

log = logging.getLogger("lorekeep.codices")
CONVERSATION = 0.25  # of a window: what the largest floor leaves of it


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
    """One event loop calls all of it but `digests`. `forced`: the coverage that the settings name for all; `dwell`: how
    long a wish for another coverage must last. Before the model is loaded, no codex is built."""

    def __init__(
        self,
        library: Library,
        builder: CodexBuilder,
        identities: ServingIdentities,
        machine: Machine,
        floors: Floors,
        store: CodexStateStore,
        forced: Coverage | None,
        dwell: PressureSettings,
    ) -> None:
        self._library = library
        self._builder = builder
        self._identities = identities
        self._machine = machine
        self._floors = floors
        self._store = store
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

    # -- looking

    def get(self, name: str) -> CodexState | None:
        """The codex as it is now, without waiting; None where it is not built yet."""
        return self._states.get(name)

    def digests(self, name: str, paths: Collection[str]) -> Mapping[str, str]:
        """Of those of these files that the codex answers from. For any thread. Raises CodexError."""
        state = self._states.get(name)
        if state is not None:
            return {path: state.digests[path] for path in paths if path in state.digests}
        return {path: digest for path, (digest, _) in self._library.catalog.file_digests(name, paths).items()}

    def paths(self, name: str) -> Collection[str]:
        """The files that the codex answers from; where it is not built yet, those that it may have. For any thread.
        Raises CodexError."""
        state = self._states.get(name)
        if state is not None:
            return list(state.digests)
        catalog = self._library.catalog
        amended = {one.path for one in catalog.amendments(name)}
        return {one.path for one in catalog.generation(name).entries} | amended

    def disk(self, name: str) -> asyncio.Lock:
        """Held by whoever compares a codex with the disk: a load, or what a watcher reports."""
        return self._disk_locks[name]

    def overfull(self, state: CodexState) -> bool:
        """Whether its log has grown so long that no conversation fits behind its floor, as far as that is known now."""
        if not state.amended or self._machine.outlook.budget is None:
            return False
        return state.tokens_now > self.most_tokens(state)

    def most_tokens(self, state: CodexState) -> int:
        """That its floor and its log may have now."""
        return state.most_tokens(self._machine.room(self._identity_size))

    # -- building

    async def build(
        self, name: str, report: OnProgress = silent, *, strict: bool = False, release: bool = True
    ) -> CodexState:
        """Builds the newest generation of a codex and has its floor computed; older generations are released, without
        `release` by `load_committed` or `go_back`. `strict`: raises OverBudget for a forced coverage that does not fit,
        instead of taking another one."""
        async with self._build_locks[name]:
            with translated():
                halted = await asyncio.to_thread(self._store.halted, name)
            self._halted = self._halted | {name} if halted else self._halted - {name}
            state, is_new = await self._put(await self._built(name, report, strict=strict), release=release)
            await self.warm(state, to_stay=is_new and release)
            return state

    async def _built(
        self, name: str, report: OnProgress = silent, keep: CoverageDecision | None = None, *, strict: bool = False
    ) -> CodexState:
        room, identity = await self._room(name), self._identities.newest(name)
        with translated():
            coverage = (await asyncio.to_thread(self._store.wishes, name)).coverage
            forced = self._forced_by_settings if coverage is None else coverage_named(coverage)
            return await self._builder.built(name, room, identity, report, forced, keep, strict=strict)

    async def _room(self, name: str) -> FloorRoom:
        """What its floor may take now."""
        (size,) = await self._builder.model().tokens.count([self._identities.newest(name).text])
        self._identity_size = size
        return self._machine.room(size)

    async def _put(self, state: CodexState, *, release: bool, compare: bool = False) -> tuple[CodexState, bool]:
        """The codex is served as this from now on, with what was logged since it was built; with `compare`, another
        generation also with what is on disk by now. And whether it is another generation than before, whose floors have
        then been left. Raises LoreError, and nothing has changed then."""
        name = state.name
        async with self.disk(name):
            before = self._states.get(name)
            is_new = before is None or before.generation.number != state.generation.number
            if is_new and compare:  # what changed while its floor was computed is in the log of the old generation
                state = (await self._builder.with_changes(name, state))[0] or state
            with translated():
                log_now = await asyncio.to_thread(self._library.catalog.amendments, name, state.generation.number)
                if len(log_now) != len(state.log):
                    state = await self._builder.amended(state, log_now)
                before = self._states.get(name)
                self._states[name] = state if before is None else state.behind(before)
                self._moves.pop(name, None)
                if is_new:
                    self._questions[name] = 0
                if is_new and release:
                    await asyncio.to_thread(self._library.release, name)
        return state, is_new

    async def warm(self, state: CodexState, *, to_stay: bool = False) -> None:
        """Computes its floor in the background, under the version of the default identity that answers now."""
        if self.overfull(state):
            self._floors.halt(state.name)  # nobody can ask on it: the next one is urgent
            return
        identity = self._identities.now(state.view).view
        floor, key = await self._builder.floor(state.view, identity), FloorKey.of(state.view, identity)
        if state.name in self._halted:
            self._floors.take(floor, key, to_stay=to_stay)
            return
        task = self._floors.warm(floor, key, to_stay=to_stay)
        task.add_done_callback(partial(self._warmed, key))

    async def warm_all(self) -> None:
        """The same for every codex."""
        for state in tuple(self._states.values()):
            await self.warm(state)

    def _warmed(self, key: FloorKey, task: "asyncio.Task[bool]") -> None:
        if not task.cancelled() and task.exception() is None and task.result():
            self.computed(key)

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
            self._identities.now_resident(key)

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
                await self.warm(state, to_stay=is_new)

    def forget(self, name: str) -> None:
        """The codex is dropped."""
        for noted in (self._states, self._questions, self._pending, self._moves):
            noted.pop(name, None)
        self._identities.forget(name)
        self._floors.drop(name)

    # -- what happens to it

    def asked(self, name: str) -> None:
        """A question about it was answered."""
        self._questions[name] = self._questions.get(name, 0) + 1

    async def halt(self, name: str) -> bool:
        """Stops the computing of a floor that a load has left in the background. It begins again with a question or a load,
        also after a restart. False where none is computed."""
        if not self._floors.halt(name):
            return False
        self._halted.add(name)
        with translated():
            await asyncio.to_thread(self._store.halt, name)
        return True

    async def changed(self, name: str) -> bool:
        """Files of a codex may have changed: the log grows by what did, the index follows, and the floor gets the new
        entries behind it. Needs no model for a codex that is not built yet. Returns False where a built codex has not
        changed. Raises Conflict while another load has the files."""
        async with self.disk(name):
            state = self._states.get(name)  # None: it could not be built yet, and will be with this log
            amended, new = await self._builder.with_changes(name, state)
            if state is None or amended is None:
                return False
            if not new:
                self._restate(state, amended)
                return False
            if (now := self._states.get(name)) is not None and now is not state:
                amended = replace(amended, decision=now.decision)
            self._states[name] = amended
        log.info("codex %s: %d %s applied", name, new, "change" if new == 1 else "changes")
        await self.warm(amended)
        return True

    def _restate(self, was: CodexState, after: CodexState) -> None:
        """The same codex with another reason or the like, nothing that its floor is made of; unless it moved meanwhile."""
        if self._states.get(was.name) is was:
            self._states[was.name] = after

    async def reconsider(self) -> tuple[set[str], float | None]:
        """After a new reading: a coverage that no longer fits becomes smaller, one that may grow becomes larger, neither at
        once. Returns of which codices something else may be due, and the seconds after which the next wish has lasted long
        enough, None without one."""
        if self._machine.outlook.budget is None:
            return set(), None
        before = set(self._moves)
        waits = [await self._reconsidered(one) for one in list(self._states.values())]
        changed = before | set(self._moves) | {one.name for one in self._states.values() if self.overfull(one)}
        return changed, min((wait for wait in waits if wait is not None), default=None)

    async def _reconsidered(self, state: CodexState) -> float | None:
        """Notes that another coverage is due; else the seconds until it is, None when the codex may stay as it is."""
        name, now_has = state.name, state.decision
        if state.forced is not None:
            return None
        room, level = await self._room(name), self._machine.levels.memory or "calm"
        wanted = redecide(now_has, state.sizes, room, level, settings=state.settings)
        move = self._moves.pop(name, None)
        if move is not None and not direction(move, wanted):
            self._moves[name] = move  # it is under way
            return None
        now, dwell = time.monotonic(), (self._dwell.worse_s, self._dwell.better_s)
        pending, left = change_due(self._pending.get(name), now_has, wanted, now, *dwell)
        due = pending is not None and left <= 0
        self._pending[name] = None if due else pending
        if due:
            self._moves[name] = wanted
        elif pending is not None:
            return left
        elif wanted.reason != now_has.reason:
            now_says = replace(now_has, reason=wanted.reason, hint=wanted.hint)
            self._restate(state, replace(state, decision=now_says))
        return None

    # -- what is due

    def facts(self, names: Collection[str] | None = None) -> Mapping[str, CodexFacts]:
        """What is due of these codices, by name; by default of all that are built."""
        return {name: self._facts_of(name) for name in (self._states if names is None else names)}

    def _facts_of(self, name: str) -> CodexFacts:
        state = self._states.get(name)
        found = self._due(state) if state is not None else DueFloor()
        if state is None or not found:
            return CodexFacts(found)
        return CodexFacts(found, self._store.used(name), self._holds_two(state))

    def _holds_two(self, state: CodexState) -> bool:
        """Whether memory holds its next floor beside the resident one and a conversation on that, as far as is known."""
        if self._machine.outlook.budget is None:
            return False
        room = self._machine.room(self._identity_size)
        floor = self._identity_size + state.tokens + state.amended
        return room.kv_tokens >= 2 * floor + int(room.window * CONVERSATION)

    def _due(self, state: CodexState) -> DueFloor:
        """Where a user has stopped the computing of its floor, only what cannot wait."""
        may_wait = state.name not in self._halted
        now_has, move = state.decision, self._moves.get(state.name)
        smaller = move is not None and direction(now_has, move) < 0
        if move is not None and (may_wait or smaller):
            size = "smaller" if smaller else "larger"
            instead = f"instead of {now_has.coverage}" if move.coverage is not now_has.coverage else f"of a {size} size"
            return DueFloor(coverage=f"{move.coverage} {instead}, {move.reason}", urgent=smaller)
        urgent = self.overfull(state)
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

    # -- the work of the next floor

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
        """The codex is served on this floor from now on. Floors of older generations and versions are released. Raises
        LoadInProgress while another load has the files: it is served as before."""
        key, name = made.key, made.key.codex
        async with self._build_locks[name]:
            state = made.state if made.anew else self._states.get(name, made.state)
            state, is_new = await self._put(state, release=True, compare=True)
            if made.computed:
                self._identities.now_resident(key)
            if key.identity.name == self._identities.default:
                await self.warm(state, to_stay=is_new or made.computed)
            else:
                self._floors.replace(key)
        generation = state.generation
        if is_new:
            fields = {"codex": name, "generation": generation.number, "reason": generation.why}
            moved = "codex %s moved to generation %d: %s"
            log.info(moved, name, generation.number, generation.why, extra={"fields": fields})
        elif made.anew:
            log.info("codex %s moved to the coverage %s: %s", name, state.decision.coverage, state.decision.reason)
        else:
            log.info("codex %s is asked under version %s of identity %s", name, key.identity.version, key.identity.name)

    async def engine(self) -> None:
        await self._floors.client.ensure_ready()
