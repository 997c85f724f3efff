"""Who fills a node that several tickets wait for: restores or computes it, while the others wait for its cells.

    question ──waits──▶ node ◀──fills── background ticket, which is served in the question's place until the node stands

Who has begun goes on, whatever its class: the last node of a prompt that wants an answer is its own ticket's to fill,
because the answer begins with its logits. So that nobody waits at another one's class, who fills a node inherits the
place of the first who waits for it.
"""

from collections.abc import Mapping

from orchestrator.engine.cache.node import Node
from orchestrator.engine.scheduler.ticket import Phase, Ticket


def claim(ticket: Ticket, node: Node, tickets: Mapping[int, Ticket]) -> bool:
    """Makes the ticket the one that fills the node; False while that is another one's, which then does it for both."""
    other = _another(ticket, node, tickets)
    if other is None:
        node.filler = ticket.number
        return True
    other.fills_for(ticket, node)
    return False


def restored_by_another(ticket: Ticket, tickets: Mapping[int, Ticket]) -> bool:
    """Whether what the ticket needs next is just being brought back for another one."""
    node = ticket.unfinished()
    other = _another(ticket, node, tickets) if node is not None else None
    return other is not None and other.phase is Phase.RESTORING


def _another(ticket: Ticket, node: Node, tickets: Mapping[int, Ticket]) -> Ticket | None:
    """Who fills the node already."""
    filler = tickets.get(node.filler) if node.filler is not None else None
    return filler if filler is not ticket else None
