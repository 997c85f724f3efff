"""Which floors the engine has, and which of them is each codex's.

    put ─▶ current of a codex ─▶ earlier (a conversation may still use it) ─▶ dropped

A floor is computed in the background as soon as its codex is built; a question that comes earlier computes it itself or
shares the computation. Dropping a floor ends what runs on it and deletes its checkpoints; so a floor is dropped only when
nobody uses it, a newer one is resident, and some earlier ones are kept. Floors are known by name and key, not by what they
say.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field

from orchestrator.codices.state import FloorKey
from orchestrator.codices.successors import Questions
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.engine.messages import Completion, InferenceJob, Outcome, PrefillProgress, Reason, Urgency
from orchestrator.engine.prefill_cost import prompt_s
from orchestrator.errors import EngineFailed, LoreError, OverBudget
from orchestrator.prompt.composing import Floor

log = logging.getLogger("lorekeep.codices")

OnTokens = Callable[[int, int], None]  # done, of how many
MOST_EARLIER = 4  # floors of one pool that are kept beside the current one: those of conversations that go on


@dataclass
class FloorPrefill:
    """One floor's prefill: tokens done of all, and who is called when more are."""

    task: "asyncio.Task[bool]"
    done: int = 0
    total: int = 0
    listeners: set[OnTokens] = field(default_factory=set)


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
    key: FloorKey
    users: int = 0
    leaving: bool = False


