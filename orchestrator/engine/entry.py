"""How a waiting ticket comes in: the first in line enters or waits for room, and nobody overtakes it.

    refused at the door? ─▶ sampler ─▶ pool ─▶ what is kept of the prompt comes back ─▶ cells reserved ─▶ it is computed

In line stand interactive tickets before background ones, the older before the younger. Knows no steps.
"""

from collections.abc import Callable, Iterable

from orchestrator.engine import outcomes
from orchestrator.engine.admission import Admission
from orchestrator.engine.backend import Backend, BackendError, SchemaRefused
from orchestrator.engine.cells.pools import Pool
from orchestrator.engine.counters import Counters
from orchestrator.engine.messages import Admitted, FromChild, Outcome, Reason
from orchestrator.engine.path import Path
from orchestrator.engine.recovery import Recovery
from orchestrator.engine.slack import OutOfTime, Slack
from orchestrator.engine.speculation import Speculation
from orchestrator.engine.stepping import End
from orchestrator.engine.tickets import Phase, Ticket
from orchestrator.engine.tiers.keeping import Keeping


class Entry:
    """`tell` takes messages for the daemon, `end` a ticket's outcome; `clock` gives seconds."""

    def __init__(
        self,
        backend: Backend,
        admission: Admission,
        keeper: Keeping | None,
        recovery: Recovery,
        speculation: Speculation,
        counters: Counters,
        tell: Callable[[FromChild], None],
        end: End,
        clock: Callable[[], float],
    ) -> None:
        self._backend = backend
        self._admission = admission
        self._keeper = keeper
        self._recovery = recovery
        self._speculation = speculation
        self._counters = counters
        self._tell = tell
        self._end = end
        self._clock = clock

    def admit(self, tickets: Iterable[Ticket], slack: Slack) -> None:
        """Lets in who has room, in the order of the line, as far as the round has time for what is kept of their prompts.

        Raises BackendError when the backend is not to be trusted.
        """
        waiting = sorted((t for t in tickets if t.phase is Phase.WAITING), key=lambda ticket: ticket.order)
        for ticket in waiting:
            refusal = self._admission.refusal(ticket.job)
            if refusal:
                self._end(ticket, Outcome.REFUSED, refusal.reason, refusal.detail)
            elif not self._enter_in_time(ticket, slack):
                return

    def _enter_in_time(self, ticket: Ticket, slack: Slack) -> bool:
        try:
            return self._enter(ticket, slack)
        except OutOfTime:
            return False

    def _enter(self, ticket: Ticket, slack: Slack) -> bool:
        try:
            ticket.sampler = ticket.sampler or self._backend.sampler(ticket.job.sampling)
        except SchemaRefused as error:
            self._end(ticket, Outcome.REFUSED, Reason.SCHEMA, str(error))
            return True
        try:
            pool = self._admission.pool_for(ticket)
        except BackendError as error:
            self._recovery.unopened(self._admission.pool_name(ticket), error)
            self._end(ticket, Outcome.FAILED, Reason.ENGINE, str(error))
            return True
        if pool is None or not self._recovery.free_for(ticket, pool) or not self._given(ticket, pool, slack):
            return False
        self._begin(ticket)
        return True

    def _given(self, ticket: Ticket, pool: Pool, slack: Slack) -> bool:
        """Whether the ticket has its path and its cells now."""
        try:
            self._revive(ticket, pool, slack)
            return self._admission.admit(ticket, pool)
        except BackendError as error:
            self._recovery.failed(pool, error)
            return False

    def _revive(self, ticket: Ticket, pool: Pool, slack: Slack) -> None:
        """Brings back what is kept of the prompt. Raises OutOfTime while there is more than this round has time for."""
        if self._keeper is not None:
            limit = len(ticket.ids) - 1 if ticket.job.max_tokens else len(ticket.ids)
            path = Path(ticket.ids, ticket.cut, ticket.job.owner)
            self._keeper.revive(pool, path, limit, slack, ticket.restored)

    def _begin(self, ticket: Ticket) -> None:
        assert ticket.sampler is not None
        ticket.enter(Phase.PREFILL)
        ticket.admitted_at = self._clock()
        ticket.reuse = outcomes.reuse_of(ticket)
        ticket.sampler.accept_prompt(ticket.ids)
        self._speculation.begin(ticket)
        self._counters.admitted(ticket.reuse)
        queue_ms = (ticket.admitted_at - ticket.arrived_at) * 1000
        self._tell(Admitted(ticket.number, len(ticket.ids), ticket.reuse, queue_ms))
        if ticket.unfinished() is None:
            self._end(ticket, Outcome.DONE, Reason.PREFILLED, "")
