"""What follows when llama.cpp fails in one pool: that pool goes, and the others go on.

    failure ─▶ its context is freed, its KV forgotten ─▶ who had begun to answer fails, who had sent nothing waits again
       │
       ├─ again, before a step of that pool succeeded:  a ticket that was there before fails; it then was alone in it
       └─ and again, or with nobody who was there before: the fault is raised, which ends the process

A new context helps where a ticket or a context was at fault; where neither was, only a new process may. Who waits again
enters alone, so that it takes nobody with it twice; floors computed in the background do not, as no question may wait for
them.
"""

import logging
from collections.abc import Mapping

from orchestrator.engine.backend import BackendError
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.messages import Outcome, Reason, Urgency
from orchestrator.engine.scheduler.admission import Admission
from orchestrator.engine.scheduler.reporting import Reporting
from orchestrator.engine.scheduler.ticket import Phase, Ticket

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