class Floors:
    """Which codex has which floor in the engine now. One event loop calls all of it."""

    def __init__(self, client: EngineClient, clock: Callable[[], float] = time.monotonic) -> None:
        self.client = client
        self._current: dict[str, str] = {}
        self._kept: OrderedDict[str, HeldFloor] = OrderedDict()
        self._warming: dict[str, FloorPrefill] = {}
        self.questions = Questions(clock)

    # -- a codex's floor

    def warm(self, floor: Floor, key: FloorKey, *, to_stay: bool = False) -> "asyncio.Task[bool]":
        """Makes this its codex's floor and computes it in the background; the task says whether it was computed.
        `to_stay`: what its key replaces goes."""
        codex = key.codex
        warming = self._warming.get(codex) if self._current.get(codex) == floor.name else None
        if warming is not None:
            if to_stay:
                self._leave(key)
            return warming.task
        self.take(floor, key, to_stay=to_stay)
        task = asyncio.create_task(self._warm(floor, key), name=f"floor of {codex}")
        self._warming[codex] = FloorPrefill(task, 0, floor.tokens)
        return task

    def take(self, floor: Floor, key: FloorKey, *, to_stay: bool = False) -> None:
        """Makes this its codex's floor without computing it: the first question does."""
        if to_stay:
            self._leave(key)
        self._stop(key.codex)
        self._put(floor, key).leaving = False
        self._current[key.codex] = floor.name

    def release_earlier(self, codex: str) -> None:
        """Releases the codex's earlier floors when nobody uses them and its newest is computed."""
        kept = self.held_for(codex)
        if kept is not None:
            self._leave(kept.key)
            if self.progress(codex) is None:
                self._tidy(kept.key)

    def replace(self, key: FloorKey) -> None:
        """This floor is resident and is to stay: what it replaces goes, as soon as nobody uses it."""
        self._leave(key)
        self._tidy(key)

    def halt(self, codex: str) -> bool:
        """Stops the background prefill of a codex, whose next question computes the rest; False where none runs."""
        runs = self.progress(codex) is not None
        self._stop(codex)
        return runs

    async def grow(self, floor: Floor, key: FloorKey) -> None:
        """Computes a floor beside the current one. Cancelling keeps what was computed.

        Raises OverBudget where it is larger than all that is granted, EngineUnavailable and EngineFailed where the engine
        ended: what was computed may be there when it is back.
        """
        with self.held(floor, key, asked=False):
            ended = await self._prefill("", floor)
        if ended.outcome is Outcome.REFUSED and ended.reason in (Reason.CELLS, Reason.WINDOW):
            raise OverBudget(ended.detail)
        if ended.outcome is not Outcome.DONE:
            raise EngineFailed(ended.detail or f"the floor was not computed: {ended.reason}")

    async def ended(self, codex: str, report: OnTokens) -> None:
        """Returns when the background prefill of a codex has ended, well or not; reports how far it is meanwhile."""
        warming = self._warming.get(codex)
        if warming is None:
            return
        warming.listeners.add(report)
        report(warming.done, warming.total)
        try:
            await asyncio.wait([warming.task])
        finally:
            warming.listeners.discard(report)

    def progress(self, codex: str) -> tuple[int, int] | None:
        """Tokens done and in all while a floor is being computed, else None."""
        warming = self._warming.get(codex)
        return (warming.done, warming.total) if warming and not warming.task.done() else None

    def figures(self, codex: str) -> FloorFigures | None:
        """What everybody reports of a codex's floor; None where it has none yet."""
        floor = self.of(codex)
        if floor is None:
            return None
        done, _ = self.progress(codex) or (None, 0)
        left = None if done is None else prompt_s(self.client.snapshot.counters, done, floor.tokens)
        return FloorFigures(floor.tokens, done, None if left is None else round(left, 1))

    def codex_of(self, name: str) -> str:
        """The codex of a floor by the floor's name; "" where it is none that is kept, or the bare identity's."""
        kept = self._kept.get(name)
        return kept.key.codex if kept else ""

    def codices(self) -> tuple[str, ...]:
        """Those that have a floor."""
        return tuple(sorted(codex for codex in self._current if self.of(codex) is not None))

    def of(self, codex: str) -> Floor | None:
        held = self.held_for(codex)
        return held.floor if held else None

    def held_for(self, codex: str) -> HeldFloor | None:
        """The codex's floor, computed or not, and what it is made of."""
        return self._kept.get(self._current.get(codex, ""))

    def is_of_another(self, key: FloorKey) -> bool:
        """Whether the codex's floor is made of another version of this identity."""
        kept = self.held_for(key.codex)
        mine = kept.key.identity if kept else key.identity
        return mine.name == key.identity.name and mine.version != key.identity.version

    def drop(self, codex: str) -> None:
        """Everything of a dropped codex goes; what still runs on its floors is cancelled by the engine."""
        self._stop(codex)
        self._current.pop(codex, None)
        mine = [name for name, kept in self._kept.items() if kept.key.codex == codex]
        for name in mine:
            if name not in self._current.values():
                self._forget(name)

    async def stop(self) -> None:
        tasks = [warming.task for warming in self._warming.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- who uses one

    @contextmanager
    def held(self, floor: Floor, key: FloorKey, *, asked: bool = True) -> Iterator[None]:
        """The engine knows this floor until the block ends. `asked`: a question runs on it, the machine is not idle."""
        kept = self._put(floor, key)
        kept.users += 1
        if not key.codex:
            self._leave(key)  # of a bare identity there is nothing to wait for: its newest version is asked at once
        self.questions.count(asked)
        try:
            yield
        finally:
            kept.users -= 1
            self.questions.count(-asked)
            self._tidy(key)

    # -- inside

    def _put(self, floor: Floor, key: FloorKey) -> HeldFloor:
        kept = self._kept.get(floor.name)
        if kept is None:
            self.client.put_floor(floor.name, floor.ids, pool=key.pool)
            kept = self._kept[floor.name] = HeldFloor(floor, key)
        self._kept.move_to_end(floor.name)
        return kept

    def _tidy(self, key: FloorKey) -> None:
        """Drops what nobody uses of a codex: floors that are leaving, and of this pool the earliest beyond a few."""
        current = set(self._current.values())
        unused = [
            (name, kept)
            for name, kept in self._kept.items()
            if kept.key.codex == key.codex and not kept.users and name not in current
        ]
        leaving = [name for name, kept in unused if kept.leaving]
        staying = [name for name, kept in unused if not kept.leaving and kept.key.pool == key.pool]
        for name in (*leaving, *staying[: max(0, len(staying) - MOST_EARLIER)]):
            self._forget(name)

    def _leave(self, key: FloorKey) -> None:
        for kept in self._kept.values():
            kept.leaving = kept.leaving or key.replaces(kept.key)

    def _forget(self, name: str) -> None:
        del self._kept[name]
        self.client.drop_floor(name)

    def _stop(self, codex: str) -> None:
        warming = self._warming.pop(codex, None)
        if warming is not None:
            warming.task.cancel()

    async def _warm(self, floor: Floor, key: FloorKey) -> bool:
        computed = await self._computed(key.codex, floor)
        if floor.name in self._kept:
            self._tidy(key)
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
        async with aclosing(self.client.run(job)) as events:
            async for event in events:
                if isinstance(event, PrefillProgress):
                    self._report(codex, event.done, event.total)
                elif isinstance(event, Completion):
                    return event
        raise EngineFailed("the engine reported no end of a floor")

    def _report(self, codex: str, done: int, total: int) -> None:
        warming = self._warming.get(codex)
        if warming is not None:
            warming.done, warming.total = done, total
            for report in tuple(warming.listeners):
                report(done, total)
