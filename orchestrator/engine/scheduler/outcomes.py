"""What is told of a ticket: what of its prompt it reuses, and how it ended."""

from orchestrator.engine.child.forecast import covering
from orchestrator.engine.messages import Completion, Outcome, Reason, Reuse, TicketTimings
from orchestrator.engine.scheduler.ticket import Ticket


def reuse_of(ticket: Ticket) -> tuple[Reuse, ...]:
    """Ranges of the prompt that need no computing by this ticket: what stands, was restored, or another one computes."""
    assert ticket.tip is not None
    end = 0
    for node in ticket.tip.path():
        mine = node.filler == ticket.number or (node.filler is None and node.leases == 1)
        if mine and not node.whole:
            end = node.stands
            break
        end = node.end
    return covering(ticket.restored, end, len(ticket.ids))


def completion(ticket: Ticket, outcome: Outcome, reason: Reason, detail: str, now: float) -> Completion:
    return Completion(
        ticket=ticket.number,
        outcome=outcome,
        reason=reason,
        detail=detail,
        prompt=len(ticket.ids),
        cached=len(ticket.ids) - ticket.computed if ticket.admitted_at else 0,
        computed=ticket.computed,
        generated=ticket.generated,
        drafted=ticket.drafted,
        accepted=ticket.accepted,
        timings=timings(ticket, now),
    )


def timings(ticket: Ticket, now: float) -> TicketTimings:
    def since_arrival(moment: float) -> float:
        return max(0.0, (moment - ticket.arrived_at) * 1000) if moment else 0.0

    answering = now - ticket.first_token_at
    measurable = ticket.first_token_at and answering > 0 and ticket.generated > 1
    speed = (ticket.generated - 1) / answering if measurable else 0.0
    return TicketTimings(
        since_arrival(ticket.admitted_at), since_arrival(ticket.first_token_at), since_arrival(now), speed
    )
