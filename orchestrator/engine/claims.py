"""Who fills a node that several tickets wait for: restores or computes it, while the others wait for its cells. Pure.

An interactive ticket goes on with what a background one had begun: it must not wait at the other's class. But the last
node of a prompt that wants an answer is filled by its own ticket, whatever its class: the answer begins with its logits.
"""

from collections.abc import Mapping

from orchestrator.engine.cells.node import Node
from orchestrator.engine.tickets import Phase, Ticket


def claim(ticket: Ticket, node: Node, tickets: Mapping[int, Ticket]) -> bool:
    """Makes the ticket the one that fills the node; False while that is another one's."""
    filler = tickets.get(node.filler) if node.filler is not None else None
    if filler is not None and filler is not ticket and not _takes_over(ticket, filler, node):
        return False
    node.filler = ticket.number
    return True


def restored_by_another(ticket: Ticket, tickets: Mapping[int, Ticket]) -> bool:
    """Whether what the ticket needs next is just being brought back for another one."""
    node = ticket.unfinished()
    filler = tickets.get(node.filler) if node is not None and node.filler is not None else None
    return filler is not None and filler is not ticket and filler.phase is Phase.RESTORING


def _takes_over(ticket: Ticket, filler: Ticket, node: Node) -> bool:
    needs_logits = node is filler.tip and filler.job.max_tokens > 0
    return filler.order[0] and not ticket.order[0] and not needs_logits
