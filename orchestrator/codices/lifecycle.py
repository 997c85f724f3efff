"""What happens to codices: they are asked about, loaded, changed on disk, dropped.

    CodexLifecycle ─ events ─▶ Successors ─▶ transitions (pure)     when a codex gets its next floor
       │                           │ prepare, compute, commit
       └───────────────────────────┴──▶ ResidentCodices             what it is served as

What somebody waits for is done at once, and reported as an event. What follows from the event is decided in `transitions`.
Does not know questions, only that one was asked.
"""

import asyncio
import logging
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath

from codex.catalog.generations import Codex
from codex.library import Library
from orchestrator.codices.floors import Floors
from orchestrator.codices.resident import ResidentCodices, Successor
from orchestrator.codices.serving_identities import ServingIdentities, ServingIdentity
from orchestrator.codices.state import CodexState, FloorKey
from orchestrator.codices.state_store import CodexStateStore, StateBeforeLoad, state_before
from orchestrator.codices.successors import Successors
from orchestrator.codices.transitions import (
    CodexForgotten,
    DiskChanged,
    GrantChanged,
    IdentityChanged,
    LoadBegan,
    LoadEnded,
    PowerChanged,
    QuestionEnded,
)
from orchestrator.errors import LoreError, NotFound, NotPermitted, NotReady, no_codex, translated
from orchestrator.prompt.situation import ReadableCodex, choose_codex
from orchestrator.service import Principal
from orchestrator.wire.answers import IdentityState
from orchestrator.wire.names import in_full, owner_of

log = logging.getLogger("lorekeep.codices")

SOON_S = 2.0  # after which a question that was refused may be asked again


