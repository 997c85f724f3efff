"""The engine as the daemon sees it: asynchronous calls, streams of one ticket's messages, and what survives a child.

Floors and the grant are remembered and told again to the next child. A ticket that had sent nothing when its child ended
is handed in again once, alone; one that had, or that sees a second end, fails with a retryable error.
"""

import asyncio
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from orchestrator.engine.embed_client import EmbeddingCalls, Embeddings
from orchestrator.engine.embed_messages import Embedded, EmbedFailed, Holds
from orchestrator.engine.messages import (
    Admitted,
    Cancel,
    Completion,
    Decode,
    Decoded,
    Delta,
    DropFloor,
    Encode,
    Encoded,
    Grant,
    Job,
    Match,
    Matched,
    Outcome,
    Progress,
    PutFloor,
    Reason,
    Shutdown,
    Snapshot,
    Urgency,
)
from orchestrator.engine.model import EngineSpec, ModelInfo
from orchestrator.engine.supervision import ChildState
from orchestrator.engine.supervisor import EngineUnavailable, Supervisor

TicketMessage = Admitted | Progress | Delta | Completion

HEARTBEAT_SECONDS = 15.0
PATIENCE_SECONDS = 60.0


@dataclass(eq=False)
class Running:
    job: Job
    messages: "asyncio.Queue[TicketMessage]" = field(default_factory=asyncio.Queue)
    sent: bool = False
    ended: bool = False


