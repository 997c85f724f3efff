"""The engine as the daemon sees it: asynchronous calls, streams of one ticket's messages, and what survives a child.

Floors, the grant and what is prepared are sent again to the next child. A call fails with its child. `replay`
says what becomes of tickets. Where a child ends because the memory is given away (`pause`), answers that have begun end or
fail, and all others are handed in to the next child as they were.
"""

import asyncio
import logging
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from orchestrator.engine.calling import ToolRules
from orchestrator.engine.client.embedding import EmbeddingCalls, Embeddings
from orchestrator.engine.client.replay import Suspects, UnendedTicket, after_end, suspects_of
from orchestrator.engine.client.supervisor import ChildState, EngineUnavailable, Supervisor
from orchestrator.engine.embedding.port import EmbeddedTexts, EmbedFailed, Holds
from orchestrator.engine.messages import (
    Admitted,
    AdoptFiles,
    AnswerDelta,
    CallFailed,
    Cancel,
    Completion,
    Decode,
    DecodedText,
    DropFloor,
    Encode,
    Encoded,
    FilesAdopted,
    FindFloor,
    FloorFound,
    Grant,
    InferenceJob,
    Inspect,
    KvMeasured,
    Matched,
    MeasureKv,
    Outcome,
    PrefillProgress,
    PrefixMatch,
    Prepare,
    PutFloor,
    Reason,
    Sampling,
    StopMeasuring,
    Urgency,
    bytes_to_ids,
)
from orchestrator.engine.model import EngineSpec, ModelInfo
from orchestrator.engine.snapshot import EngineSnapshot, Inspected

TicketMessage = Admitted | PrefillProgress | AnswerDelta | Completion

ANSWERS = (
    Encoded,
    DecodedText,
    CallFailed,
    Matched,
    Inspected,
    FloorFound,
    FilesAdopted,
    EmbeddedTexts,
    EmbedFailed,
)
log = logging.getLogger("lorekeep.engine")

HEARTBEAT_SECONDS = 15.0
PATIENCE_SECONDS = 60.0


@dataclass(eq=False)
class Running(UnendedTicket):
    """`messages`: those that nobody has read."""

    messages: "asyncio.Queue[TicketMessage]" = field(default_factory=asyncio.Queue)


