"""How large a pool's context is made, and what that takes of the grant. Pure.

    weight = cells + (sequences − those that the governor counts with) · cells that the buffers of one would hold

A context has cells, which a sequence may share with others, and sequences, each of which costs a row of logits whether it
is used or not. It opens with the set number of sequences, whose buffers the governor counts with, and gets more when more
answers run at once.
"""

import math
from dataclasses import dataclass

from orchestrator.engine.backend import Backend, Memory

ROUND = 256  # llama.cpp pads a context to a multiple of this
MOST_SEQUENCES = 256  # that llama.cpp has in a context
LEAST_ANCHORED = 3  # without ranges: what carries states, and for one answer its floor's state and its own


@dataclass(frozen=True)
class Size:
    """Of a context."""

    cells: int
    sequences: int


@dataclass(frozen=True)
class Growth:
    """A context that a pool moves into: the least that it must be, and what it is made where the grant has as much."""

    least: Size
    most: Size


@dataclass(frozen=True)
class Scale:
    """sequences: those that a pool opens with. most: that it may have. each: cells of the grant for a further one."""

    sequences: int
    most: int
    each: float = 0.0

    def weight(self, size: Size) -> int:
        """Cells that a context takes of the grant."""
        return size.cells + self.beside(size.sequences)

    def beside(self, sequences: int) -> int:
        """Of them those for the buffers of its further sequences."""
        return math.ceil(max(0, sequences - self.sequences) * self.each)

    def grown(self, now: Size, wanted: Size, idle: int) -> Growth | None:
        """What a context becomes for a ticket that wants more than it has; None where more would not let it in.

        It doubles in what it lacks where the grant has as much, so that it moves seldom. Where it lacks sequences alone, it
        may give up cells that are free for them: `idle` are those that stand beside all that is wanted.
        """
        if wanted.sequences > max(now.sequences, self.most):
            return None
        if wanted.cells <= now.cells and wanted.sequences <= now.sequences:
            return None
        sequences = now.sequences
        if wanted.sequences > sequences:
            sequences = min(self.most, max(wanted.sequences, 2 * sequences))
        if wanted.cells <= now.cells:
            least, most = min(now.cells, rounded(wanted.cells + idle)), now.cells
        else:
            least, most = rounded(wanted.cells), rounded(max(wanted.cells, 2 * now.cells))
        return Growth(Size(least, sequences), Size(most, sequences))


def size_of(memory: Memory) -> Size:
    return Size(memory.cells, memory.sequences)


def rounded(cells: int) -> int:
    return -(-cells // ROUND) * ROUND


def scale_of(backend: Backend, sequences: int, batch: int) -> Scale:
    """`sequences`: as set. A step has a row for each answer that runs, and half of its batch is for prompts.

    Memories without ranges keep what they open with: there each sequence holds a state or a window of cells of its own.
    With fewer than three nobody would ever be let in.
    """
    sequences, kv = min(sequences, batch), backend.info.kv_bytes_per_token
    if not backend.info.ranges:
        sequences = max(LEAST_ANCHORED, sequences)
    if not backend.info.ranges or not kv:
        return Scale(sequences, sequences)
    return Scale(sequences, max(sequences, min(MOST_SEQUENCES, batch // 2)), backend.sequence_bytes / kv)
