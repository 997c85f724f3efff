"""Next floors of codices, made in the background: applies the effects that `transitions` decides on.

Each step is a task, and its end is an event. One event loop calls all of it. Knows neither disk nor engine: the work of the
steps is handed in.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from codex.errors import CodexError
from orchestrator.codices.transitions import (
    RESTING,
    BeginStep,
    CancelStep,
    CodexFacts,
    DueFloor,
    Event,
    IdentityChanged,
    QuestionBegan,
    QuietBegan,
    StepEnded,
    SuccessorPhase,
    TableState,
    WaitedLong,
    decide,
)
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.errors import EngineFailed, LoadInProgress, LoreError, NotReady

log = logging.getLogger("lorekeep.codices")

IDLE_S = 3.0  # nothing asked for this long: whoever reads an answer is likely to ask again
LOOK_S = 1.0  # between two looks whether an identity has changed, where nobody asks
LONG_S = 30.0  # that a floor waits for nobody to ask; then it is made beside answers
AGAIN_S = 1.0  # after an attempt that the engine's end, another load, or memory that cannot be planned has ended
PATIENCE_S = 60.0  # that a question waits for such a one: the model is loaded again in that time
PASSING = (EngineUnavailable, EngineFailed, NotReady, LoadInProgress)
Made = TypeVar("Made")


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

    @contextmanager
    def running(self) -> Iterator[None]:
        """One runs until the block ends."""
        self.count(1)
        try:
            yield
        finally:
            self.count(-1)

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


class FloorWork(Protocol[Made]):
    """What the steps do. `prepare` builds what the next floor holds and changes nothing that serves; `compute` computes
    it and may be cancelled; `commit` has the codex served on it. `engine` returns when floors can be computed, and raises
    EngineUnavailable where they never will. `facts` is what is due now, by codex."""

    def facts(self) -> Mapping[str, CodexFacts]: ...

    async def prepare(self, name: str, due: DueFloor) -> Made: ...

    async def compute(self, made: Made) -> Made: ...

    async def commit(self, made: Made) -> None: ...

    async def engine(self) -> None: ...


class Successors(Generic[Made]):
    """`questions` says when somebody asks and when nobody has for long enough."""

    def __init__(
        self,
        work: FloorWork[Made],
        questions: Questions,
        idle_s: float = IDLE_S,
        again_s: float = AGAIN_S,
        patience_s: float = PATIENCE_S,
        long_s: float = LONG_S,
    ) -> None:
        self._work = work
        self._questions = questions
        self._idle_s = idle_s
        self._again_s = again_s
        self._patience_s = patience_s
        self._long_s = long_s
        self._state = TableState()
        self._made: dict[str, Made] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._looking: list[asyncio.Task[None]] = []
        self._waiting: dict[str, asyncio.TimerHandle] = {}  # of each whose next floor is on its way
        self._moved = asyncio.Event()

    # -- what happens

    def start(self) -> None:
        """From now on idle moments and changed identities are noticed."""
        if not self._looking:
            self._looking = [
                asyncio.create_task(self._listen(), name="idle moments"),
                asyncio.create_task(self._look(), name="identities"),
            ]

    def report(self, event: Event) -> None:
        """An event: what follows from it begins."""
        before = self._state
        self._state, effects = decide(before, event)
        log_changes(before, self._state)
        for effect in effects:
            task = self._tasks.get(effect.name)
            if isinstance(effect, BeginStep):
                step = self._step(effect, task)
                self._tasks[effect.name] = asyncio.create_task(step, name=f"next floor of {effect.name}")
            elif isinstance(effect, CancelStep) and task is not None:
                task.cancel()
        self._time_waits()
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _time_waits(self) -> None:
        for name in self._waiting.keys() - {one for one in self._state.codices if self.under_way(one)}:
            self._waiting.pop(name).cancel()
        for name in self._state.codices:
            if self.under_way(name) and name not in self._waiting:
                later = asyncio.get_running_loop().call_later
                self._waiting[name] = later(self._long_s, self.report, WaitedLong(name))

    async def cancelled(self, name: str) -> None:
        """Returns when nothing runs any more of what was cancelled."""
        task = self._tasks.get(name)
        if task is not None and not self.under_way(name):
            await asyncio.gather(task, return_exceptions=True)

    async def stop(self) -> None:
        tasks = [*self._looking, *self._tasks.values()]
        self._looking, self._tasks = [], {}
        for timer in self._waiting.values():
            timer.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- how far it is

    def under_way(self, name: str) -> bool:
        """Whether a next floor waits for its moment or is being made."""
        return self._state.of(name).phase is not RESTING

    def due(self, name: str) -> DueFloor:
        """What was due of a codex by the last event."""
        return self._state.of(name).facts.due

    def fault(self, name: str) -> str:
        """Why the last step failed; '' where none did. One that is under way is about to be tried again."""
        return self._state.of(name).fault

    async def ended(self, name: str) -> None:
        """Returns when none of this codex is under way, or one was hindered for as long as anybody should wait."""
        waited = 0.0
        while self.under_way(name) and waited < self._patience_s:
            began = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(self._patience_s - waited):
                    await self._moved.wait()
            except TimeoutError:
                pass
            passed = asyncio.get_running_loop().time() - began
            waited = waited + passed if self.fault(name) else 0.0

    # -- steps

    async def _step(self, step: BeginStep, before: asyncio.Task[None] | None) -> None:
        """Done once the step before has ended: the one that led to it, or one that was cancelled."""
        if before is not None:
            await asyncio.wait([before])
        name, attempt = step.name, step.attempt
        try:
            await self._work_of(step)
        except (CodexError, LoreError, EngineUnavailable) as fault:
            self.report(StepEnded(name, attempt, str(fault) or type(fault).__name__, isinstance(fault, PASSING)))
        except Exception as fault:  # of ours: the codex goes on being served, and is not called busy for ever
            log.error("the next floor of %s was not made", name, exc_info=fault)
            self.report(StepEnded(name, attempt, f"{type(fault).__name__}: {fault}"))
        else:
            self.report(StepEnded(name, attempt, facts=self._work.facts().get(name, CodexFacts())))

    async def _work_of(self, step: BeginStep) -> None:
        name = step.name
        match step.phase:
            case SuccessorPhase.PREPARING:
                self._made[name] = await self._work.prepare(name, step.due)
            case SuccessorPhase.COMPUTING:
                self._made[name] = await self._work.compute(self._made[name])
            case SuccessorPhase.COMMITTING:
                await self._work.commit(self._made.pop(name))
            case SuccessorPhase.STALLED:
                await self._work.engine()
                await asyncio.sleep(self._again_s)

    # -- what nobody reports

    async def _listen(self) -> None:
        while True:
            await self._questions.idle(self._idle_s)
            self.report(QuietBegan())
            await self._questions.asked()
            self.report(QuestionBegan())

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.report(IdentityChanged(self._work.facts()))


def log_changes(before: TableState, after: TableState) -> None:
    for name, codex in after.codices.items():
        was, due = before.of(name), codex.facts.due
        if was.phase is RESTING and codex.phase is not RESTING:
            what = "coverage" if due.coverage else "generation" if due.files else "identity"
            log.info("codex %s gets a new %s%s: %s", name, what, "" if due.urgent else " when idle", due.reason)
        if codex.fault and codex.fault != was.fault:
            if codex.phase is not RESTING:
                log.info("codex %s: its new floor is tried again: %s", name, codex.fault)
            else:
                log.warning("codex %s stays as it is: %s", name, codex.fault)
