"""The engine's loop: one writer over all pools.

    restore and admit → plan → compute and sample → send → write behind

It takes messages and posts messages. `planner` decides what to compute, `entry` and `admission` who enters, `step`
computes, `write_behind` saves checkpoints. The loop knows no processes, no sockets, and not what a prompt means.
"""

import logging
from array import array
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress

from orchestrator.engine.backend import Backend, BackendError, Watch
from orchestrator.engine.cache import conservation
from orchestrator.engine.cache.pool import Pool, sequences_of
from orchestrator.engine.cache.tree import Path, deepest
from orchestrator.engine.checkpoints.manager import checkpoint_manager
from orchestrator.engine.checkpoints.store import CheckpointStore
from orchestrator.engine.checkpoints.writer import CheckpointWritten
from orchestrator.engine.costs import Costs, OutOfTime
from orchestrator.engine.messages import (
    Cancel,
    DropFloor,
    EngineSnapshot,
    FromChild,
    Grant,
    InferenceJob,
    Matched,
    Outcome,
    PrefillCost,
    PrefixMatch,
    PutFloor,
    Reason,
    bytes_to_ids,
)
from orchestrator.engine.scheduler import reporting
from orchestrator.engine.scheduler.admission import Admission, FloorIds, Refusal, out_of_range
from orchestrator.engine.scheduler.entry import Entry, Recovery
from orchestrator.engine.scheduler.planner import Limits, Planner, Step, Timing, answered, timing_of
from orchestrator.engine.scheduler.reporting import Counters, Outbox, Post, Reporting, per_token, pictured
from orchestrator.engine.scheduler.speculation import Speculation
from orchestrator.engine.scheduler.step import Stepping
from orchestrator.engine.scheduler.ticket import Phase, TextStream, Ticket
from orchestrator.engine.scheduler.write_behind import WriteBehind

log = logging.getLogger("lorekeep.engine.loop")

Clock = Callable[[], float]


