"""In which order a pool's cells move into a larger context: against a search that looks at all nodes before each piece."""

import time
from array import array
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.cache.moving import PIECE, Missing, Piece
from orchestrator.engine.cache.node import Node
from orchestrator.engine.cache.tree import Tree


class Nowhere:
    """What a tree decides is done to no cells."""

    def copy(self, source: int, target: int, start: int, end: int) -> None: ...

    def remove(self, sequence: int, start: int, end: int) -> None: ...


def grown(prompts: list["array[int]"], filled: float = 1.0) -> Tree:
    """A tree of prompts that were computed one after the other; of the last one only a part."""
    tree = Tree(Nowhere(), range(len(prompts) + 1))
    for number, ids in enumerate(prompts, start=1):
        for node in tree.lease(ids, 0, 1, len(ids)).path():
            if not node.whole:
                tree.attach(node)
                node.filled = len(node.ids) if number < len(prompts) else max(1, int(filled * len(node.ids)))
    return tree


class Larger:
    """The larger context, and the old rule: look at all nodes, take the longest behind which nothing is missing."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.lengths: defaultdict[int, int] = defaultdict(int)

    def length(self, sequence: int) -> int:
        return self.lengths[sequence]

    def stands(self, node: Node) -> int:
        return self.lengths[self.tree.covering(node)]

    def left(self, node: Node) -> int:
        return node.stands - self.stands(node) if node.filled and self.stands(node) >= node.start else 0

    def most(self) -> int:
        return max(map(self.left, self.tree.nodes()), default=0)

    def take(self, piece: Piece) -> None:
        assert sorted(piece.members) == sorted(self.tree.members(piece.node))
        assert {self.lengths[sequence] for sequence in piece.members} == {piece.start}, (
            "a hole, or twice the same cells"
        )
        self.lengths.update(dict.fromkeys(piece.members, piece.end))


prompts = st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=4), st.integers(1, 700)), min_size=1, max_size=8)


@settings(max_examples=100)
@given(prompts, st.floats(0, 1), st.integers(0, 6))
def test_the_longest_of_what_may_be_copied_comes_next_and_at_the_end_nothing_is_missing(
    made: list[tuple[list[int], int]], filled: float, rounds: int
) -> None:
    """`rounds`: after so many pieces it is looked at anew."""
    tree = grown(
        [array("I", [one for turn in turns for one in [turn] * 200] + [9] * tail) for turns, tail in made], filled
    )
    larger = Larger(tree)
    missing, pieces = Missing(tree, larger.length), 0
    while (piece := missing.longest()) is not None:
        assert larger.left(piece.node) == larger.most()
        assert 0 < piece.end - piece.start <= PIECE
        larger.take(piece)
        missing.copied(piece)
        pieces += 1
        if pieces == rounds:
            missing = Missing(tree, larger.length)
    assert all(larger.stands(node) >= node.stands for node in tree.nodes() if node.filled)


def test_a_conversation_of_thousands_of_turns_takes_no_longer_for_each_of_them() -> None:
    """All nodes looked at for each piece, and all below each of them, took half a minute."""
    talk, turns = array("I"), []
    for turn in range(1000):
        talk = talk + array("I", [turn] * 30)
        turns.append(talk)
    tree = grown(turns)
    began, pieces = time.thread_time(), 0
    larger = Larger(tree)
    missing = Missing(tree, larger.length)
    while (piece := missing.longest()) is not None:
        larger.lengths.update(dict.fromkeys(piece.members, piece.end))
        missing.copied(piece)
        pieces += 1
    assert pieces == 1000
    assert time.thread_time() - began < 2.0
