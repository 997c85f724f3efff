"""Drafts of an answer's next tokens, from text that it may quote. Knows no tickets and no model.

… answer so far: a b c d │ the latest place with a b c d in the source: … a b c d e f g h …  →  draft e f g h
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GRAM = 4  # tokens that must agree before anything is drafted
_FACTOR = 0x9E3779B97F4A7C15


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


def _hash(run: Sequence[int]) -> np.uint64:
    """As `_hashes` of one run, many times faster: an answer asks for it with each token."""
    total = 0
    for token in run:
        total = (total + token + 1) * _FACTOR % 2**64
        total ^= total >> 29
    return np.uint64(total)


def _hashes(ids: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Of each run of `GRAM` tokens."""
    wide, count = ids.astype(np.uint64), max(0, len(ids) - GRAM + 1)
    total = np.zeros(count, np.uint64)
    for offset in range(GRAM):
        total = (total + wide[offset : offset + count] + np.uint64(1)) * np.uint64(_FACTOR)
        total ^= total >> np.uint64(29)
    return total
