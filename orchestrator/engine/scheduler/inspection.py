"""What the engine works at and what its caches hold, for whoever looks on. Changes nothing.

    node [0, 8012) ── [8012, 8090) ── [8090, 8301)      one user's turns: one branch of 289 tokens
                 └─── [8012, 8047)                      another's: a second one

Nodes that follow each other without a fork, and are both shared or both one user's, are one branch.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.tree import Node
from orchestrator.engine.messages import Urgency
from orchestrator.engine.scheduler.ticket import Phase, Ticket, in_order
from orchestrator.engine.snapshot import CacheBranch, CacheContent, Inspected, TicketState

MOST_TICKETS = 100  # a page has no more; how many there are the snapshot tells
MOST_BRANCHES = 100  # of a pool


def inspected(call: int, tickets: Mapping[int, Ticket], pools: Iterable[Pool], now: float) -> Inspected:
    """`now`: seconds of the loop's clock."""
    return Inspected(call, tuple(islice(ticket_states(tickets, now), MOST_TICKETS)), tuple(map(content, pools)))


def ticket_states(tickets: Mapping[int, Ticket], now: float) -> Iterator[TicketState]:
    """Those that run, then those that wait, each as they are served."""
    ordered = in_order(tickets)
    waiting = [ticket for ticket in ordered if ticket.phase is Phase.WAITING]
    for ticket in ordered:
        if ticket.phase is not Phase.WAITING:
            yield state(ticket, 0, now)
    for place, ticket in enumerate(waiting, start=1):
        yield state(ticket, place, now)


def state(ticket: Ticket, place: int, now: float) -> TicketState:
    return TicketState(
        ticket=ticket.number,
        floor=ticket.job.floor,
        phase=ticket.phase.value,
        place=place,
        background=ticket.job.urgency is Urgency.BACKGROUND,
        prompt=len(ticket.ids),
        done=done(ticket),
        computed=ticket.computed,
        generated=ticket.generated,
        most=ticket.job.max_tokens,
        waited_s=now - ticket.arrived_at,
        running_s=now - ticket.admitted_at if ticket.admitted_at else 0.0,
        answering_s=now - ticket.first_token_at if ticket.first_token_at else 0.0,
    )


def done(ticket: Ticket) -> int:
    """Tokens of its prompt in cells."""
    if ticket.tip is None:
        return 0
    return len(ticket.ids) if ticket.phase is Phase.ANSWERING else ticket.progress().done


def content(pool: Pool) -> CacheContent:
    nodes = list(pool.tree.nodes())
    rows = list(branches(pool.tree.root))
    return CacheContent(
        name=pool.name,
        size=pool.memory.cells,
        bytes=pool.memory.footprint,
        floors=sum(node.computed for node in nodes if node.owner is None),
        conversations=sum(node.computed for node in nodes if node.owner is not None),
        branches=tuple(rows[:MOST_BRANCHES]),
        left_out=max(0, len(rows) - MOST_BRANCHES),
    )


def branches(root: Node) -> Iterator[CacheBranch]:
    """Each before those below it, of siblings the one used last first."""
    stack = [(0, child) for child in last_used_last(root)]
    while stack:
        depth, node = stack.pop()
        stretch = [node]
        while (after := continued(stretch[-1])) is not None:
            stretch.append(after)
        yield CacheBranch(
            depth=depth,
            start=node.start,
            tokens=sum(len(one.ids) for one in stretch),
            computed=sum(one.computed for one in stretch),
            private=node.owner is not None,
            used=any(one.ref_count for one in stretch),
        )
        stack += [(depth + 1, child) for child in last_used_last(stretch[-1])]


def continued(node: Node) -> Node | None:
    """The only node below, where it is as private as this one."""
    below = node.children[0] if len(node.children) == 1 else None
    return below if below is not None and (below.owner is None) == (node.owner is None) else None


def last_used_last(node: Node) -> list[Node]:
    return sorted(node.children, key=lambda one: one.used)
