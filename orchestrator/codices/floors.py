"""Floors in the engine: which are resident, which are being computed, which may go.

    put ─▶ current of a codex ─▶ earlier (a conversation may still use it) ─▶ dropped

A floor is computed in the background as soon as its codex is built; a question that comes earlier computes it itself or
shares the computation. Dropping a floor ends what runs on it and deletes its checkpoints; so a floor is dropped only when
nobody uses it, a newer one is resident, and some earlier ones are kept. Knows floors by name and key, not what they say.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from orchestrator.codices.state import FloorKey
from orchestrator.engine.client.client import EngineClient, prompt_s
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.engine.messages import (
    Admitted,
    Completion,
    InferenceJob,
    Outcome,
    PrefillProgress,
    Reason,
    Tier,
    Urgency,
)
from orchestrator.errors import EngineFailed, LoreError, OverBudget
from orchestrator.prompt.composing import Floor

log = logging.getLogger("lorekeep.codices")

OnProgress = Callable[[int, int], None]
MOST_EARLIER = 4  # floors of one pool that are kept beside the current one: those of conversations that go on


@dataclass
class FloorPrefill:
    """One floor's prefill: tokens done of all."""

    task: "asyncio.Task[bool]"
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class FloorFigures:
    """The one truth about a codex's floor. `tokens`: of Identity, Codex and log together. While it is being computed: the
    tokens `done` of them, and the seconds `left_s` that the rest takes, as predicted; None where nothing is known."""

    tokens: int
    done: int | None = None
    left_s: float | None = None


@dataclass
class HeldFloor:
    """A floor that the engine knows, and how many questions run on it. `leaving`: it goes with the last."""

    floor: Floor
    place: FloorKey
    users: int = 0
    leaving: bool = False


