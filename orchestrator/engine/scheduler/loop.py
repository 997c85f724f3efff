"""The engine's loop: one writer over all pools.

    restore and admit → plan → compute and sample → send → write behind

It takes messages and posts messages. `admission` decides who enters, `planner` what is computed, `step` computes, `outbox`
sends, `write_behind` saves cells to disk. The loop knows no processes, no sockets, and not what a prompt means.
"""

import logging
from array import array
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from orchestrator.engine.backend import Backend, BackendError, SamplerMade, SchemaRefused, Watch
from orchestrator.engine.cache import conservation
from orchestrator.engine.cache.pools import Pools, sequences_of
from orchestrator.engine.cache.tree import deepest
from orchestrator.engine.checkpoints.file import CheckpointWritten
from orchestrator.engine.checkpoints.pieces import checkpoint_manager
from orchestrator.engine.checkpoints.store import CheckpointStore
from orchestrator.engine.costs import Costs, OutOfTime
from orchestrator.engine.messages import (
    AdoptFiles,
    Cancel,
    DropFloor,
    FilesAdopted,
    FindFloor,
    FloorFound,
    FromChild,
    Grant,
    InferenceJob,
    Inspect,
    MeasureKv,
    Outcome,
    PrefixMatch,
    PutFloor,
    Reason,
    StopMeasuring,
    Urgency,
)
from orchestrator.engine.prefill_cost import PrefillCost
from orchestrator.engine.scheduler.admission import Admission, Refusal, out_of_range
from orchestrator.engine.scheduler.inspection import inspected
from orchestrator.engine.scheduler.kv_measuring import KvMeasuring
from orchestrator.engine.scheduler.outbox import Outbox, Post
from orchestrator.engine.scheduler.planner import Limits, Plan, Timing, planned
from orchestrator.engine.scheduler.step import Speculation, Step, Stepping
from orchestrator.engine.scheduler.ticket import Counters, Phase, Reporting, Ticket, completion, in_order, ticket_of
from orchestrator.engine.scheduler.write_behind import WriteBehind
from orchestrator.engine.snapshot import EngineSnapshot

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
        self.counters = Counters()
        self.costs = Costs()
        self._limits = limits
        self._clock = clock
        self._tickets: dict[int, Ticket] = {}
        self._finding: list[FindFloor] = []
        self._arrivals = self._audits = 0
        self._outbox = Outbox(post)
        self.checkpoints = checkpoint_manager(backend, store, clock, self._prefill_cost)
        self._write_behind = WriteBehind(self.checkpoints, self.counters, self._prefill_cost, clock)
        self.pools = Pools(
            backend,
            sequences_of(backend, sequences, limits.batch),
            self._write_behind.evicting,
            self._write_behind.lost_ms,
            lambda: any(ticket.phase is Phase.ANSWERING for ticket in self._tickets.values()),
            self._prefill_cost,
        )
        reporting = Reporting(self.counters, self._say, self._end, clock)
        self._speculation = Speculation(self.counters, possible=limits.drafts and backend.info.ranges)
        self.admission = Admission(self.pools, self.checkpoints, self._speculation, self._tickets, reporting)
        self._measuring = KvMeasuring(backend, self.pools, self._say, clock)
        self._stepping = Stepping(backend, self._speculation, self._write_behind.remember, reporting, self.costs, watch)

    # -- what comes in

    def handle(self, message: object) -> None:
        if isinstance(message, InferenceJob):
            self._arrive(message)
        elif isinstance(message, Cancel):
            self._cancel(message.ticket)
        elif isinstance(message, PutFloor):
            self.admission.put_floor(message)
        elif isinstance(message, DropFloor):
            self._drop(message.name)
        elif isinstance(message, Grant):
            self._limits = replace(self._limits, prefill_share=message.prefill_share)
            self.pools.apply(message)
        elif isinstance(message, PrefixMatch | Inspect):
            self._say(self._seen(message))
            self.flush()  # who asks waits for nothing that this round does
        elif isinstance(message, CheckpointWritten | FindFloor | AdoptFiles):
            self._of_checkpoints(message)
        elif isinstance(message, SamplerMade):
            self._take_sampler(message)
        elif isinstance(message, MeasureKv | StopMeasuring):
            self._measuring.handle(message)
        else:
            raise TypeError(f"the loop takes no {type(message).__name__}")

    def _arrive(self, job: InferenceJob) -> None:
        self._arrivals += 1
        now = self._clock()
        try:
            ticket = ticket_of(job, self.admission.floor_ids(job.floor), self._arrivals, now)
            refusal = self._refusal(ticket)
        except Exception as fault:  # one job that cannot be checked must not end everybody's answers
            log.warning("job %s cannot be checked", job.ticket, exc_info=True)
            ticket = Ticket(job, array("I"), 0, self._arrivals, now)  # only to be refused
            refusal = Refusal(Reason.SAMPLING, f"the job cannot be checked ({type(fault).__name__}: {fault})")
        self._tickets[job.ticket] = ticket
        if refusal:
            self._end(ticket, Outcome.REFUSED, refusal.reason, refusal.detail)

    def _refusal(self, ticket: Ticket) -> Refusal | None:
        """Why the ticket's job can never run; None when it may wait."""
        if refusal := out_of_range(ticket.job) or self.admission.refusal(ticket.job):
            return refusal
        return None if ticket.ids else Refusal(Reason.WINDOW, "the prompt is empty")

    def _take_sampler(self, made: SamplerMade) -> None:
        ticket = self._tickets.get(made.ticket)
        if isinstance(made.sampler, SchemaRefused):
            if ticket is not None:
                self._end(ticket, Outcome.REFUSED, Reason.SCHEMA, str(made.sampler))
        elif ticket is None:
            made.sampler.close()
        else:
            ticket.sampler, ticket.awaits_sampler = made.sampler, False

    def _cancel(self, number: int) -> None:
        if number in self._tickets:
            self._end(self._tickets[number], Outcome.CANCELLED, Reason.CANCELLED)

    def _drop(self, name: str) -> None:
        for ticket in [ticket for ticket in self._tickets.values() if ticket.job.floor == name]:
            self._end(ticket, Outcome.CANCELLED, Reason.DROPPED, "its codex was dropped")
        self.admission.drop_floor(name)

    def _of_checkpoints(self, message: CheckpointWritten | FindFloor | AdoptFiles) -> None:
        if isinstance(message, FindFloor):
            self._finding.append(message)
        elif isinstance(message, CheckpointWritten):
            self._write_behind.note_written()
        else:
            self._adopt(message)

    def _adopt(self, asked: AdoptFiles) -> None:
        def told(refusal: str) -> None:
            self._say(FilesAdopted(asked.call, refusal))

        if self.checkpoints is None:
            told("no checkpoints are kept")
        else:
            self.checkpoints.store.adopt([Path(one) for one in asked.paths], self._prefill_cost(), told)

    # -- one round

    def busy(self) -> bool:
        """Whether a round may do something for a ticket."""
        return not all(ticket.awaits_sampler for ticket in self._tickets.values())

    def has_idle_work(self) -> bool:
        """Whether checkpoints are left to write, or pools to close, also where there are no tickets."""
        return self._write_behind.left() or self.pools.exceed_grant() or self._measuring.left()

    def close(self) -> None:
        """Saves what is in cells, so that the next process finds it."""
        self._write_behind.close(self.pools.by_name.values())

    def round(self) -> None:
        """Restores, admits, computes one step in each pool that has one, sends what is due, and writes checkpoints."""
        timing = self._timing()
        try:
            self._restore_and_admit(timing)
            self._act(planned(self._tickets, self.pools, self._speculation, timing.limits(), self.costs))
        finally:
            self._flush_before(self._clock() if self.busy() else float("inf"))
        self._write_behind.work(timing, alone=not self.busy())
        self._find_floors()
        self._measure()

    def _find_floors(self) -> None:
        """Answers who asked for the files of a floor that is written by now, or of which no more will be."""
        for asked in tuple(self._finding):
            ids = self.admission.floor_ids(asked.floor)
            found = ([], 0) if self.checkpoints is None else self.checkpoints.floor_files(ids)
            if found is not None:
                self._finding.remove(asked)
                self._say(FloorFound(asked.call, tuple(found[0]), found[1]))

    def _measure(self) -> None:
        """A step of a measurement, where nobody waits for anything else; none at all where somebody waits for its room."""
        if not self._tickets:
            self._measuring.step(self._limits.budget_ms)
        elif any(ticket.phase is Phase.WAITING and not ticket.awaits_sampler for ticket in self._tickets.values()):
            self._measuring.give_way()
        self._flush_before(float("inf"))

    def _timing(self) -> Timing:
        return Timing(self._clock, self._limits, self._tickets, self.costs, writing=self._write_behind.left())

    def _restore_and_admit(self, timing: Timing) -> None:
        """Shrinks to the grant, restores prompts and admits tickets, as far as the round has time for it."""
        with self.pools.within(timing.carrying), suppress(OutOfTime):
            self.pools.shrink_to_grant()
            self.admission.admit(timing.entering)

    def _act(self, plan: Plan) -> None:
        for node, number in plan.claims.items():
            node.computed_by = number
        for ticket in plan.finished:
            self._end(ticket, Outcome.DONE, Reason.PREFILLED)
        for ticket in plan.following:
            self._say(ticket.progress())
        self._run(plan.steps)

    def _run(self, steps: Sequence[Step]) -> None:
        pools = list(self.pools.by_name.values())
        sizes = ((step.rows, pools[step.pool].cells_used(), step.outputs) for step in steps)
        expected_ms = sum(self.costs.milliseconds(*size) for size in sizes)
        self._flush_before(self._clock() + expected_ms / 1000)
        for step in steps:
            pool = pools[step.pool]
            try:
                self._stepping.run(step, pool, self._tickets)
            except BackendError as error:
                self.admission.failed(pool, error)
            else:
                self.admission.succeeded(pool)

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
        # What is computed in advance answers nobody, and what is asked in the background nobody who would be told.
        if outcome is Outcome.DONE and ticket.job.max_tokens and ticket.job.urgency is Urgency.INTERACTIVE:
            self.counters.answered(ticket)
        if ticket.tip is not None and ticket.pool is not None:
            tip = deepest(ticket.tip)
            ticket.pool.release(ticket.number, ticket.tip)
            if outcome in (Outcome.DONE, Outcome.CANCELLED):  # what a fault of the engine left is not trusted
                self._write_behind.remember(ticket.pool, tip)
            if ticket.job.uncached:
                self.pools.discard(ticket.pool.name)
        if ticket.sampler is not None:
            ticket.sampler.close()
        self._say(completion(ticket, outcome, reason, detail, self._clock()))

    # -- what others may see

    def _seen(self, asked: PrefixMatch | Inspect) -> FromChild:
        if isinstance(asked, PrefixMatch):
            return self.admission.match(asked)
        return inspected(asked.call, self._tickets, self.pools.by_name.values(), self._clock())

    def snapshot(self) -> EngineSnapshot:
        phases = [ticket.phase for ticket in self._tickets.values()]
        computing = (one for one in in_order(self._tickets) if one.phase in (Phase.RESTORING, Phase.PREFILL))
        first = next(computing, None)
        pools = self.pools.by_name.values()
        return EngineSnapshot(
            grant=self.pools.grant.number,
            pools=tuple(pool.state() for pool in pools),
            running=len(phases) - phases.count(Phase.WAITING),
            prefills=phases.count(Phase.RESTORING) + phases.count(Phase.PREFILL),
            waiting=phases.count(Phase.WAITING),
            prefilling=first.job.floor if first else "",
            kv_bytes=sum(pool.memory.footprint for pool in pools),
            binds=self.backend.binds,
            steps=self.counters.steps,
            prefill_share=self._limits.prefill_share,
            counters=self._figures(),
            step_times=self._stepping.times,
        )

    def _figures(self) -> dict[str, float]:
        """Counters by name, and the milliseconds of a prompt token in a full step: in the fullest pool, in an empty one,
        and by cell; those of a step of one answer, and whether any were learned."""
        cost, answer = self._prefill_cost(), self.costs.prefill(1, outputs=1)
        cells = max((pool.cells_used() for pool in self.pools.by_name.values()), default=0)
        per_token = {
            "ms_per_token": cost.per_token(cells, cells),
            "ms_per_token_empty": cost.empty,
            "ms_per_token_cell": cost.cell,
            "ms_per_answer_empty": answer.empty,
            "ms_per_answer_cell": answer.cell,
            "costs_known": float(self.costs.known),
        }
        return {**vars(self.counters), **per_token, **(self.checkpoints.store.figures() if self.checkpoints else {})}

    def _prefill_cost(self) -> PrefillCost:
        return self.costs.prefill(self._limits.batch)

    def check(self) -> None:
        """The laws over all pools, for tests. Raises LawBroken."""
        for pool in self.pools.by_name.values():
            conservation.check(pool)

    def audit(self) -> bool:
        """The same in an idle moment: a pool that breaks a law is logged and discarded. Returns whether one did.

        Its content is computed again or restored, so that no answer comes from cells of unknown owner.
        """
        self._audits += 1
        pools = self.pools.by_name.items()
        broken = {name: law for name, pool in pools if (law := conservation.broken(pool, self._audits))}
        for name, law in broken.items():
            log.critical("pool %s is discarded, because its cells break a law: %s", name[:12], law)
            self.counters.broken_pools += 1
            self.pools.discard(name)
        return bool(broken)
