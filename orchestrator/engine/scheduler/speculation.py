"""Which running answers may be drafted, and from what. Drafts are verified by greedy choice, so the text stays the same.

It switches itself off: a draft is made only while the acceptance seen so far makes the answer sooner (see `plan`).
"""

from array import array

from orchestrator.engine.cache.node import Node
from orchestrator.engine.scheduler.drafts import GRAM, Draft, Drafting, Source
from orchestrator.engine.scheduler.reporting import Counters
from orchestrator.engine.scheduler.ticket import Ticket

MOST_DRAFTED = 63  # with the token itself the rows of a step that may have logits
LEAST_TO_DRAFT = 8  # an answer of fewer tokens is over before its drafts pay
FIRST_GUESS = 8.0  # tokens of a draft that are right, before anything was seen


class Speculation:
    """Sources by floor, each indexed once."""

    def __init__(self, counters: Counters, *, possible: bool) -> None:
        self._counters = counters
        self._possible = possible  # wanted, and rejected drafts can be cut off a sequence
        self._floors: dict[str, Source] = {}

    def begin(self, ticket: Ticket) -> None:
        """Gives an admitted ticket its sources, where its sampling allows drafts: the tail first, as the nearer one."""
        sampling = ticket.job.sampling
        greedy = sampling.greedy and sampling.repeat_penalty == 1.0 and not sampling.schema
        if not self._possible or not greedy or ticket.job.max_tokens < LEAST_TO_DRAFT or sampling.logprobs is not None:
            return
        floor = self._floor(ticket.job.floor, ticket.ids[: ticket.cut])
        ticket.drafting = Drafting((Source(ticket.ids[ticket.cut :]), floor), self._expected())

    def find(self, ticket: Ticket) -> Draft | None:
        """What could be verified for this answer in the next step; kept in its `drafts`."""
        if ticket.drafting is None:
            return None
        most = min(MOST_DRAFTED, ticket.job.max_tokens - ticket.generated - 1)
        ticket.drafts = ticket.drafting.after(recent(ticket), most)
        return Draft(len(ticket.drafts), ticket.drafting.expected) if ticket.drafts else None

    def learn(self, ticket: Ticket, drafted: int, accepted: int) -> None:
        assert ticket.drafting is not None
        ticket.drafting.learn(drafted, accepted)
        self._counters.drafts += 1
        self._counters.drafted_tokens += drafted
        self._counters.accepted_tokens += accepted

    def forget(self, floor: str) -> None:
        self._floors.pop(floor, None)

    def _floor(self, name: str, ids: "array[int]") -> Source:
        if name not in self._floors:
            self._floors[name] = Source(ids)
        return self._floors[name]

    def _expected(self) -> float:
        """Half of what all answers saw so far and half of the first guess: an unlucky answer does not end it for all."""
        if not self._counters.drafts:
            return FIRST_GUESS
        return (FIRST_GUESS + self._counters.accepted_tokens / self._counters.drafts) / 2


def recent(ticket: Ticket) -> list[int]:
    """The last tokens of prompt and answer, the one that waits to be evaluated included."""
    assert ticket.tip is not None and ticket.pending is not None
    found: list[int] = [ticket.pending]
    node: Node | None = ticket.tip
    while node is not None and len(found) < GRAM:  # of a prompt that was cached the tip has the last token alone
        found[:0] = node.ids[len(found) - GRAM :]
        node = node.parent
    return found
