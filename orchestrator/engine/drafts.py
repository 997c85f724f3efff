"""Drafts of an answer's next tokens, from text that it may be quoting: the floor, and what stands right of it.

    … answer so far: a b c d │ the latest place with a b c d in the source: … a b c d e f g h …  →  draft e f g h

Answers about code quote it, and tokens that are verified together cost little more than one. Pure but for the index, which
is built once per source. Knows no model: whether a draft was right is for the loop to see.
"""

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

GRAM = 4  # tokens that must agree before anything is drafted
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5], np.uint64)


class Source:
    """A token sequence that may be quoted, indexed by its runs of `GRAM` tokens. About 12 bytes a token."""

    def __init__(self, ids: "array[int]") -> None:
        self._ids = np.frombuffer(ids, np.uint32).copy() if ids else np.zeros(0, np.uint32)
        hashes = _hashes(self._ids)
        # Stable, so that of equal runs the last is the latest in the text: where code was amended, that one is right.
        order = np.argsort(hashes, kind="stable").astype(np.uint32)
        self._order, self._hashes = order, hashes[order]

    def after(self, last: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that followed the last `GRAM` tokens at the latest place where those stand."""
        if len(last) < GRAM or most <= 0 or not len(self._hashes):
            return []
        run = np.array(last[-GRAM:], np.uint32)
        at = int(np.searchsorted(self._hashes, _hashes(run)[0], side="right")) - 1
        if at < 0:
            return []
        start = int(self._order[at])
        if not np.array_equal(self._ids[start : start + GRAM], run):
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


def _hashes(ids: NDArray[np.uint32]) -> NDArray[np.uint64]:
    if len(ids) < GRAM:
        return np.zeros(0, np.uint64)
    wide = ids.astype(np.uint64)
    count = len(ids) - GRAM + 1
    total = np.zeros(count, np.uint64)
    for offset, factor in enumerate(_FACTORS):
        total += (wide[offset : offset + count] + np.uint64(1)) * factor
        total ^= total >> np.uint64(29)
    return total
