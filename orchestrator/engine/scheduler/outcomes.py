"""What is reported of a ticket: what of its prompt it reuses, or would reuse, and how it ended."""

from collections.abc import Iterable

from orchestrator.engine.cache.path import Path
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.checkpoints.manager import CheckpointManager
from orchestrator.engine.messages import Completion, Outcome, Reason, Reuse, TicketTimings, Tier
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


def foretold(
    pool: Pool | None, keeper: CheckpointManager | None, path: Path, max_tokens: int
) -> tuple[tuple[Reuse, ...], int]:
    """What a job of this prompt would reuse if it were admitted now, and how many of its tokens need no computing.

        prompt  ├──── cells ────┼── checkpoints ──┼── computed ──┤

    The searches are those of admission and of restores. Not considered are how much room there is, damaged files, and
    jobs that arrive before. With an answer wanted the last token is computed in any case.
    """
    limit = len(path.ids) - 1 if max_tokens else len(path.ids)
    depth, stands, ends = 0, 0, [0]
    if pool is not None:
        node, depth = pool.tree.match(path.ids[:limit], path.owner)
        stands, ends = node.stands, [0, *(one.end for one in node.path() if one.end < depth), depth]
    if depth > stands or keeper is None:  # somebody is computing it, or there is nothing below
        return covering((), depth, len(path.ids)), min(depth, stands)
    restored = keeper.restorable(path, limit, ends)
    end = restored[-1].end if restored else depth
    return covering(restored, end, len(path.ids)), end


def covering(restored: Iterable[Reuse], end: int, length: int) -> tuple[Reuse, ...]:
    """Ranges that cover a prompt: what was restored, what was in cells before it and between, from `end` on computed."""
    parts, at = list[Reuse](), 0
    for part in [*restored, Reuse(end, length, Tier.COMPUTED)]:
        parts += [Reuse(at, part.start, Tier.VRAM), part]
        at = part.end
    return tuple(part for part in parts if part.end > part.start)


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
