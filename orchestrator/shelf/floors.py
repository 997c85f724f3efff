"""Floors in the engine: which are warm, which are being computed, which may go.

    put ─▶ current of a codex ─▶ earlier (a conversation may still stand on it) ─▶ dropped

A floor is computed in the background as soon as its codex stands; a question that comes earlier computes it itself or rides
along. All floors of one codex under one identity share a pool, so that a new one is a branch of the old one. Dropping a
floor ends what runs on it and deletes its checkpoints; so a floor is dropped only when nobody uses it, a newer one
stands, and some earlier ones are kept. Knows floors by name; what stands in them is the shelf's.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from orchestrator.context.assembled import Floor
from orchestrator.engine.messages import Completion, Job, Outcome, Progress, Urgency
from orchestrator.engine.parent.client import EngineClient
from orchestrator.engine.parent.foresight import prompt_s
from orchestrator.engine.parent.supervisor import EngineUnavailable
from orchestrator.errors import LoreError

log = logging.getLogger("lorekeep.shelf")

OnProgress = Callable[[int, int], None]
MOST_EARLIER = 4  # floors of one pool that are kept beside the current one: those of conversations that go on


def pool_name(identity: str, codex: str) -> str:
    """Generations of one codex under one identity share a pool; the bare identity (codex '') has its own."""
    return f"{identity}/{codex}"


@dataclass
class Warming:
    """One floor's prefill: tokens done of all."""

    task: "asyncio.Task[bool]"
    done: int = 0
    total: int = 0


@dataclass
class Kept:
    """A floor that the engine knows: its pool, and how many questions run on it. `leaving`: it goes with the last."""

    floor: Floor
    pool: str
    users: int = 0
    leaving: bool = False


