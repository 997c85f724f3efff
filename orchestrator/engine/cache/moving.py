"""A pool that moves into a larger context beside its own, piece by piece, while its answers go on.

    context now   ├──── floor ────┼─ tail ─┼▶ answers grow here
    the larger    ├──── floor ──▶ ┆              pieces, parents first, the longest first, as each round has time
    at the end, nothing is missing: the larger one takes its place

What happens to sequences meanwhile (copied, cut, let go) happens in both, there as far as their cells stand there. So a
sequence's length in the larger one tells what is still to come, however the tree changed, and nothing else is noted. The
larger one may have more sequences, which are the pool's once it is there, and then fewer cells, which bind it from now on.
For memories that can be cut in ranges. `transfer.move` is for when both do not fit.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from orchestrator.engine.backend import BackendError, Batch, Memory, Sampled, Sampler
from orchestrator.engine.cache.node import Node
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.sizes import Size, size_of
from orchestrator.engine.cache.transfer import restore_range
from orchestrator.engine.cache.tree import Tree
from orchestrator.engine.scheduler.slack import Slack

PIECE = 256  # cells: as a segment of the tiers


class Twin:
    """A pool's memory while it moves: computes in `now`, and keeps the membership of cells the same in `larger`."""

    def __init__(self, now: Memory, larger: Memory) -> None:
        self.now, self.larger = now, larger
        self.cells, self.sequences = min(now.cells, larger.cells), now.sequences
        self.footprint = now.footprint + larger.footprint

    def decode(self, batch: Batch) -> None:
        self.now.decode(batch)

    def sample(self, row: int, sampler: Sampler) -> Sampled:
        return self.now.sample(row, sampler)

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        self.now.copy(source, target, start, end)
        stands = min(end, self.larger.length(source))
        if start < stands and target != self.sequences - 1:  # the scratch belongs to each of them alone
            self.larger.copy(source, target, start, stands)

    def remove(self, sequence: int, start: int, end: int) -> None:
        self.now.remove(sequence, start, end)
        self.larger.remove(sequence, start, end)

    def save(self, sequence: int) -> bytes:
        return self.now.save(sequence)

    def restore(self, sequence: int, state: bytes) -> int:
        return self.now.restore(sequence, state)

    def length(self, sequence: int) -> int:
        return self.now.length(sequence)

    def count(self, sequence: int) -> int:
        return self.now.count(sequence)

    def close(self) -> None:
        self.now.close()
        self.larger.close()


@dataclass(frozen=True)
class Piece:
    """The half-open range [start, end) of a node's cells, and the sequences that are members of it."""

    node: Node
    start: int
    end: int
    members: list[int]


class Missing:
    """What of a tree's cells does not stand in the larger context yet, while the tree stays as it is.

    `length` is of a sequence in the larger one. A conversation has thousands of nodes: all are looked at once, not once for
    each piece.
    """

    def __init__(self, tree: Tree, length: Callable[[int], int]) -> None:
        self._members = members_of_all(tree)
        self._length = length
        self._ready: list[tuple[int, int, Node]] = []  # as a heap: by the cells to copy, the most first
        for node in self._members:
            self._note(node)

    def longest(self) -> Piece | None:
        """The next piece of the node with most to copy, of those behind which nothing is missing: the few tokens of answers
        come last."""
        if not self._ready:
            return None
        node = self._ready[0][-1]
        start = self._begins(node)
        return Piece(node, start, min(start + PIECE, node.stands), self._members[node])

    def copied(self, piece: Piece) -> None:
        """It stands, and what comes next may be copied: more of the same node, or those behind it."""
        heapq.heappop(self._ready)
        for node in (piece.node, *piece.node.children):
            self._note(node)

    def _note(self, node: Node) -> None:
        if node.filled and node.start <= (begins := self._begins(node)) < node.stands:
            heapq.heappush(self._ready, (begins - node.stands, id(node), node))

    def _begins(self, node: Node) -> int:
        """The position up to which its path stands in the larger context."""
        return self._length(self._members[node][0])


def members_of_all(tree: Tree) -> dict[Node, list[int]]:
    """The sequences that hold the cells of each node, found in one walk."""
    found: dict[Node, list[int]] = {}
    for node in reversed(list(tree.nodes())):  # each after all that lie below it
        own = [] if node.sequence is None else [node.sequence]
        found[node] = [*own, *chain.from_iterable(found[child] for child in node.children)]
    return found


class Moving:
    """One pool's move into `larger`, which it owns from now on."""

    def __init__(self, pool: Pool, larger: Memory) -> None:
        self._pool = pool
        self._twin = Twin(pool.memory, larger)
        self._pool.rebind(self._twin)

    @property
    def sizes(self) -> tuple[Size, Size]:
        """Of the two contexts that it holds."""
        return size_of(self._twin.now), size_of(self._twin.larger)

    def go_on(self, slack: Slack) -> None:
        """Copies what is missing; then the pool is in the larger context. Raises OutOfTime, BackendError."""
        missing = Missing(self._pool.tree, self._twin.larger.length)
        while (piece := missing.longest()) is not None:
            slack.take()
            self._copy(piece)
            missing.copied(piece)
        self._pool.rebind(self._twin.larger)
        self._twin.now.close()

    def abandon(self) -> None:
        """The pool stays where it is."""
        self._pool.rebind(self._twin.now)
        self._twin.larger.close()

    def _copy(self, piece: Piece) -> None:
        pool, now, larger = self._pool, self._twin.now, self._twin.larger
        start, end = piece.start, piece.end
        now.copy(piece.members[0], pool.scratch, start, end)
        try:
            state = now.save(pool.scratch)
        finally:
            now.remove(pool.scratch, 0, -1)
        if not restore_range(larger, larger.sequences - 1, state, end - start, (start, end), piece.members):
            raise BackendError(f"a range of {end - start} cells did not survive its move")
