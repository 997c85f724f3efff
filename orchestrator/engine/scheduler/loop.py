"""The engine's loop: one writer over all pools.

    admit → plan the round → decode → sample → tell

It takes messages and posts messages; what to compute is gathered in `planning`, who comes in in `entry`, what is shared in
`tree`, what follows a failure in `recovery`. It does not know processes, sockets, or what a prompt means.
"""

import logging
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress

from orchestrator.engine.backend import Backend, BackendError
from orchestrator.engine.cache import conservation
from orchestrator.engine.cache.eviction import Price
from orchestrator.engine.cache.pool import Pool, sequences_of
from orchestrator.engine.cache.tree import Path, deepest
from orchestrator.engine.checkpoints.manager import checkpoint_manager
from orchestrator.engine.checkpoints.store import CheckpointStore
from orchestrator.engine.checkpoints.writer import CheckpointWritten
from orchestrator.engine.costs import Costs, OutOfTime, endless
from orchestrator.engine.messages import (
    Cancel,
    DropFloor,
    EngineSnapshot,
    FromChild,
    Grant,
    InferenceJob,
    Matched,
    Outcome,
    PrefixMatch,
    PutFloor,
    Reason,
    bytes_to_ids,
)
from orchestrator.engine.scheduler import reporting
from orchestrator.engine.scheduler.admission import Admission, FloorIds, Refusal, out_of_range
from orchestrator.engine.scheduler.entry import Entry, Recovery
from orchestrator.engine.scheduler.planner import Limits, Planning, Step, Timing, answered, timing_of
from orchestrator.engine.scheduler.reporting import Counters, Outbox, Post, Reporting, per_token, pictured
from orchestrator.engine.scheduler.speculation import Speculation
from orchestrator.engine.scheduler.step import Stepping
from orchestrator.engine.scheduler.ticket import Phase, TextStream, Ticket
from orchestrator.engine.scheduler.write_behind import Behind
from orchestrator.engine.watchdog import Watch, unwatched

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
        watch: Watch = unwatched,
    ) -> None:
        self.backend = backend
        self.keeper = checkpoint_manager(backend, store, clock, self._price)
        self.counters = Counters()
        self._behind = Behind(self.keeper, self.counters, self._price, clock)
        self._tickets: dict[int, Ticket] = {}
        self.admission = Admission(
            backend,
            sequences_of(backend, sequences, limits.batch),
            self._behind.evicting,
            self._behind.lost_ms,
            lambda: answered(self._tickets),
            self._price,
        )
        self._limits = limits
        self._clock = clock
        self._arrivals = self._moments = 0
        self._outbox = Outbox(post)
        self._speculation = Speculation(self.counters, possible=limits.drafts and backend.info.ranges)
        reporting = Reporting(self.counters, self._say, self._end, clock)
        self._recovery = Recovery(self.admission, self._tickets, reporting)
        self._stepping = Stepping(backend, self._speculation, self._behind.floor_stands, reporting, watch)
        self._entry = Entry(
            backend, self.admission, self.keeper, self._recovery, self._speculation, self._tickets, reporting
        )
        self._planning = Planning(self.admission, self._speculation, self._tickets, self.costs, reporting)

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
            self._behind.settle()
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
        if floor is not None and self.keeper is not None:
            self.keeper.forget_floor(floor.ids, [other.ids for other in self.admission.floors.values()])

    def _matched(self, asked: PrefixMatch) -> Matched:
        floor = self.admission.floors.get(asked.floor)
        ids = floor.ids if floor else array("I")
        path = Path(ids + bytes_to_ids(asked.tail), len(ids), asked.owner)
        pool = self.admission.pools.get(floor.pool) if floor else None
        reuse, length = reporting.foretold(pool, self.keeper, path, asked.max_tokens)
        return Matched(asked.call, length, reuse)

    # -- one round

    def busy(self) -> bool:
        return bool(self._tickets)

    def behind(self) -> bool:
        """Whether something is left to be done behind the answers."""
        return self._behind.left() or self.admission.left()

    def close(self) -> None:
        """Keeps what stands, so that the next process finds it."""
        self._behind.close(self.admission.pools.values())

    def round(self) -> None:
        """One step in every pool that has something to do, and all that it made known that may not wait."""
        timing = self._timing()
        try:
            self._carry(timing)
            self._compute(self._planning.steps(timing.limits()))
        finally:
            self._tell(self._clock() if self.busy() else float("inf"))
        if timing.may_write():
            self._behind.work(alone=not self.busy())

    def _timing(self) -> Timing:
        return timing_of(self._clock, self._limits, self._tickets, self.costs, writing=self._behind.left())

    def _compute(self, steps: Sequence[Step]) -> None:
        pools = list(self.admission.pools.values())
        self._tell(self._clock() + sum(self._expected(step, pools[step.pool]) for step in steps))
        for step in steps:
            self._run(step, pools[step.pool])

    def _carry(self, timing: Timing) -> None:
        """What the round has time for of restores, and of what has to go for them; then who can enter does."""
        self.admission.slack = timing.carrying
        with suppress(OutOfTime):
            self.admission.shrink_to_grant()
            self._entry.admit(timing.entering)
        self.admission.slack = endless()  # in a step nothing waits for another round

    def _run(self, step: Step, pool: Pool) -> None:
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

    def _tell(self, next_chance: float) -> None:
        if self._outbox.due(next_chance):
            self.flush()

    def flush(self) -> None:
        """Tells everything, also what may wait."""
        self._outbox.flush()

    # -- endings

    def _end(self, ticket: Ticket, outcome: Outcome, reason: Reason, detail: str = "") -> None:
        """A ticket's one outcome: what it held is given back, and the daemon is told."""
        ticket.enter(Phase.ENDED)
        del self._tickets[ticket.number]
        if outcome is Outcome.DONE:
            self.counters.answered(ticket)
        if ticket.tip is not None and ticket.pool is not None:
            standing = deepest(ticket.tip)
            ticket.pool.release(ticket.number, ticket.tip)
            self._behind.ended(ticket.pool, standing, outcome)
        if ticket.sampler is not None:
            ticket.sampler.close()
        self._say(reporting.completion(ticket, outcome, reason, detail, self._clock()))

    # -- what others may see

    def snapshot(self) -> EngineSnapshot:
        kept = self.keeper.store.figures() if self.keeper is not None else {}
        figures = {**vars(self.counters), **per_token(self._price(), self.admission.pools.values()), **kept}
        return pictured(self.admission, list(self._tickets.values()), figures)

    def _price(self) -> Price:
        return Price(*self.costs.per_token(self._limits.batch))

    def check(self) -> None:
        """The laws over all pools, for tests. Raises LawBroken."""
        for pool in self.admission.pools.values():
            conservation.check(pool)

    def audit(self) -> bool:
        """The same in an idle moment: a pool that breaks a law is told, counted and thrown away. Whether there was one.

        What it held is computed again, or restored: better than an answer from cells of which nobody knows whose they are.
        """
        self._moments += 1
        pools = self.admission.pools.items()
        broken = {name: law for name, pool in pools if (law := conservation.broken(pool, self._moments))}
        for name, law in broken.items():
            log.critical("the cells of pool %s are not what they should be (%s): they are given up", name[:12], law)
            self.counters.broken_pools += 1
            self.admission.discard(name)
        return bool(broken)