class Floors:
    """Which codex has which floor in the engine now. One event loop calls all of it."""

    def __init__(self, client: EngineClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._current: dict[str, str] = {}
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._warming: dict[str, Warming] = {}
        self._heard: dict[str, set[OnProgress]] = {}
        self._users = 0
        self._last_used = clock()
        self._busy = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    # -- a codex's floor

    def warm(self, codex: str, floor: Floor, pool: str, *, new_generation: bool = False) -> None:
        """Makes this the codex's floor and computes it in the background; with a new generation, older ones go."""
        if self._current.get(codex) == floor.name and codex in self._warming:
            return
        self._stop(codex)
        self._put(floor, pool).leaving = False
        self._current[codex] = floor.name
        if new_generation:
            self._leave(pool, floor.name)
        task = asyncio.create_task(self._warm(codex, floor), name=f"floor of {codex}")
        self._warming[codex] = Warming(task, 0, floor.tokens)

    def settle(self, codex: str) -> None:
        """The codex's floor is that of its generation for good: earlier ones go when nobody uses them and it stands."""
        kept = self._kept.get(self._current.get(codex, ""))
        if kept is not None:
            self._leave(kept.pool, kept.floor.name)
            if self.progress(codex) is None:
                self._tidy(kept.pool)

    def halt(self, codex: str) -> bool:
        """Stops the background prefill of a codex, whose next question computes the rest; False where none runs."""
        runs = self.progress(codex) is not None
        self._stop(codex)
        return runs

    async def grow(self, floor: Floor, pool: str) -> bool:
        """Computes a floor beside the current one, and returns whether it stands. Cancelling keeps what was computed."""
        with self.held(floor, pool, asked=False):
            return await self._prefill("", floor)

    async def stands(self, codex: str, heard: OnProgress) -> None:
        """Waits until the background prefill of a codex has ended, one way or the other; tells how far it is meanwhile."""
        warming = self._warming.get(codex)
        if warming is None:
            return
        listeners = self._heard.setdefault(codex, set())
        listeners.add(heard)
        heard(warming.done, warming.total)
        try:
            await asyncio.wait([warming.task])
        finally:
            listeners.discard(heard)

    def progress(self, codex: str) -> tuple[int, int] | None:
        """Tokens done and in all while a floor is being computed, else None."""
        warming = self._warming.get(codex)
        return (warming.done, warming.total) if warming and not warming.task.done() else None

    def left_s(self, codex: str) -> float | None:
        """Seconds that the rest of a floor being computed takes, as predicted; None where nothing is known or computed."""
        at = self.progress(codex)
        left = prompt_s(self._client.snapshot.counters, *at) if at else None
        return None if left is None else round(left, 1)

    def codex_of(self, name: str) -> str:
        """The codex of a floor by the floor's name; "" where it is none that is kept, or the bare identity's."""
        kept = self._kept.get(name)
        return kept.pool.partition("/")[2] if kept else ""

    def of(self, codex: str) -> Floor | None:
        kept = self._kept.get(self._current.get(codex, ""))
        return kept.floor if kept else None

    def drop(self, codex: str) -> None:
        """Everything of a dropped codex goes; what still runs on its floors is cancelled by the engine."""
        self._stop(codex)
        self._current.pop(codex, None)
        mine = [name for name, kept in self._kept.items() if kept.pool.endswith(f"/{codex}")]
        for name in mine:
            if name not in self._current.values():
                self._forget(name)

    async def stop(self) -> None:
        tasks = [warming.task for warming in self._warming.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def engine(self) -> None:
        """Returns when there is an engine to compute them. Raises EngineUnavailable where there will be none."""
        await self._client.ensure_ready()

    # -- who uses one

    @contextmanager
    def held(self, floor: Floor, pool: str, *, asked: bool = True) -> Iterator[None]:
        """The engine knows this floor until the block ends. `asked`: a question runs on it, the machine is not idle."""
        kept = self._put(floor, pool)
        kept.users += 1
        self._count(asked)
        try:
            yield
        finally:
            kept.users -= 1
            self._count(-asked)
            self._tidy(pool)

    async def asked(self) -> None:
        """Returns as soon as a question runs."""
        await self._busy.wait()

    async def idle(self, seconds: float) -> None:
        """Returns when no question has run for so long."""
        while True:
            await self._quiet.wait()
            left = self._last_used + seconds - self._clock()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(left):
                    await self._busy.wait()
            except TimeoutError:
                continue

    def _count(self, questions: int) -> None:
        if not questions:
            return
        self._users += questions
        if self._users:
            self._busy.set()
            self._quiet.clear()
        else:
            self._last_used = self._clock()
            self._busy.clear()
            self._quiet.set()

    # -- inside

    def _put(self, floor: Floor, pool: str) -> Kept:
        kept = self._kept.get(floor.name)
        if kept is None:
            self._client.put_floor(floor.name, floor.ids, pool=pool)
            kept = self._kept[floor.name] = Kept(floor, pool)
        self._kept.move_to_end(floor.name)
        return kept

    def _tidy(self, pool: str) -> None:
        """Drops what nobody uses of a pool: floors that are leaving, and the earliest beyond the few that are kept."""
        current = set(self._current.values())
        unused = [
            (name, kept)
            for name, kept in self._kept.items()
            if kept.pool == pool and not kept.users and name not in current
        ]
        leaving = [name for name, kept in unused if kept.leaving]
        staying = [name for name, kept in unused if not kept.leaving]
        for name in (*leaving, *staying[: max(0, len(staying) - MOST_EARLIER)]):
            self._forget(name)

    def _leave(self, pool: str, but: str) -> None:
        for kept in self._kept.values():
            kept.leaving = kept.leaving or (kept.pool == pool and kept.floor.name != but)

    def _forget(self, name: str) -> None:
        del self._kept[name]
        self._client.drop_floor(name)

    def _stop(self, codex: str) -> None:
        warming = self._warming.pop(codex, None)
        if warming is not None:
            warming.task.cancel()

    async def _warm(self, codex: str, floor: Floor) -> bool:
        stood = await self._prefill(codex, floor)
        kept = self._kept.get(floor.name)
        if kept is not None:
            self._tidy(kept.pool)
        return stood

    async def _prefill(self, codex: str, floor: Floor) -> bool:
        job = Job(0, floor.name, b"", owner=0, max_tokens=0, urgency=Urgency.BACKGROUND)
        try:
            async with aclosing(self._client.run(job)) as events:
                async for event in events:
                    if isinstance(event, Progress):
                        self._tell(codex, event.done, event.total)
                    elif isinstance(event, Completion):
                        if event.outcome is Outcome.DONE:
                            return True
                        log.warning("the floor of %s was not computed: %s", codex, event.detail or event.reason)
        except (EngineUnavailable, LoreError) as error:
            log.warning("the floor of %s was not computed: %s", codex, error)
        return False

    def _tell(self, codex: str, done: int, total: int) -> None:
        warming = self._warming.get(codex)
        if warming is not None:
            warming.done, warming.total = done, total
        for heard in tuple(self._heard.get(codex, ())):
            heard(done, total)
