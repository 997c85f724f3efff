"""Drafts of an answer's next tokens, from text that it may be quoting: the floor, and what stands right of it.

    … answer so far: a b c d │ the latest place with a b c d in the source: … a b c d e f g h …  →  draft e f g h

Answers about code quote it, and tokens that are verified together cost little more than one. Pure but for the index, which
is built once per source. Knows no model: whether a draft was right is for the loop to see.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GRAM = 4  # tokens that must agree before anything is drafted
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
        """At most `most` tokens that followed the last `GRAM` tokens at the latest place where those stand."""
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
