"""A codex's next floor: of its next generation, taken in and raised, or of the next version of an identity; computed
beside the one that stands, which serves until then.

The steps of `rebasing`, and what calls for one. Knows codices through what raises and takes them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from codex.following.amendments import RebaseCase, RebaseDecision, should_rebase
from codex.library import Library
from formatters.context import IdentityView
from orchestrator.codices.faults import mended, translated
from orchestrator.codices.floors import Floors
from orchestrator.codices.personas import Personas
from orchestrator.codices.rebasing import Due, Rebasing, Steps
from orchestrator.codices.state import CodexState, FloorKey
from orchestrator.codices.state_store import CodexStateStore
from orchestrator.errors import NotReady
from orchestrator.prompt.assembly import Floor
from orchestrator.wire.lore import IdentityState

log = logging.getLogger("lorekeep.codices")

GENERATION = "generation"
LOOK_S = 5.0  # between two looks whether an identity has changed, where nobody asks


@dataclass(frozen=True)
class Grown:
    """What is to stand, and its floor, which `stands` once it is computed. `standing`: a generation that was raised beside
    the one that stands; None where only the identity is new."""

    place: FloorKey
    floor: Floor
    standing: CodexState | None = None
    stands: bool = False


class Stock(Protocol):
    """The codices as they stand. `beside` raises the newest generation and changes nothing; `move` makes what was grown
    what stands."""

    ledger: CodexStateStore

    def seen(self, name: str) -> CodexState | None: ...

    def loading(self, name: str) -> bool: ...

    def overfull(self, standing: CodexState) -> bool: ...

    def disk(self, name: str) -> asyncio.Lock: ...

    async def beside(self, name: str) -> CodexState: ...

    async def move(self, grown: Grown) -> None: ...

    async def changed(self, name: str) -> None: ...


class Generations:
    """When a codex gets a new floor, and how. One event loop calls all of it."""

    def __init__(self, library: Library, floors: Floors, stock: Stock, personas: Personas, idle_s: float) -> None:
        self._library = library
        self._floors = floors
        self._stock = stock
        self._personas = personas
        self._questions: dict[str, int] = {}
        steps = Steps(
            self._due, stock.ledger.used, self._urgent, self._prepare, self._grow, self._install, floors.engine
        )
        self._rebasing = Rebasing(floors.questions, steps, idle_s)
        self._looking: asyncio.Task[None] | None = None

    def follow(self, standings: Callable[[], Iterable[CodexState]]) -> None:
        """From now on changed identities are noticed, also while nobody asks."""
        self._looking = asyncio.create_task(self._look(standings), name="identities")

    def answered(self, name: str) -> None:
        """A question more about the generation that stands."""
        self._questions[name] = self._questions.get(name, 0) + 1
        self._rebasing.consider(name)

    def consider(self, name: str) -> None:
        """Its log has grown, or its identity may have changed."""
        self._rebasing.consider(name)

    def reconsider(self, standings: Iterable[CodexState]) -> None:
        """The machine or an identity may have changed: what fitted may do so no longer, what stood may be another."""
        for one in standings:
            waits = self._personas.coming(one.view) is not None and not self._rebasing.hindered(one.name)
            if waits or (one.amended and self._stock.overfull(one)):
                self._rebasing.consider(one.name)

    def identity(self, standing: CodexState) -> IdentityState:
        """What is told of its default identity."""
        told, hindered = self._personas.told(standing.view), self._rebasing.hindered(standing.name)
        return told.model_copy(update={"fault": hindered}) if told.preparing and hindered else told

    async def now(self, name: str) -> None:
        """Returns when there is room for a conversation again. Raises NotReady where a new generation is late."""
        self._rebasing.consider(name)
        await self._rebasing.ended(name)
        standing = self._stock.seen(name)
        if standing is not None and standing.amended and self._stock.overfull(standing):
            why = self._rebasing.hindered(name) or "one is on its way"
            raise NotReady(f"codex {name} needs a new generation first: {why}", "ask again", retry_after=2.0)

    def began(self, name: str) -> None:
        """Another generation stands from now on: nobody has asked about it yet."""
        self._questions[name] = 0

    def under_way(self, name: str) -> bool:
        """Whether a new generation is; a new version of an identity tells nothing of the files."""
        return self._rebasing.running(name) and self._decided(name).rebase

    async def give_up(self, name: str) -> None:
        """For a codex that is loaded anew or dropped."""
        await self._rebasing.give_up(name)

    def forget(self, name: str) -> None:
        self._questions.pop(name, None)

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._rebasing.stop()

    async def _look(self, standings: Callable[[], Iterable[CodexState]]) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.reconsider(standings())

    # -- the steps

    def _due(self, name: str) -> Due:
        """A new generation before a new identity: its floor is made under the newest one anyway."""
        decision = self._decided(name)
        if decision.rebase:
            return Due(GENERATION, decision.reason)
        identity = self._coming(name)
        return Due("identity", f"{identity.name} is now version {identity.version}") if identity else Due()

    def _decided(self, name: str) -> RebaseDecision:
        standing = self._raised(name)
        if standing is None:
            return RebaseDecision(False, "it does not stand, or is being loaded")
        case = RebaseCase(
            idle=True,  # it begins only then
            codex=standing.tokens,
            amendments=standing.amended,
            to_compute=standing.behind_first_change(),
            questions=self._questions.get(name, 0),
            overfull=self._urgent(name),
        )
        return should_rebase(case, self._share(name))

    def _coming(self, name: str) -> IdentityView | None:
        standing = self._raised(name)
        return self._personas.coming(standing.view) if standing is not None else None

    def _raised(self, name: str) -> CodexState | None:
        """None while it is loaded, too: a load makes its floor itself."""
        return None if self._stock.loading(name) else self._stock.seen(name)

    def _share(self, name: str) -> float:
        standing = self._stock.seen(name)
        own = standing.rebase_share if standing else None
        return self._library.settings.amendments.rebase_share if own is None else own

    def _urgent(self, name: str) -> bool:
        standing = self._stock.seen(name)
        return standing is not None and self._stock.overfull(standing)

    async def _prepare(self, name: str) -> Grown:
        standing, identity = self._stock.seen(name), self._coming(name)
        if not self._decided(name).rebase and standing is not None and identity is not None:
            return await self._under(standing, identity)
        await asyncio.shield(asyncio.ensure_future(self._take_in_again(name)))
        newest = await self._stock.beside(name)
        return replace(await self._under(newest, self._personas.newest(name)), standing=newest)

    async def _under(self, standing: CodexState, identity: IdentityView) -> Grown:
        return Grown(FloorKey.of(standing.view, identity), await self._personas.under(standing.view, identity))

    async def _take_in_again(self, name: str) -> None:
        """Shielded: a thread cannot be cancelled, and the lock must be held as long as it works."""
        async with self._stock.disk(name):
            with translated():
                request = await asyncio.to_thread(self._library.request, name)
                await mended(lambda: self._library.load(request, asked=False, why=self._rebasing.reason(name)))

    async def _grow(self, grown: Grown) -> Grown:
        await self._floors.grow(grown.floor, grown.place)
        return replace(grown, stands=True)

    async def _install(self, grown: Grown) -> None:
        await self._stock.move(grown)
        name, identity = grown.place.codex, grown.place.identity
        if grown.standing is None:
            log.info("codex %s is asked under version %s of identity %s", name, identity.version, identity.name)
            return
        number, why = grown.standing.generation.number, grown.standing.generation.why
        fields = {"codex": name, "generation": number, "reason": why}
        log.info("codex %s moved to generation %d: %s", name, number, why, extra={"fields": fields})
        # What changed while the floor grew went into the log of the old generation.
        await self._stock.changed(name)
