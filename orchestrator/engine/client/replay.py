"""What becomes of tickets and of calls when their child ends. For tickets it decides, and sends nothing.

    a ticket, when the child ends                      becomes
    ------------------------------------------------   ------------------------------
    waits behind suspects: that child never had it     handed in again, as it was
    has told nothing, and is no replay                 handed in again, as a replay
    has told some of its answer, or is a replay        failed

A suspect, a question that is a replay, may be what ends children. The next child gets suspects one by one, so that one
that kills it takes nobody with it; all others wait for them, and go in together. A call fails with its child.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count

from orchestrator.engine.client.supervisor import EngineUnavailable, Supervisor
from orchestrator.engine.messages import InferenceJob, Urgency


@dataclass(frozen=True)
class Flight:
    """A ticket without an outcome. `told`: some of its answer, which cannot begin anew."""

    job: InferenceJob
    told: bool = False


@dataclass(frozen=True)
class AfterEnd:
    """Ticket numbers, but for the jobs that are handed in `again`, as replays."""

    inside: tuple[int, ...]
    failed: tuple[int, ...]
    again: tuple[InferenceJob, ...]


@dataclass(frozen=True)
class Suspects:
    """Those that no child has finished yet, by ticket, in order. The child has the first alone; with none it has all."""

    tickets: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tickets)

    def has_turn(self, ticket: int) -> bool:
        return self.tickets[:1] == (ticket,)

    def after_first(self) -> "Suspects":
        """Once the child has told the end of the first."""
        return Suspects(self.tickets[1:])

    def without(self, ticket: int) -> "Suspects":
        """Once nobody waits for its answer. The first stays until the child has ended it: it may still bring it down."""
        return self if self.has_turn(ticket) else Suspects(tuple(one for one in self.tickets if one != ticket))

    def next_jobs(self, waiting: Mapping[int, InferenceJob]) -> list[InferenceJob]:
        """What the child gets now, of all that have no outcome."""
        return [waiting[self.tickets[0]]] if self.tickets else list(waiting.values())


def suspects_of(jobs: Iterable[InferenceJob]) -> Suspects:
    """For a new child. Not the computing of a floor, which takes minutes that no question may wait for."""
    return Suspects(tuple(job.ticket for job in jobs if job.replay > 0 and job.urgency is Urgency.INTERACTIVE))


def after_end(flights: Iterable[Flight], suspects: Suspects) -> AfterEnd:
    """The table above."""
    inside = [one for one in flights if not suspects or suspects.has_turn(one.job.ticket)]
    failed = [one for one in inside if one.told or one.job.replay]
    return AfterEnd(
        tuple(one.job.ticket for one in inside),
        tuple(one.job.ticket for one in failed),
        tuple(replace(one.job, replay=1) for one in inside if one not in failed),
    )


class Calls:
    """Calls to the child that wait for their answer: a message with a number, one answer with the same."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[object]] = {}

    async def call(self, make: Callable[[int], object]) -> object:
        """Sends what `make` makes of the call's number, and waits for the answer. Raises EngineUnavailable."""
        await self._supervisor.ensure_ready()
        number = next(self._numbers)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            if not self._supervisor.send([make(number)]):
                raise EngineUnavailable(self._supervisor.reason)
            return await future
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
