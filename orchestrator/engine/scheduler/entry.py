"""How a waiting ticket comes in: the first in line enters or waits for room, and nobody overtakes it.

    refused at the door? ─▶ sampler ─▶ pool ─▶ cells reserved ─▶ what is kept of the prompt comes back ─▶ it is computed

In line stand interactive tickets before background ones, the older before the younger. Inside, a prompt that comes back
piece by piece holds up nobody who needs nothing brought: it has its cells. Memories without ranges bring theirs back
before, in one go. Knows no steps.
"""

from collections.abc import Mapping
from functools import partial

from orchestrator.engine.backend import Backend, BackendError, SchemaRefused
from orchestrator.engine.cache.node import Node
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.time_budget import OutOfTime, TimeBudget
from orchestrator.engine.checkpoints.manager import CheckpointManager
from orchestrator.engine.messages import Admitted, Outcome, Reason
from orchestrator.engine.scheduler import reporting
from orchestrator.engine.scheduler.admission import Admission
from orchestrator.engine.scheduler.recovery import Recovery
from orchestrator.engine.scheduler.reporting import Reporting
from orchestrator.engine.scheduler.speculation import Speculation
from orchestrator.engine.scheduler.ticket import Due, Phase, Ticket, claim, restored_by_another


class Entry:
    """`tickets` are all there are, by number."""

    def __init__(
        self,
        backend: Backend,
        admission: Admission,
        keeper: CheckpointManager | None,
        recovery: Recovery,
        speculation: Speculation,
        tickets: Mapping[int, Ticket],
        reporting: Reporting,
    ) -> None:
        self._backend = backend
        self._admission = admission
        self._keeper = keeper
        self._recovery = recovery
        self._speculation = speculation
        self._tickets = tickets
        self._reporting = reporting

    def admit(self, slack: TimeBudget) -> None:
        """Lets in who has room, in the order of the line, and brings back what is kept of their prompts, as far as the
        round has time for it.

        Raises BackendError when the backend is not to be trusted.
        """
        standing = True  # whether the line moves
        for ticket in sorted(self._tickets.values(), key=lambda ticket: ticket.order):
            if ticket.phase is Phase.WAITING and standing:
                standing = self._moved_up(ticket, slack)
            if ticket.phase is Phase.RESTORING:
                self._bring(ticket, slack)

    def _moved_up(self, ticket: Ticket, slack: TimeBudget) -> bool:
        """Whether the next one may try: the ticket is in, or out."""
        refusal = self._admission.refusal(ticket.job)
        if refusal:
            self._reporting.end(ticket, Outcome.REFUSED, refusal.reason, refusal.detail)
            return True
        try:
            return self._enter(ticket, slack)
        except OutOfTime:
            return False

    def _enter(self, ticket: Ticket, slack: TimeBudget) -> bool:
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
        if pool is None or not self._recovery.free_for(ticket, pool) or not self._given(ticket, pool, slack):
            return False
        ticket.enter(Phase.RESTORING)
        ticket.due = self._due(ticket)
        return True

    def _due(self, ticket: Ticket) -> Due:
        progress = ticket.progress()
        return self._reporting.counters.computed_tokens + progress.total - progress.done, ticket.in_line

    def _given(self, ticket: Ticket, pool: Pool, slack: TimeBudget) -> bool:
        """Whether the ticket has its path and its cells now."""
        try:
            self._revive(ticket, pool, slack)
            return self._admission.admit(ticket, pool)
        except BackendError as error:
            self._recovery.failed(pool, error)
            return False

    def _revive(self, ticket: Ticket, pool: Pool, slack: TimeBudget) -> None:
        """Brings back what can only come before its path is leased. Raises OutOfTime while the round has no time for it."""
        if self._keeper is not None:
            self._keeper.revive(pool, ticket.wanted, slack)

    def _bring(self, ticket: Ticket, slack: TimeBudget) -> None:
        """Brings back what is kept of the prompt of one who is in; when all that can be is there, the rest is computed."""
        assert ticket.pool is not None and ticket.tip is not None
        try:
            if self._keeper is not None:
                self._keeper.refill(ticket.pool, ticket.tip, ticket.wanted, partial(self._claim, ticket), slack)
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
        self._reporting.tell(Admitted(ticket.number, len(ticket.ids), ticket.reuse, queue_ms))
        if ticket.unfinished() is None:
            self._reporting.end(ticket, Outcome.DONE, Reason.PREFILLED, "")
