"""What becomes of tickets when their child ends. Pure.

    when the child ends it                             becomes
    ------------------------------------------------   ------------------------------
    waits behind suspects: that child never had it     handed in again, as it was
    has sent no text, and is no replay                 handed in again, as a replay
    has sent some of its answer, or is a replay        failed, with a retryable error

A suspect, a question that is a replay, may be what ends children. The next child gets suspects one by one, so that one
that kills it takes nobody with it; all others wait for them, and go in together.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from orchestrator.engine.messages import InferenceJob, Urgency


@dataclass(eq=False)
class UnendedTicket:
    """A ticket without an outcome. `begun`: some text of its answer was sent, which cannot begin anew."""

    job: InferenceJob
    begun: bool = False


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
        """Once the child has reported the end of the first."""
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


def after_end(running: Iterable[UnendedTicket], suspects: Suspects) -> AfterEnd:
    """The table above."""
    inside = [one for one in running if not suspects or suspects.has_turn(one.job.ticket)]
    failed = [one for one in inside if one.begun or one.job.replay]
    return AfterEnd(
        tuple(one.job.ticket for one in inside),
        tuple(one.job.ticket for one in failed),
        tuple(replace(one.job, replay=1) for one in inside if one not in failed),
    )