class CodexLifecycle:
    """One event loop calls all of it. `far` says how far the running load of a codex is, None where none runs."""

    def __init__(
        self,
        residents: ResidentCodices,
        successors: Successors[Successor],
        library: Library,
        identities: ServingIdentities,
        floors: Floors,
        store: CodexStateStore,
        far: Callable[[str], str | None],
    ) -> None:
        self._residents = residents
        self._successors = successors
        self._library = library
        self._identities = identities
        self._floors = floors
        self._store = store
        self._far = far

    # -- looking

    async def candidates(self, principal: Principal, asked: str | None = None, cwd: str = "") -> list[ReadableCodex]:
        """What this principal can ask about, with its root. Raises LoreError; see `candidates_of`."""
        return candidates_of(await self.readable(principal), asked, cwd, self._far)

    async def choose(self, principal: Principal, asked: str | None, cwd: str) -> tuple[str | None, str]:
        """The codex that is meant, of those that the principal may read; see `choose_codex`. Raises LoreError."""
        return choose_codex(asked, cwd, await self.candidates(principal, asked, cwd))

    async def readable(self, principal: Principal) -> list[Codex]:
        """Of all codices those that the principal may read, also such as are not loaded to their end. Raises LoreError."""
        codices = self._library.catalog.known_codices()
        if codices is None:
            with translated():
                codices = await asyncio.to_thread(self._library.catalog.codices)
        return [one for one in codices if principal.reads(one.name)]

    async def named(self, principal: Principal, name: str, loading: Iterable[str] = ()) -> str:
        """The whole name of a codex that the principal may read, also without its owner. `loading`: names that the catalog
        may not have yet. Raises NotFound, with names of none but such codices."""
        known = {one.name for one in await self.readable(principal)} | set(filter(principal.reads, loading))
        found = in_full(name, known)
        if found is None:
            raise no_codex(name, sorted(known))
        return found

    async def own(self, principal: Principal, name: str, loading: Iterable[str] = ()) -> str:
        """The same of one that is the principal's to change; with `admin` any, by its whole name. Raises NotFound,
        NotPermitted."""
        loading = tuple(loading)
        if principal.may("admin") and owner_of(name) is not None:
            with translated():
                codices = await asyncio.to_thread(self._library.catalog.codices)
            if name in loading or any(one.name == name for one in codices):
                return name
        found = await self.named(principal, name, loading)
        if not (principal.owns(found) or principal.may("admin")):
            raise NotPermitted(f"codex {found} is shared with you, and not yours to change", "ask its owner")
        return found

    def rebasing(self, name: str) -> bool:
        """Whether a new generation is on its way; a new version of an identity says nothing of the files."""
        return self._successors.under_way(name) and bool(self._successors.due(name).files)

    def identity(self, state: CodexState) -> IdentityState:
        """Which version of the default identity answers, and what is known of the next."""
        try:
            found = self._identities.now(state.view).state()
        except LoreError as fault:
            return IdentityState(name=self._identities.default, version="", fault=fault.message)
        hindered = self._successors.fault(state.name)
        return found.model_copy(update={"fault": hindered}) if found.preparing and hindered else found

    # -- questions

    async def ensure_built(self, name: str) -> CodexState:
        """The codex as it is now, with room for a conversation. Raises NotFound, NotReady and what counting raises."""
        state = self._residents.get(name)
        if state is None:
            return await self._residents.build(name)
        if self._residents.overfull(state):
            self._successors.report(QuestionEnded(self._residents.facts([name])))
            await self._successors.ended(name)
            state = self._residents.get(name) or state
            if self._residents.overfull(state):
                has, most = state.tokens_now, self._residents.most_tokens(state)
                why = f"it has {has:,} tokens with its changes, and {most:,} leave room for a question"
                raise self._needed(name, why)
        return state

    def wait_for_room(self, state: CodexState, over: int) -> NotReady | None:
        """What a question with so many tokens too many is told where a new generation is due, which has no log, and makes
        the room by that; None where it must be shorter."""
        if not 0 < over <= state.amended:
            return None
        self._successors.report(QuestionEnded(self._residents.facts([state.name])))
        if not self._successors.due(state.name).files:
            return None
        return self._needed(state.name, f"{over:,} tokens are too many, and its changes have {state.amended:,}")

    def _needed(self, name: str, why: str) -> NotReady:
        how = self._successors.fault(name) or "one is on its way"
        return NotReady(f"codex {name} needs a new generation: {why}; {how}", "ask again", retry_after=SOON_S)

    async def served(self, state: CodexState | None, identity: str | None = None) -> ServingIdentity:
        """The version of an identity that answers now; a newer one is prepared. Raises NotFound, InvalidRequest."""
        found = self._identities.now(state.view if state is not None else None, identity)
        if state is not None:
            if found.coming is None and self._floors.is_of_another(FloorKey.of(state.view, found.view)):
                await self._residents.warm(state)  # it changed before its floor was resident
            if found.coming is not None or self._successors.due(state.name):  # else the question brings no news of it
                self._successors.report(IdentityChanged(self._residents.facts([state.name])))
        return found

    def answered(self, key: FloorKey, paths: list[str]) -> None:
        """A question was answered on this floor, from these files."""
        self._residents.computed(key)
        if name := key.codex:
            self._store.asked(name, paths)
            self._residents.asked(name)
            self._successors.report(QuestionEnded(self._residents.facts([name])))

    # -- loads

    async def load_began(self, name: str) -> StateBeforeLoad:
        """No next floor of it is made until as many loads have ended. What it goes back to when the load is cancelled."""
        self._successors.report(LoadBegan(name))
        await self._successors.cancelled(name)
        with translated():
            return await asyncio.to_thread(state_before, self._library, self._store, name, self._residents.get(name))

    def load_ended(self, name: str) -> None:
        """Well or not."""
        self._successors.report(LoadEnded(self._residents.facts([name])))

    async def load_committed(self, was: StateBeforeLoad) -> None:
        """The load has ended well: what was before goes, and later changes on disk are seen by whoever follows them."""
        await asyncio.to_thread(self._store.compared, was.name, was.began)
        state = self._residents.get(was.name)
        if state is not None and state.generation.number != was.number:
            with translated():
                await asyncio.to_thread(self._library.release, was.name)
            self._floors.release_earlier(was.name)

    # -- disk and machine

    async def changed(self, name: str) -> None:
        """Files of a codex may have changed. Raises Conflict while another load has them."""
        if await self._residents.changed(name):
            self._successors.report(DiskChanged(self._residents.facts([name])))

    async def reconsider(self) -> float | None:
        """After a new reading of the machine. Returns the seconds after which to call again, None for no need."""
        changed, again = await self._residents.reconsider()
        self._successors.report(GrantChanged(self._residents.facts(changed)))
        return again

    def save_power(self, *, on: bool) -> None:
        """While it is saved no next floor is made but an urgent one."""
        self._successors.report(PowerChanged(on))

    # -- start and end

    async def wake(self, report: Callable[[int, int], None]) -> None:
        """After a start: everything loaded is built again, in order of last use, so that its floor is restored before the
        first question. `report` gets how many are done, of how many."""
        self._successors.start()
        names = await asyncio.to_thread(codices_of, self._library, self._store)
        for done, name in enumerate(names):
            report(done, len(names))
            if self._residents.get(name) is None:
                try:
                    await self._residents.build(name)
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
            async with self._residents.disk(name):
                with translated():
                    await asyncio.to_thread(self._library.drop, name)
                    await asyncio.to_thread(self._store.forget, name)
                self._residents.forget(name)
        finally:
            self.load_ended(name)
        self._successors.report(CodexForgotten(name))

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
    named = in_full(asked, [one.name for one in codices])
    return next((one for one in codices if one.name == named and one.newest is None), None)


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