class Loop:
    """`post` takes the messages of one round at once; `clock` gives seconds; without `store` nothing outlives the cells.

    `watch` is entered around each step.
    """

    def __init__(
        self,
        backend: Backend,
        sequences: int,
        limits: Limits,
        post: Post,
        clock: Clock,
        store: CheckpointStore | None = None,
        watch: Watch = nullcontext,
    ) -> None:
        self.backend = backend
        self.checkpoints = checkpoint_manager(backend, store, clock, self._prefill_cost)
        self.counters = Counters()
        self._write_behind = WriteBehind(self.checkpoints, self.counters, self._prefill_cost, clock)
        self._tickets: dict[int, Ticket] = {}
        self.admission = Admission(
            backend,
            sequences_of(backend, sequences, limits.batch),
            self._write_behind.evicting,
            self._write_behind.lost_ms,
            lambda: answered(self._tickets),
            self._prefill_cost,
        )
        self._limits = limits
        self._clock = clock
        self._arrivals = self._moments = 0
        self._outbox = Outbox(post)
        self._speculation = Speculation(self.counters, possible=limits.drafts and backend.info.ranges)
        reporting = Reporting(self.counters, self._say, self._end, clock)
        self._recovery = Recovery(self.admission, self._tickets, reporting)
        self._stepping = Stepping(backend, self._speculation, self._write_behind.floor_computed, reporting, watch)
        self._entry = Entry(
            backend, self.admission, self.checkpoints, self._recovery, self._speculation, self._tickets, reporting
        )
        self._planner = Planner(self.admission, self._speculation, self._tickets, self.costs, reporting)

    # -- what comes in

    def handle(self, message: object) -> None:
        if isinstance(message, InferenceJob):
            self._arrive(message)
        elif isinstance(message, Cancel):
            self._cancel(message.ticket)
        elif isinstance(message, PutFloor):
            self.admission.floors.setdefault(
                message.name, FloorIds(bytes_to_ids(message.ids), message.pool or message.name)
            )
        elif isinstance(message, DropFloor):
            self._drop(message.name)
        elif isinstance(message, Grant):
            self.admission.take(message)
        elif isinstance(message, PrefixMatch):
            self._say(self._matched(message))
            self.flush()  # who asks waits for nothing that this round does
        elif isinstance(message, CheckpointWritten):
            self._write_behind.settle()
        else:
            raise TypeError(f"the loop takes no {type(message).__name__}")

    def _arrive(self, job: InferenceJob) -> None:
        self._arrivals += 1
        ticket = Ticket(job, array("I"), 0, self._arrivals, self._clock())
        self._tickets[job.ticket] = ticket
        try:
            refusal = self._checked(ticket)
        except Exception as fault:  # one job that cannot be checked must not end everybody's answers
            log.warning("job %s cannot be checked", job.ticket, exc_info=True)
            refusal = Refusal(Reason.SAMPLING, f"the job cannot be checked ({type(fault).__name__}: {fault})")
        if refusal:
            self._end(ticket, Outcome.REFUSED, refusal.reason, refusal.detail)

    def _checked(self, ticket: Ticket) -> Refusal | None:
        """Gives the ticket its prompt, and says what is wrong with the job."""
        job = ticket.job
        known = self.admission.floors.get(job.floor)
        floor = known.ids if known else array("I")
        ticket.ids, ticket.cut = floor + bytes_to_ids(job.tail), len(floor)
        ticket.text = TextStream(job.stop)
        if refusal := out_of_range(job) or self.admission.refusal(job):
            return refusal
        return None if ticket.ids else Refusal(Reason.WINDOW, "the prompt is empty")

    def _cancel(self, number: int) -> None:
        if number in self._tickets:
            self._end(self._tickets[number], Outcome.CANCELLED, Reason.CANCELLED)

    def _drop(self, name: str) -> None:
        for ticket in [ticket for ticket in self._tickets.values() if ticket.job.floor == name]:
            self._end(ticket, Outcome.CANCELLED, Reason.DROPPED, "its codex was dropped")
        self._speculation.forget(name)
        floor = self.admission.forget(name)
        if floor is not None and self.checkpoints is not None:
            self.checkpoints.forget_floor(floor.ids, [other.ids for other in self.admission.floors.values()])

    def _matched(self, asked: PrefixMatch) -> Matched:
        floor = self.admission.floors.get(asked.floor)
        ids = floor.ids if floor else array("I")
        path = Path(ids + bytes_to_ids(asked.tail), len(ids), asked.owner)
        pool = self.admission.pools.get(floor.pool) if floor else None
        reuse, length = reporting.foretold(pool, self.checkpoints, path, asked.max_tokens)
        return Matched(asked.call, length, reuse)

    # -- one round

    def busy(self) -> bool:
        return bool(self._tickets)

    def behind(self) -> bool:
        """Whether checkpoints are left to write, or pools to close."""
        return self._write_behind.left() or self.admission.left()

    def close(self) -> None:
        """Saves what is in cells, so that the next process finds it."""
        self._write_behind.close(self.admission.pools.values())

    def round(self) -> None:
        """Restores, admits, computes one step in each pool that has one, sends what is due, and writes checkpoints."""
        timing = self._timing()
        try:
            self._restore_and_admit(timing)
            self._run(self._planner.plan(timing))
        finally:
            self._flush_before(self._clock() if self.busy() else float("inf"))
        self._write_behind.work(timing, alone=not self.busy())

    def _timing(self) -> Timing:
        return timing_of(self._clock, self._limits, self._tickets, self.costs, writing=self._write_behind.left())

    def _restore_and_admit(self, timing: Timing) -> None:
        """Shrinks to the grant, restores prompts and admits tickets, as far as the round has time for it."""
        with self.admission.within(timing.carrying), suppress(OutOfTime):
            self.admission.shrink_to_grant()
            self._entry.admit(timing.entering)

    def _run(self, steps: Sequence[Step]) -> None:
        pools = list(self.admission.pools.values())
        self._flush_before(self._clock() + sum(self._expected(step, pools[step.pool]) for step in steps))
        for step in steps:
            self._run_step(step, pools[step.pool])

    def _run_step(self, step: Step, pool: Pool) -> None:
        answering = [self._tickets[number] for number in step.answering]
        prefill = [(self._tickets[number], tokens) for number, tokens in step.prefill]
        try:
            self._stepping.run(step, pool, answering, prefill)
        except BackendError as error:
            self._recovery.failed(pool, error)
        else:
            self._recovery.succeeded(pool)

    @property
    def costs(self) -> Costs:
        """What steps cost here, as learned so far."""
        return self._stepping.costs

    def _expected(self, step: Step, pool: Pool) -> float:
        return self.costs.milliseconds(step.rows, pool.cells_used()) / 1000

    def _say(self, message: FromChild) -> None:
        self._outbox.put(message, self._clock())

    def _flush_before(self, next_chance: float) -> None:
        """Sends all messages when one of them may not wait until `next_chance`, in seconds of the clock."""
        if self._outbox.due(next_chance):
            self.flush()

    def flush(self) -> None:
        """Sends all messages, those that may wait included."""
        self._outbox.flush()

    # -- endings

    def _end(self, ticket: Ticket, outcome: Outcome, reason: Reason, detail: str = "") -> None:
        """A ticket's one outcome: releases what it held and reports it."""
        ticket.enter(Phase.ENDED)
        del self._tickets[ticket.number]
        if outcome is Outcome.DONE:
            self.counters.answered(ticket)
        if ticket.tip is not None and ticket.pool is not None:
            tip = deepest(ticket.tip)
            ticket.pool.release(ticket.number, ticket.tip)
            self._write_behind.ended(ticket.pool, tip, outcome)
        if ticket.sampler is not None:
            ticket.sampler.close()
        self._say(reporting.completion(ticket, outcome, reason, detail, self._clock()))

    # -- what others may see

    def snapshot(self) -> EngineSnapshot:
        kept = self.checkpoints.store.figures() if self.checkpoints is not None else {}
        figures = {**vars(self.counters), **per_token(self._prefill_cost(), self.admission.pools.values()), **kept}
        return pictured(self.admission, list(self._tickets.values()), figures)

    def _prefill_cost(self) -> PrefillCost:
        return self.costs.prefill(self._limits.batch)

    def check(self) -> None:
        """The laws over all pools, for tests. Raises LawBroken."""
        for pool in self.admission.pools.values():
            conservation.check(pool)

    def audit(self) -> bool:
        """The same in an idle moment: a pool that breaks a law is logged and discarded. Returns whether one did.

        Its content is computed again or restored, so that no answer comes from cells of unknown owner.
        """
        self._moments += 1
        pools = self.admission.pools.items()
        broken = {name: law for name, pool in pools if (law := conservation.broken(pool, self._moments))}
        for name, law in broken.items():
            log.critical("the cells of pool %s are not what they should be (%s): they are given up", name[:12], law)
            self.counters.broken_pools += 1
            self.admission.discard(name)
        return bool(broken)
