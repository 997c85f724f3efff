"""How a waiting ticket enters a pool, and what follows when llama.cpp fails in one.

    refused? ─▶ sampler ─▶ pool ─▶ cells reserved ─▶ checkpoints of the prompt restored ─▶ the rest computed

The first ticket in line enters or waits for room; nobody overtakes it. Interactive tickets stand before background ones,
older before younger. A prompt that is restored piece by piece has its cells already and holds up nobody else. Memories
that cannot be cut restore before they enter, at once.

    failure ─▶ the context is freed, its KV is lost ─▶ tickets that had begun to answer fail, the others wait again
       │
       ├─ again, before a step of that pool succeeded:  a ticket that was there before fails; it then was alone in it
       └─ and again, or with nobody who was there before: the error is raised, which ends the process

A new context helps where a ticket or a context was at fault; where neither was, only a new process may help. A ticket that
waits again enters alone, so that it fails no other ticket twice. Floors computed in the background do not enter alone,
because no question may wait for them.
"""

import logging
from collections.abc import Mapping
from functools import partial

from orchestrator.engine.backend import Backend, BackendError, SchemaRefused
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.tree import Node
from orchestrator.engine.checkpoints.manager import CheckpointManager
from orchestrator.engine.costs import OutOfTime, TimeBudget
from orchestrator.engine.messages import Admitted, Outcome, Reason, Urgency
from orchestrator.engine.scheduler import reporting
from orchestrator.engine.scheduler.admission import Admission
from orchestrator.engine.scheduler.reporting import Reporting
from orchestrator.engine.scheduler.speculation import Speculation
from orchestrator.engine.scheduler.ticket import Due, Phase, Ticket, claim, restored_by_another

MOST_IN_A_ROW = 2  # failures of one pool
log = logging.getLogger("lorekeep.engine")


class Recovery:
    """`tickets` are all there are, by number."""

    def __init__(self, admission: Admission, tickets: Mapping[int, Ticket], reporting: Reporting) -> None:
        self._admission = admission
        self._tickets = tickets
        self._reporting = reporting
        self._in_a_row: dict[str, int] = {}

    def succeeded(self, pool: Pool) -> None:
        self._in_a_row.pop(pool.name, None)

    def failed(self, pool: Pool, error: BackendError) -> None:
        """Gives the pool up; it is opened anew when somebody enters it. Raises the error where that will not help."""
        inside = [ticket for ticket in self._tickets.values() if ticket.pool is pool]
        row = self._in_a_row[pool.name] = self._in_a_row.get(pool.name, 0) + 1
        if row > MOST_IN_A_ROW or (row == MOST_IN_A_ROW and not any(ticket.suspect for ticket in inside)):
            raise error
        log.error("pool %s failed and is opened anew, %d tickets were in it: %s", pool.name, len(inside), error)
        self._reporting.counters.pool_failures += 1
        self._admission.discard(pool.name)
        for ticket in inside:
            ticket.pool = ticket.tip = None
            if ticket.generated or ticket.suspect:
                self._reporting.end(ticket, Outcome.FAILED, Reason.ENGINE, f"the engine failed ({error})")
            else:
                ticket.wait_again()

    def unopened(self, name: str, error: BackendError) -> None:
        """No context could be made for a ticket: its own fault, unless one that had failed is to be replaced."""
        if name in self._in_a_row:
            raise error
        log.error("pool %s could not be opened: %s", name, error)

    def free_for(self, ticket: Ticket, pool: Pool) -> bool:
        """Whether the ticket may enter now: one that saw a failure enters alone."""
        if alone(ticket):
            return pool.idle()
        return not any(other.pool is pool and alone(other) for other in self._tickets.values())


def alone(ticket: Ticket) -> bool:
    return ticket.again and ticket.phase is not Phase.ENDED and ticket.job.urgency is Urgency.INTERACTIVE


