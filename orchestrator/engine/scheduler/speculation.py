"""Speculation: drafts of the next tokens of an answer, taken from text that the answer may quote.

    … answer so far: a b c d │ the latest place with a b c d in the source: … a b c d e f g h …  →  draft e f g h

The sources are the prompt's tail and its floor. Answers about code quote it, and tokens that are verified together cost
little more than one. Greedy choice verifies drafts, so the text stays the same. A draft is made only while the acceptance
seen so far makes the answer faster (`planner`). This file knows no model; the step learns whether a draft was right.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.engine.cache.tree import Node
from orchestrator.engine.scheduler.reporting import Counters
from orchestrator.engine.scheduler.ticket import Ticket

GRAM = 4  # tokens that must agree before anything is drafted
MOST_DRAFTED = 63  # with the token itself the rows of a step that may have logits
LEAST_TO_DRAFT = 8  # an answer of fewer tokens is over before its drafts pay
FIRST_GUESS = 8.0  # tokens of a draft that are right, before anything was seen
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5)
_MASK = 2**64 - 1


@dataclass(frozen=True)
class Draft:
    """What is at hand to be verified for a running answer: so many tokens, of which so many are expected to be right."""

    tokens: int
    expected: float


class Source:
    """A token sequence that may be quoted, indexed by its runs of `GRAM` tokens. About 12 bytes a token."""

    def __init__(self, ids: "array[int]") -> None:
        self._ids = np.frombuffer(ids, np.uint32).copy() if ids else np.zeros(0, np.uint32)
        hashes = _hashes(self._ids)
        # Stable, so that of equal runs the last is the latest in the text: where code was amended, that one is right.
        order = np.argsort(hashes, kind="stable").astype(np.uint32)
        self._order, self._hashes = order, hashes[order]

    def after(self, last: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that followed the last `GRAM` tokens at the latest place of those."""
        if len(last) < GRAM or most <= 0 or not len(self._hashes):
            return []
        run = list(last[-GRAM:])
        at = int(self._hashes.searchsorted(_hash(run), side="right")) - 1
        start = int(self._order[max(0, at)])
        if self._ids[start : start + GRAM].tolist() != run:
            return []
        return [int(token) for token in self._ids[start + GRAM : start + GRAM + most]]


class Drafting:
    """One ticket's drafts: its sources, nearest first, and how often they were right."""

    def __init__(self, sources: Sequence[Source], accepted: float) -> None:
        self._sources = sources
        self.expected = accepted  # tokens of a draft that are accepted, on average; begins with what others saw

    def after(self, last: Sequence[int], most: int) -> list[int]:
        for source in self._sources:
            found = source.after(last, most)
            if found:
                return found
        return []

    def learn(self, drafted: int, accepted: int) -> None:
        """A draft cut short by its length says only that as many were right as there were."""
        if accepted == drafted:
            self.expected = max(self.expected, self.expected * 0.7 + drafted * 0.3)
        else:
            self.expected = self.expected * 0.7 + accepted * 0.3


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


def _hash(run: Sequence[int]) -> np.uint64:
    """As `_hashes` of one run, many times sooner: it is asked for each token of an answer."""
    total = 0
    for token, factor in zip(run, _FACTORS, strict=True):
        total = total + (token + 1) * factor & _MASK
        total ^= total >> 29
    return np.uint64(total)


def _hashes(ids: NDArray[np.uint32]) -> NDArray[np.uint64]:
    if len(ids) < GRAM:
        return np.zeros(0, np.uint64)
    wide = ids.astype(np.uint64)
    count = len(ids) - GRAM + 1
    total = np.zeros(count, np.uint64)
    for offset, factor in enumerate(_FACTORS):
        total += (wide[offset : offset + count] + np.uint64(1)) * np.uint64(factor)
        total ^= total >> np.uint64(29)
    return total
