"""What the next round computes: gathers the tickets as they are, and has `planner` decide."""

from collections.abc import Mapping

from orchestrator.engine.cache.node import Node
from orchestrator.engine.costs import Costs
from orchestrator.engine.messages import Outcome, Reason
from orchestrator.engine.scheduler.admission import Admission
from orchestrator.engine.scheduler.claims import claim
from orchestrator.engine.scheduler.planner import Draft, Limits, Step, Want, plan_round
from orchestrator.engine.scheduler.reporting import Reporting
from orchestrator.engine.scheduler.speculation import Speculation
from orchestrator.engine.scheduler.ticket import Phase, Ticket


class Planning:
    """`tickets` are all there are, by number."""

    def __init__(
        self,
        admission: Admission,
        speculation: Speculation,
        tickets: Mapping[int, Ticket],
        costs: Costs,
        reporting: Reporting,
    ) -> None:
        self._admission = admission
        self._speculation = speculation
        self._tickets = tickets
        self._costs = costs
        self._reporting = reporting

    def steps(self, limits: Limits) -> tuple[Step, ...]:
        """One in each pool that has something to do, at most. Their `pool` is its place among the admission's."""
        pools = list(self._admission.pools.values())
        index = {id(pool): place for place, pool in enumerate(pools)}
        answering: dict[int, list[int]] = {}
        found: list[tuple[Ticket, int, int]] = []
        drafts: dict[int, Draft] = {}
        # In the order of service, so that of two who may compute a node the first in line gets it.
        for ticket in sorted(self._tickets.values(), key=lambda ticket: ticket.order):
            place = index.get(id(ticket.pool), 0)
            if ticket.phase is Phase.ANSWERING:
                answering.setdefault(place, []).append(ticket.number)
                if (draft := self._speculation.find(ticket)) is not None:
                    drafts[ticket.number] = draft
            elif ticket.phase is Phase.PREFILL and (node := self._next(ticket)) is not None:
                found.append((ticket, place, len(node.ids) - node.filled))
        # Now that everybody who waits for another one's cells has said so, and lends its place to that one.
        wants = [Want(*ticket.prefill_order, ticket.number, place, tokens) for ticket, place, tokens in found]
        cells = {place: pool.cells_used() for place, pool in enumerate(pools)}
        return plan_round(answering, wants, cells, limits, self._costs, drafts)

    def _next(self, ticket: Ticket) -> Node | None:
        """The node that this ticket may compute now; None while another ticket computes it."""
        node = ticket.unfinished()
        if node is None:
            # What it waited for was finished by another ticket and nothing of its own is left.
            assert not ticket.job.max_tokens, "the last token of a prompt that wants an answer is its own to compute"
            self._reporting.end(ticket, Outcome.DONE, Reason.PREFILLED, "")
            return None
        if claim(ticket, node, self._tickets):
            return node
        self._reporting.tell(ticket.progress())  # of what another one computes for it too
        return None