class EngineClient:
    """Owns the supervisor."""

    def __init__(self, spec: EngineSpec) -> None:
        self.snapshot = EngineSnapshot(0)
        self._fresh = asyncio.Event()
        self._less = asyncio.Event()  # something that ran has ended
        self._supervisor = Supervisor(
            spec,
            hear=self._hear,
            born=self._fresh.set,
            up=self._child_ready,
            ended=self._child_ended,
            broken=self._gave_up,
        )
        self._calls = Calls(self._supervisor)
        self._tickets = count(1)
        self._running: dict[int, Running] = {}
        self._measured: dict[int, asyncio.Queue[KvMeasured | None]] = {}
        self._suspects = Suspects()
        self._floors: dict[str, PutFloor] = {}
        self._grant: Grant | None = None
        self._prepared: Prepare | None = None
        self._asked = ""  # the floor of the last answer
        self._returns = False  # the next child is the one after a pause
        self.ending = ""  # why it is being stopped
        self._heart: asyncio.Task[None] | None = None
        self.embedding = EmbeddingCalls(spec.embedding, self._calls.call, self._supervisor.send)

    # -- life

    def start(self, paused: str = "") -> None:
        """Once: does nothing where it was started. With a reason it begins paused, without a child."""
        if self._heart is not None:
            return
        self._supervisor.start(paused)
        self._heart = asyncio.create_task(self._heartbeat(), name="engine heartbeat")

    async def stop(self, why: str = "the daemon is stopping") -> None:
        """Ends the child; whatever runs is cancelled, with the reason."""
        self.ending = why
        if self._heart:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)
        await self._supervisor.stop()
        self._calls.fail("the engine is stopped")
        self._finish(tuple(self._running), Outcome.CANCELLED, Reason.CANCELLED, why)

    async def pause(self, why: str, grace_s: float) -> None:
        """Returns when the child has written what it holds and is gone: nothing of the memory is ours.

        Answers that have begun may go on for so long. Who has begun nothing waits for `resume`, as who asks meanwhile does.
        """
        await self._supervisor.pause(why, partial(self._drained, grace_s, why))
        self._emptied(why)

    def paused_for(self, why: str) -> None:
        """Another reason of the pause."""
        if self.state is ChildState.PAUSED:
            self._supervisor.reason = why

    def resume(self) -> None:
        """Starts a child after a pause; it restores or computes the floor that was asked on last, before anybody asks."""
        self._returns = True
        self._supervisor.start()

    def place(self, gpu_layers: int) -> None:
        """So many layers go on the GPU in the next child."""
        self._supervisor.spec = replace(self._supervisor.spec, gpu_layers=gpu_layers)

    async def next_snapshot(self) -> EngineSnapshot:
        """The newest snapshot, once something has changed since the last call. For one caller."""
        await self._fresh.wait()
        self._fresh.clear()
        return self.snapshot

    async def ensure_ready(self) -> ModelInfo:
        """Raises EngineUnavailable when the model cannot be loaded or keeps ending."""
        return await self._supervisor.ensure_ready()

    @property
    def info(self) -> ModelInfo | None:
        return self._supervisor.info

    @property
    def state(self) -> ChildState:
        return self._supervisor.state

    @property
    def reason(self) -> str:
        return self._supervisor.reason

    @property
    def busy(self) -> bool:
        """Whether anybody waits for anything, a floor that is computed in advance included."""
        return bool(self._running or self._calls.waiting or self._measured)

    @property
    def loaded(self) -> float:
        """How much of the model is loaded, from 0 to 1, while it is loading."""
        return self._supervisor.loaded

    @property
    def spec(self) -> EngineSpec:
        """How the next child is started."""
        return self._supervisor.spec

    @property
    def restarts(self) -> int:
        return self._supervisor.restarts

    @property
    def pid(self) -> int | None:
        return self._supervisor.pid

    # -- what each child is sent

    def grant(self, grant: Grant) -> None:
        self._grant = grant
        self._supervisor.send([grant])

    def put_floor(self, name: str, ids: bytes, pool: str = "") -> None:
        """Sends a floor's ids once; a name that is known keeps the pool it was first put in."""
        if name not in self._floors:
            self._floors[name] = PutFloor(name, ids, pool)
            self._supervisor.send([self._floors[name]])

    def drop_floor(self, name: str) -> None:
        if self._floors.pop(name, None):
            self._supervisor.send([DropFloor(name)])

    def prepare(self, rules: ToolRules) -> None:
        """The first answer under these rules is not to wait until they are compiled."""
        self._prepared = Prepare(Sampling(calls=rules))
        self._supervisor.send([self._prepared])

    # -- calls

    async def encode(self, texts: Sequence[str], *, control: bool = False) -> list["array[int]"]:
        answer = await self._calls.call(lambda call: Encode(call, tuple(texts), control))
        assert isinstance(answer, Encoded)
        return [bytes_to_ids(ids) for ids in answer.ids]

    async def decode(self, ids: bytes) -> str:
        answer = await self._calls.call(lambda call: Decode(call, ids))
        assert isinstance(answer, DecodedText)
        return answer.text

    async def match(self, floor: str, tail: bytes, owner: int, max_tokens: int = 0) -> Matched:
        """What a job would find in the cache now. With an answer wanted the prompt's last token is computed in any case."""
        answer = await self._calls.call(lambda call: PrefixMatch(call, floor, tail, owner, max_tokens))
        assert isinstance(answer, Matched)
        return answer

    async def inspect(self) -> Inspected | None:
        """What the engine works at and what its caches hold; None where no child is ready.

        Raises EngineUnavailable where it ends meanwhile."""
        if self.state is not ChildState.READY:
            return None
        answer = await self._calls.call(Inspect)
        assert isinstance(answer, Inspected)
        return answer

    async def find_floor(self, name: str) -> FloorFound:
        """The files of a floor that was put, once all that is in cells of it is written, as far as it can be."""
        answer = await self._calls.call(lambda call: FindFloor(call, name))
        assert isinstance(answer, FloorFound)
        return answer

    async def adopt(self, paths: Sequence[str]) -> str:
        """Checkpoints that were checked, beside their places, are found by prompts from now on; else why they are not."""
        answer = await self._calls.call(lambda call: AdoptFiles(call, tuple(paths)))
        assert isinstance(answer, FilesAdopted)
        return answer.refusal

    async def embed(
        self, texts: Sequence[str], urgency: Urgency = Urgency.INTERACTIVE, *, whole: bool = False
    ) -> Embeddings:
        """`whole`: texts beyond the model's window are read in pieces, else their beginnings.

        Raises EngineUnavailable where asking again may help, EmbeddingRefused where not.
        """
        return await self.embedding.embed(texts, urgency, whole=whole)

    async def measure_kv(self, ids: bytes, kind: str) -> AsyncGenerator[KvMeasured]:
        """How far a measurement of this type of KV is; the last has what was found, or a refusal. Closing it early ends it.

        Raises EngineUnavailable, also where the child ends meanwhile.
        """
        await self.ensure_ready()
        number = next(self._tickets)
        told = self._measured[number] = asyncio.Queue()
        self._supervisor.send([MeasureKv(number, ids, kind)])
        try:
            while (found := await told.get()) is not None:
                yield found
                if found.change is not None or found.refusal:
                    return
            raise EngineUnavailable("the engine ended while it measured")
        finally:
            del self._measured[number]
            self._supervisor.send([StopMeasuring(number)])

    # -- tickets

    async def run(self, job: InferenceJob) -> AsyncGenerator[TicketMessage]:
        """One ticket's messages; the last is its Completion. Closing the iterator early cancels it within one step.

        Raises EngineUnavailable when no child will take it.
        """
        if self.state in (ChildState.BROKEN, ChildState.STOPPED):
            raise EngineUnavailable(self.reason, broken=self.state is ChildState.BROKEN)
        ticket = next(self._tickets)
        running = self._running[ticket] = Running(replace(job, ticket=ticket))
        if not self._suspects:
            self._supervisor.send([running.job])  # with no child up, it is handed in when one is
        try:
            while True:
                message = await running.messages.get()
                yield message
                if isinstance(message, Completion):
                    return
        finally:
            if self._running.pop(ticket, None):
                self._less.set()
                self._suspects = self._suspects.without(ticket)
                self._supervisor.send([Cancel(ticket)])

    def _hear(self, message: object) -> None:
        if isinstance(message, EngineSnapshot):
            self.snapshot = message
            self._fresh.set()
        elif isinstance(message, Holds):
            self.embedding.holds = message.weights
            self._fresh.set()
        elif isinstance(message, ANSWERS):
            self._calls.answered(message.call, message)
            self._less.set()
        elif isinstance(message, KvMeasured):
            if (told := self._measured.get(message.call)) is not None:
                told.put_nowait(message)
        elif isinstance(message, Admitted | PrefillProgress | AnswerDelta | Completion):
            self._deliver(message)

    def _deliver(self, message: TicketMessage) -> None:
        if running := self._running.get(message.ticket):
            if _lacks_floor(message) and running.job.floor not in self._floors:  # it was dropped before the job arrived
                message = Completion(message.ticket, Outcome.CANCELLED, Reason.DROPPED, "its codex was dropped")
            running.begun |= isinstance(message, AnswerDelta)
            self._asked = running.job.floor if running.begun else self._asked
            running.messages.put_nowait(message)
        if isinstance(message, Completion):
            self._running.pop(message.ticket, None)
            self._less.set()
            if self._suspects.has_turn(message.ticket):
                self._suspects = self._suspects.after_first()
                self._hand_in()

    # -- when a child ends

    def _child_ready(self) -> None:
        known = [*filter(None, [self._grant, self._prepared]), *self._floors.values()]
        self._supervisor.send(known)
        self._suspects = suspects_of(self._jobs().values())
        self._hand_in()
        if self._returns and self._asked in self._floors:
            job = InferenceJob(next(self._tickets), self._asked, b"", owner=0, max_tokens=0, urgency=Urgency.BACKGROUND)
            self._supervisor.send([job])
        self._returns = False

    def _hand_in(self) -> None:
        self._supervisor.send(self._suspects.next_jobs(self._jobs()))

    def _jobs(self) -> dict[int, InferenceJob]:
        return {ticket: running.job for ticket, running in self._running.items()}

    def _child_ended(self, how: str) -> Sequence[int]:
        decided = after_end(self._running.values(), self._suspects)
        self._emptied(f"the engine ended ({how})")
        for job in decided.again:
            self._running[job.ticket].job = job
        self._finish(decided.failed, Outcome.FAILED, Reason.ENGINE, f"the engine ended ({how})")
        self._less.set()
        return decided.inside

    def _emptied(self, why: str) -> None:
        """There is no child: what only one child knows is over."""
        self.snapshot, self.embedding.holds, self._suspects = EngineSnapshot(0), 0, Suspects()
        self._calls.fail(why)
        for told in self._measured.values():
            told.put_nowait(None)
        self._fresh.set()

    async def _drained(self, seconds: float, why: str) -> None:
        """Answers that have begun, and calls, end by themselves, or after so long with a retryable fault."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._calls.waiting or self._begun():
                    self._less.clear()
                    await self._less.wait()
        self._finish(self._begun(), Outcome.FAILED, Reason.ENGINE, f"the answer was cut off: {why}")

    def _begun(self) -> tuple[int, ...]:
        return tuple(ticket for ticket, running in self._running.items() if running.begun)

    def _gave_up(self, why: str) -> None:
        self._finish(tuple(self._running), Outcome.FAILED, Reason.ENGINE, why)

    def _finish(self, tickets: Sequence[int], outcome: Outcome, reason: Reason, detail: str) -> None:
        for ticket in tickets:
            self._running.pop(ticket).messages.put_nowait(Completion(ticket, outcome, reason, detail))

    async def _heartbeat(self) -> None:
        """A child that is alive but answers nothing (stopped, swapped out) is ended, so that the next can serve."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if self.state is ChildState.READY:
                try:
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        await self.encode(())
                except TimeoutError:
                    log.warning("the engine's process answered nothing for %.0f s and is ended", PATIENCE_SECONDS)
                    self._supervisor.kill()
                except EngineUnavailable:
                    continue


class Calls:
    """Calls to the child that wait for their answer: a message with a number, one answer with the same."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[object]] = {}

    @property
    def waiting(self) -> int:
        """How many the child has and has not answered."""
        return len(self._waiting)

    async def call(self, make: Callable[[int], object]) -> object:
        """Sends what `make` makes of the call's number, and waits for the answer. Raises EngineUnavailable."""
        await self._supervisor.ensure_ready()
        number = next(self._numbers)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            if not self._supervisor.send([make(number)]):
                raise EngineUnavailable(self._supervisor.reason)
            answer = await future
            if isinstance(answer, CallFailed):
                raise EngineUnavailable(answer.reason)
            return answer
        finally:
            self._waiting.pop(number, None)

    def answered(self, number: int, answer: object) -> None:
        future = self._waiting.get(number)
        if future and not future.done():
            future.set_result(answer)

    def fail(self, why: str) -> None:
        """All that wait raise EngineUnavailable."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EngineUnavailable(why))


def _lacks_floor(message: TicketMessage) -> bool:
    return isinstance(message, Completion) and message.reason is Reason.UNKNOWN_FLOOR
