"""A codex's next generation: taken in, raised and computed beside the one that stands, which serves until then.

The steps of `rebasing`, and the numbers that call for one. Knows codices through what raises and takes them.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

from codex.amendments import RebaseCase
from codex.library import Library
from orchestrator.context.assembled import Floor
from orchestrator.errors import NotReady
from orchestrator.shelf.faults import mended, translated
from orchestrator.shelf.floors import Floors
from orchestrator.shelf.rebasing import Rebasing, Steps
from orchestrator.shelf.standing import Standing

log = logging.getLogger("lorekeep.shelf")


@dataclass(frozen=True)
class Grown:
    """A generation that was raised beside the one that stands, with its floor."""

    standing: Standing
    floor: Floor


class Stock(Protocol):
    """The codices as they stand. `beside` raises the newest generation and changes nothing; `move` makes it what stands."""

    def seen(self, name: str) -> Standing | None: ...

    def loading(self, name: str) -> bool: ...

    def overfull(self, standing: Standing) -> bool: ...

    def disk(self, name: str) -> asyncio.Lock: ...

    def pool(self, name: str) -> str: ...

    async def beside(self, name: str) -> Grown: ...

    async def move(self, grown: Grown) -> None: ...

    async def changed(self, name: str) -> None: ...


class Generations:
    """When a codex gets a new generation, and how. One event loop calls all of it."""

    def __init__(self, library: Library, floors: Floors, stock: Stock, idle_s: float) -> None:
        self._library = library
        self._floors = floors
        self._stock = stock
        self._questions: dict[str, int] = {}
        steps = Steps(self._case, self._share, self._urgent, self._prepare, self._grow, self._install, floors.engine)
        self._rebasing = Rebasing(floors, steps, idle_s)

    def answered(self, name: str) -> None:
        """A question more about the generation that stands."""
        self._questions[name] = self._questions.get(name, 0) + 1
        self._rebasing.consider(name)

    def amended(self, name: str) -> None:
        """Its log has grown."""
        self._rebasing.consider(name)

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
        return self._rebasing.running(name)

    async def give_up(self, name: str) -> None:
        """For a codex that is loaded anew or dropped."""
        await self._rebasing.give_up(name)

    def forget(self, name: str) -> None:
        self._questions.pop(name, None)

    async def stop(self) -> None:
        await self._rebasing.stop()

    # -- the steps

    def _case(self, name: str) -> RebaseCase | None:
        standing = self._stock.seen(name)
        if standing is None or self._stock.loading(name):
            return None  # a load makes one itself
        return RebaseCase(
            idle=True,  # it begins only then
            codex=standing.tokens,
            amendments=standing.amended,
            to_compute=standing.behind_first_change(),
            questions=self._questions.get(name, 0),
            overfull=self._urgent(name),
        )

    def _share(self, name: str) -> float:
        standing = self._stock.seen(name)
        own = standing.rebase_share if standing else None
        return self._library.settings.amendments.rebase_share if own is None else own

    def _urgent(self, name: str) -> bool:
        standing = self._stock.seen(name)
        return standing is not None and self._stock.overfull(standing)

    async def _prepare(self, name: str) -> Grown:
        await asyncio.shield(asyncio.ensure_future(self._take_in_again(name)))
        return await self._stock.beside(name)

    async def _take_in_again(self, name: str) -> None:
        """Shielded: a thread cannot be cancelled, and the lock must be held as long as it works."""
        async with self._stock.disk(name):
            with translated():
                request = await asyncio.to_thread(self._library.request, name)
                await mended(lambda: self._library.load(request, asked=False, why=self._rebasing.reason(name)))

    async def _grow(self, grown: Grown) -> bool:
        return await self._floors.grow(grown.floor, self._stock.pool(grown.standing.name))

    async def _install(self, grown: Grown) -> None:
        name, number = grown.standing.name, grown.standing.generation.number
        why = grown.standing.generation.why
        await self._stock.move(grown)
        fields = {"codex": name, "generation": number, "reason": why}
        log.info("codex %s moved to generation %d: %s", name, number, why, extra={"fields": fields})
        # What changed while the floor grew went into the log of the old generation.
        await self._stock.changed(name)