class Floors:
    """Which codex has which floor in the engine now. One event loop calls all of it."""

    def __init__(self, client: EngineClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._current: dict[str, str] = {}
        self._kept: OrderedDict[str, HeldFloor] = OrderedDict()
        self._warming: dict[str, FloorPrefill] = {}
        self._heard: dict[str, set[OnProgress]] = {}
        self.questions = Questions(clock)

    # -- a codex's floor

    def warm(self, floor: Floor, place: FloorKey, *, to_stay: bool = False) -> "asyncio.Task[bool]":
        """Makes this its codex's floor and computes it in the background; the task says whether it was computed.
        `to_stay`: what its key replaces goes."""
        codex = place.codex
        warming = self._warming.get(codex) if self._current.get(codex) == floor.name else None
        if warming is not None:
            if to_stay:
                self._leave(place)
            return warming.task
        self.take(floor, place, to_stay=to_stay)
        task = asyncio.create_task(self._warm(floor, place), name=f"floor of {codex}")
        self._warming[codex] = FloorPrefill(task, 0, floor.tokens)
        return task

    def take(self, floor: Floor, place: FloorKey, *, to_stay: bool = False) -> None:
        """Makes this its codex's floor without computing it: the first question does."""
        if to_stay:
            self._leave(place)
        self._stop(place.codex)
        self._put(floor, place).leaving = False
        self._current[place.codex] = floor.name

    def settle(self, codex: str) -> None:
        """The codex's floor is that of its generation for good: earlier ones go when nobody uses them and it stands."""
        kept = self._kept.get(self._current.get(codex, ""))
        if kept is not None:
            self._leave(kept.place)
            if self.progress(codex) is None:
                self._tidy(kept.place)

    def replace(self, place: FloorKey) -> None:
        """A floor stands here that is to stay: what its place replaces goes, as soon as nobody uses it."""
        self._leave(place)
        self._tidy(place)

    def halt(self, codex: str) -> bool:
        """Stops the background prefill of a codex, whose next question computes the rest; False where none runs."""
        runs = self.progress(codex) is not None
        self._stop(codex)
        return runs

    async def grow(self, floor: Floor, place: FloorKey) -> None:
        """Computes a floor beside the current one. Cancelling keeps what was computed.

        Raises OverBudget where it is larger than all that is granted, EngineUnavailable and EngineFailed where the engine
        ended: what was computed may be there when it is back.
        """
        with self.held(floor, place, asked=False):
            ended = await self._prefill("", floor)
        if ended.outcome is Outcome.REFUSED and ended.reason in (Reason.CELLS, Reason.WINDOW):
            raise OverBudget(ended.detail)
        if ended.outcome is not Outcome.DONE:
            raise EngineFailed(ended.detail or f"the floor was not computed: {ended.reason}")

    async def is_kept(self, floor: Floor, place: FloorKey) -> bool:
        """Whether most of a floor stands, or lies in the tiers and stands from now on. Raises EngineUnavailable."""
        with self.held(floor, place, asked=False):
            job = InferenceJob(0, floor.name, b"", owner=0, max_tokens=0)
            async with aclosing(self._client.run(job)) as events:
                async for event in events:
                    if isinstance(event, Admitted):
                        computed = sum(one.end - one.start for one in event.reuse if one.tier is Tier.COMPUTED)
                        return 2 * computed < event.prompt
        return False

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

    def figures(self, codex: str) -> FloorFigures | None:
        """What everybody is told of a codex's floor; None where it has none yet."""
        floor = self.of(codex)
        if floor is None:
            return None
        done, _ = self.progress(codex) or (None, 0)
        left = None if done is None else prompt_s(self._client.snapshot.counters, done, floor.tokens)
        return FloorFigures(floor.tokens, done, None if left is None else round(left, 1))

    def codex_of(self, name: str) -> str:
        """The codex of a floor by the floor's name; "" where it is none that is kept, or the bare identity's."""
        kept = self._kept.get(name)
        return kept.place.codex if kept else ""

    def of(self, codex: str) -> Floor | None:
        kept = self._kept.get(self._current.get(codex, ""))
        return kept.floor if kept else None

    def is_of_another(self, place: FloorKey) -> bool:
        """Whether the codex's floor is made of another version of this identity."""
        kept = self._kept.get(self._current.get(place.codex, ""))
        mine = kept.place.identity if kept else place.identity
        return mine.name == place.identity.name and mine.version != place.identity.version

    def drop(self, codex: str) -> None:
        """Everything of a dropped codex goes; what still runs on its floors is cancelled by the engine."""
        self._stop(codex)
        self._current.pop(codex, None)
        mine = [name for name, kept in self._kept.items() if kept.place.codex == codex]
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
    def held(self, floor: Floor, place: FloorKey, *, asked: bool = True) -> Iterator[None]:
        """The engine knows this floor until the block ends. `asked`: a question runs on it, the machine is not idle."""
        kept = self._put(floor, place)
        kept.users += 1
        if not place.codex:
            self._leave(place)  # of a bare identity there is nothing to wait for: its newest version is asked at once
        self.questions.count(asked)
        try:
            yield
        finally:
            kept.users -= 1
            self.questions.count(-asked)
            self._tidy(place)

    # -- inside

    def _put(self, floor: Floor, place: FloorKey) -> HeldFloor:
        kept = self._kept.get(floor.name)
        if kept is None:
            self._client.put_floor(floor.name, floor.ids, pool=place.pool)
            kept = self._kept[floor.name] = HeldFloor(floor, place)
        self._kept.move_to_end(floor.name)
        return kept

    def _tidy(self, place: FloorKey) -> None:
        """Drops what nobody uses of a codex: floors that are leaving, and of this pool the earliest beyond a few."""
        current = set(self._current.values())
        unused = [
            (name, kept)
            for name, kept in self._kept.items()
            if kept.place.codex == place.codex and not kept.users and name not in current
        ]
        leaving = [name for name, kept in unused if kept.leaving]
        staying = [name for name, kept in unused if not kept.leaving and kept.place.pool == place.pool]
        for name in (*leaving, *staying[: max(0, len(staying) - MOST_EARLIER)]):
            self._forget(name)

    def _leave(self, place: FloorKey) -> None:
        for kept in self._kept.values():
            kept.leaving = kept.leaving or place.replaces(kept.place)

    def _forget(self, name: str) -> None:
        del self._kept[name]
        self._client.drop_floor(name)

    def _stop(self, codex: str) -> None:
        warming = self._warming.pop(codex, None)
        if warming is not None:
            warming.task.cancel()

    async def _warm(self, floor: Floor, place: FloorKey) -> bool:
        computed = await self._computed(place.codex, floor)
        if floor.name in self._kept:
            self._tidy(place)
        return computed

    async def _computed(self, codex: str, floor: Floor) -> bool:
        try:
            ended = await self._prefill(codex, floor)
        except (EngineUnavailable, LoreError) as error:
            log.warning("the floor of %s was not computed: %s", codex, error)
            return False
        if ended.outcome is not Outcome.DONE:
            log.warning("the floor of %s was not computed: %s", codex, ended.detail or ended.reason)
        return ended.outcome is Outcome.DONE

    async def _prefill(self, codex: str, floor: Floor) -> Completion:
        """Raises EngineUnavailable."""
        job = InferenceJob(0, floor.name, b"", owner=0, max_tokens=0, urgency=Urgency.BACKGROUND)
        async with aclosing(self._client.run(job)) as events:
            async for event in events:
                if isinstance(event, PrefillProgress):
                    self._tell(codex, event.done, event.total)
                elif isinstance(event, Completion):
                    return event
        raise EngineFailed("the engine told no end of a floor")

    def _tell(self, codex: str, done: int, total: int) -> None:
        warming = self._warming.get(codex)
        if warming is not None:
            warming.done, warming.total = done, total
        for heard in tuple(self._heard.get(codex, ())):
            heard(done, total)


class Questions:
    """Counts those that run. `clock` gives seconds. One event loop calls all of it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._running = 0
        self._last = clock()
        self._busy = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def count(self, more: int) -> None:
        """So many more run now, or, below zero, so many have ended."""
        if not more:
            return
        self._running += more
        if self._running:
            self._busy.set()
            self._quiet.clear()
        else:
            self._last = self._clock()
            self._busy.clear()
            self._quiet.set()

    async def asked(self) -> None:
        """Returns as soon as a question runs."""
        await self._busy.wait()

    async def idle(self, seconds: float) -> None:
        """Returns when no question has run for so long."""
        while True:
            await self._quiet.wait()
            left = self._last + seconds - self._clock()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(left):
                    await self._busy.wait()
            except TimeoutError:
                continue