class EngineClient:
    """Owns the supervisor."""

    def __init__(self, spec: EngineSpec) -> None:
        self.snapshot = Snapshot(0)
        self._changed: Callable[[Snapshot], None] = lambda _: None
        self._supervisor = Supervisor(
            spec, hear=self._hear, up=self._retell, ended=self._child_ended, broken=self._gave_up
        )
        self._numbers = count(1)
        self._running: dict[int, Running] = {}
        self._replay: list[Running] = []
        self._calls: dict[int, asyncio.Future[object]] = {}
        self._floors: dict[str, PutFloor] = {}
        self._grant: Grant | None = None
        self.ending = ""  # why it is being stopped
        self._heart: asyncio.Task[None] | None = None
        self._embedding = EmbeddingCalls(spec.embedding, self._call, self._supervisor.send)

    # -- life

    def start(self) -> None:
        self._supervisor.start()
        self._heart = asyncio.create_task(self._heartbeat(), name="engine heartbeat")

    async def stop(self, why: str = "the daemon is stopping") -> None:
        """Ends the child; whatever runs is cancelled, and told why."""
        self.ending = why
        if self._heart:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)
        self._supervisor.send([Shutdown()])
        await self._supervisor.stop()
        self._fail_calls("the engine is stopped")
        for running in list(self._running.values()):
            self._finish(running, Outcome.CANCELLED, Reason.CANCELLED, why)

    def on_snapshot(self, changed: Callable[[Snapshot], None]) -> None:
        """From now on `changed` is called with every new picture of the engine."""
        self._changed = changed

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
    def restarts(self) -> int:
        return self._supervisor.restarts

    @property
    def pid(self) -> int | None:
        return self._supervisor.pid

    # -- what the child should know

    def grant(self, grant: Grant) -> None:
        self._grant = grant
        self._supervisor.send([grant])

    def put_floor(self, name: str, ids: bytes, pool: str = "") -> None:
        """Tells a floor's ids once; a name that is known keeps the pool it was first put in."""
        if name not in self._floors:
            self._floors[name] = PutFloor(name, ids, pool)
            self._supervisor.send([self._floors[name]])

    def drop_floor(self, name: str) -> None:
        if self._floors.pop(name, None):
            self._supervisor.send([DropFloor(name)])

    # -- calls

    async def encode(self, texts: Sequence[str], *, control: bool = False) -> list["array[int]"]:
        answer = await self._call(lambda call: Encode(call, tuple(texts), control))
        assert isinstance(answer, Encoded)
        return [as_array(ids) for ids in answer.ids]

    async def decode(self, ids: bytes) -> str:
        answer = await self._call(lambda call: Decode(call, ids))
        assert isinstance(answer, Decoded)
        return answer.text

    async def match(self, floor: str, tail: bytes, owner: int) -> Matched:
        answer = await self._call(lambda call: Match(call, floor, tail, owner))
        assert isinstance(answer, Matched)
        return answer

    async def embed(
        self, texts: Sequence[str], urgency: Urgency = Urgency.INTERACTIVE, *, whole: bool = False
    ) -> Embeddings:
        """`whole`: texts beyond the model's window are read in pieces, else their beginnings.

        Raises EngineUnavailable where asking again may help, EmbeddingRefused where not.
        """
        return await self._embedding.embed(texts, urgency, whole=whole)

    def rest_embedding(self, why: str) -> None:
        """Frees the embedding model's memory until it is called with '' ; whoever asks it meanwhile is told why."""
        self._embedding.rest(why)

    @property
    def embedding_resting(self) -> str:
        """Why it is kept out of the memory, '' where it is not."""
        return self._embedding.resting

    @property
    def embedding_bytes(self) -> int:
        """Of its weights in memory now."""
        return self._embedding.holds

    async def _call(self, make: Callable[[int], object]) -> object:
        await self.ensure_ready()
        number = next(self._numbers)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        try:
            if not self._supervisor.send([make(number)]):
                raise EngineUnavailable(self.reason)
            return await future
        finally:
            self._calls.pop(number, None)

    # -- tickets

    async def run(self, job: Job) -> AsyncGenerator[TicketMessage]:
        """One ticket's messages; the last is its Completion. Closing the iterator early cancels it within one step.

        Raises EngineUnavailable when no child will take it.
        """
        if self.state in (ChildState.BROKEN, ChildState.STOPPED):
            raise EngineUnavailable(self.reason, broken=self.state is ChildState.BROKEN)
        running = Running(replace(job, ticket=next(self._numbers)))
        self._running[running.job.ticket] = running
        if not self._replay:
            self._supervisor.send([running.job])  # with no child up, it is handed in when one is
        try:
            while True:
                message = await running.messages.get()
                yield message
                if isinstance(message, Completion):
                    return
        finally:
            if not running.ended:
                self._supervisor.send([Cancel(running.job.ticket)])
                self._running.pop(running.job.ticket, None)

    def _hear(self, message: object) -> None:
        if isinstance(message, Snapshot):
            self.snapshot = message
            self._changed(message)
        elif isinstance(message, Holds):
            self._embedding.holds = message.weights
            self._changed(self.snapshot)
        elif isinstance(message, Encoded | Decoded | Matched | Embedded | EmbedFailed):
            future = self._calls.get(message.call)
            if future and not future.done():
                future.set_result(message)
        elif isinstance(message, Admitted | Progress | Delta | Completion):
            self._tell(message)

    def _tell(self, message: TicketMessage) -> None:
        running = self._running.get(message.ticket)
        if running is None:
            return
        running.sent = running.sent or isinstance(message, Delta)
        running.messages.put_nowait(message)
        if isinstance(message, Completion):
            running.ended = True
            del self._running[message.ticket]
            self._next_replay(running)

    # -- when a child ends

    def _retell(self) -> None:
        known = [*([self._grant] if self._grant else []), *self._floors.values()]
        self._supervisor.send(known)
        self._replay = [running for running in self._running.values() if is_suspect(running.job)]
        self._go_on()

    def _next_replay(self, ended: Running) -> None:
        """Replays go in one by one, so that a ticket that kills the child takes nobody with it."""
        if ended not in self._replay:
            return
        self._replay.remove(ended)
        self._go_on()

    def _go_on(self) -> None:
        """Hands in the next replay, or, when there is none left, everything that waited for them."""
        jobs = [self._replay[0].job] if self._replay else [running.job for running in self._running.values()]
        self._supervisor.send(jobs)

    def _child_ended(self, how: str) -> list[int]:
        self.snapshot, self._embedding.holds = Snapshot(0), 0
        self._fail_calls(f"the engine ended ({how})")
        were_running = [r for r in self._running.values() if not self._replay or r is self._replay[0]]
        for running in were_running:
            if running.sent or running.job.replay:
                self._finish(running, Outcome.FAILED, Reason.ENGINE, f"the engine ended ({how}); ask again")
            else:
                running.job = replace(running.job, replay=1)
        self._replay = []
        return [running.job.ticket for running in were_running]

    def _gave_up(self, why: str) -> None:
        for running in list(self._running.values()):
            self._finish(running, Outcome.FAILED, Reason.ENGINE, why)

    def _finish(self, running: Running, outcome: Outcome, reason: Reason, detail: str) -> None:
        self._running.pop(running.job.ticket, None)
        running.ended = True
        running.messages.put_nowait(Completion(running.job.ticket, outcome, reason, detail))

    def _fail_calls(self, why: str) -> None:
        for future in self._calls.values():
            if not future.done():
                future.set_exception(EngineUnavailable(why))

    async def _heartbeat(self) -> None:
        """A child that is alive but answers nothing (stopped, swapped out) is ended, so that the next can serve."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if self.state is ChildState.READY:
                try:
                    await asyncio.wait_for(self.encode(()), PATIENCE_SECONDS)
                except TimeoutError:
                    self._supervisor.kill()
                except EngineUnavailable:
                    continue


def is_suspect(job: Job) -> bool:
    """Whether a job is replayed alone: not the computing of a floor, which takes minutes that no question may wait for."""
    return job.replay > 0 and job.urgency is Urgency.INTERACTIVE


def as_array(ids: bytes) -> "array[int]":
    out = array("I")
    out.frombytes(ids)
    return out