class Entry:
    """`tickets` are all there are, by number."""

    def __init__(
        self,
        backend: Backend,
        admission: Admission,
        checkpoints: CheckpointManager | None,
        recovery: Recovery,
        speculation: Speculation,
        tickets: Mapping[int, Ticket],
        reporting: Reporting,
    ) -> None:
        self._backend = backend
        self._admission = admission
        self._checkpoints = checkpoints
        self._recovery = recovery
        self._speculation = speculation
        self._tickets = tickets
        self._reporting = reporting

    def admit(self, budget: TimeBudget) -> None:
        """Admits tickets in the order of the line while there is room, and restores their prompts, as far as the round
        has time for it.

        Raises BackendError when the backend is not to be trusted.
        """
        moving = True  # whether the line moves
        for ticket in sorted(self._tickets.values(), key=lambda ticket: ticket.order):
            if ticket.phase is Phase.WAITING and moving:
                moving = self._moved_up(ticket, budget)
            if ticket.phase is Phase.RESTORING:
                self._restore(ticket, budget)

    def _moved_up(self, ticket: Ticket, budget: TimeBudget) -> bool:
        """Whether the next one may try: the ticket is in, or out."""
        refusal = self._admission.refusal(ticket.job)
        if refusal:
            self._reporting.end(ticket, Outcome.REFUSED, refusal.reason, refusal.detail)
            return True
        try:
            return self._enter(ticket, budget)
        except OutOfTime:
            return False

    def _enter(self, ticket: Ticket, budget: TimeBudget) -> bool:
        try:
            ticket.sampler = ticket.sampler or self._backend.sampler(ticket.job.sampling)
        except SchemaRefused as error:
            self._reporting.end(ticket, Outcome.REFUSED, Reason.SCHEMA, str(error))
            return True
        try:
            pool = self._admission.pool_for(ticket)
        except BackendError as error:
            self._recovery.unopened(self._admission.pool_name(ticket), error)
            self._reporting.end(ticket, Outcome.FAILED, Reason.ENGINE, str(error))
            return True
        if pool is None or not self._recovery.free_for(ticket, pool) or not self._given(ticket, pool, budget):
            return False
        ticket.enter(Phase.RESTORING)
        ticket.due = self._due(ticket)
        return True

    def _due(self, ticket: Ticket) -> Due:
        progress = ticket.progress()
        return self._reporting.counters.computed_tokens + progress.total - progress.done, ticket.in_line

    def _given(self, ticket: Ticket, pool: Pool, budget: TimeBudget) -> bool:
        """Whether the ticket has its path and its cells now."""
        try:
            self._restore_before_entry(ticket, pool, budget)
            return self._admission.admit(ticket, pool)
        except BackendError as error:
            self._recovery.failed(pool, error)
            return False

    def _restore_before_entry(self, ticket: Ticket, pool: Pool, budget: TimeBudget) -> None:
        """Restores what can only be restored before its path is referenced. Raises OutOfTime."""
        if self._checkpoints is not None:
            self._checkpoints.restore_before_entry(pool, ticket.wanted, budget)

    def _restore(self, ticket: Ticket, budget: TimeBudget) -> None:
        """Restores the prompt of an admitted ticket from checkpoints; the rest is computed then."""
        assert ticket.pool is not None and ticket.tip is not None
        try:
            if self._checkpoints is not None:
                self._checkpoints.restore(ticket.pool, ticket.tip, ticket.wanted, partial(self._claim, ticket), budget)
        except OutOfTime:
            return
        except BackendError as error:
            self._recovery.failed(ticket.pool, error)
            return
        if not restored_by_another(ticket, self._tickets):
            self._begin(ticket)

    def _claim(self, ticket: Ticket, node: Node) -> bool:
        return claim(ticket, node, self._tickets)

    def _begin(self, ticket: Ticket) -> None:
        assert ticket.sampler is not None
        if (node := ticket.unfinished()) is not None:
            self._claim(ticket, node)  # before another one enters who needs it too
        ticket.enter(Phase.PREFILL)
        ticket.admitted_at = self._reporting.clock()
        ticket.due = min(ticket.due, self._due(ticket))
        ticket.reuse = reporting.reuse_of(ticket)
        ticket.sampler.accept_prompt(ticket.ids)
        self._speculation.begin(ticket)
        queue_ms = (ticket.admitted_at - ticket.arrived_at) * 1000
        self._reporting.send(Admitted(ticket.number, len(ticket.ids), ticket.reuse, queue_ms))
        if ticket.unfinished() is None:
            self._reporting.end(ticket, Outcome.DONE, Reason.PREFILLED, "")
