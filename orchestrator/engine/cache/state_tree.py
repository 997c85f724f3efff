"""The prefix tree over a memory that cannot be cut in ranges: recurrent, hybrid, windows with plain attention.

    root ── floor ■── environment ■── first turn ■── second turn ■      ■ an anchor: a sequence that ends where its
                                 └─── another conversation ■              node ends

Every node with cells has an anchor of its own. A prompt shares a path up to an anchor and no further; nodes are never
split. So the nodes of a new path end at its marks. Each mark costs a step of prefill, and is left out where the node
before it ends nearly there. Laws beside those of `tree`: a sequence is copied at its end and removed as a whole; it is
never cut.
"""

from collections.abc import Sequence

from orchestrator.engine.cache.tree import Node, Tokens, Tree, common_prefix

# Tokens that a node up to a mark has at least: a step of one token takes as long as about 7 tokens of a long one.
LEAST_TO_MARK = 32


class AnchoredTree(Tree):
    """A running answer needs two sequences at most, however many turns lead to it: one for the state above it, one of its
    own. `_sequence_for` merges the nodes between.
    """

    ranges = False

    def match(self, ids: Tokens, owner: int) -> tuple[Node, int]:
        """The deepest node with whose whole path `ids` begins, and its end; the root where there is none."""
        best, stack = self.root, [self.root]
        while stack:
            node = stack.pop()
            if (node.end, node.computed) > (best.end, best.computed):
                best = node
            for child in node.children:
                mine = child.owner is None or child.owner == owner
                if mine and child.ids and common_prefix(child.ids, ids, node.end) == len(child.ids):
                    stack.append(child)
        return best, best.end

    def _ends(self, shared: int, cut: int, marks: Sequence[int], length: int) -> list[int]:
        ends = super()._ends(shared, cut, (), length)
        at = max(shared, cut)
        for mark in marks:
            if at + LEAST_TO_MARK <= mark < length:
                ends.append(mark)
                at = mark
        return sorted(ends)

    def _sequence_for(self, node: Node) -> int:
        """A sequence that ends where the node above ends, which keeps its own.

        What leads to one node alone is merged with it before anything is evicted; the beginning of a tail, from which the
        next conversation goes on, only where nothing can be. Last of all a node takes over the sequence of the node above.
        """
        above = node.parent
        assert above is not None
        while not self._spare:
            lone = min(filter(self._lone, self.nodes()), key=lambda one: (one.begins_tail, one.used), default=None)
            if lone is not None and (not lone.begins_tail or self.stalest() is None):
                self._merge(lone)
            elif self._only(above) and self.stalest() is None:
                self._merge(above)
                assert node.sequence is not None
                return node.sequence
            else:
                self._evict_stalest()
        sequence = self._spare.pop()
        if above is not self.root:
            assert above.sequence is not None, "a node with cells has an anchor"
            self.cells.copy(above.sequence, sequence, 0, above.end)
        return sequence

    def _only(self, upper: Node) -> bool:
        """Whether nobody needs the end of a node but the one node that goes on from it."""
        if upper is self.root or len(upper.children) != 1 or not upper.complete:
            return False
        return (upper.owner, upper.ref_count) == (upper.children[0].owner, upper.children[0].ref_count)

    def _lone(self, upper: Node) -> bool:
        return self._only(upper) and upper.sequence is not None and upper.children[0].sequence is not None

    def _merge(self, upper: Node) -> None:
        """Makes a node and the only one below it one; the lower keeps its identity, and its anchor where it has one."""
        (lower,), above, sequence = upper.children, upper.parent, upper.sequence
        assert above is not None and sequence is not None
        above.children[above.children.index(upper)] = lower
        lower.parent, lower.start, lower.ids = above, upper.start, upper.ids + lower.ids
        lower.computed += upper.computed
        upper.gone, upper.sequence = True, None
        if lower.sequence is None:
            lower.sequence = sequence
        else:
            self._drop(sequence)

    def _fall_back(self, sequence: int, tip: Node) -> None:
        del tip  # what lies above it has an anchor already
        self._drop(sequence)
