"""How far a prompt leads in a pool's tree, through equal and through foreign siblings."""

from array import array

from hypothesis import given
from hypothesis import strategies as st
from support.fake_engine import FakeBackend

from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.tree import Node, Tree


def node(tokens: list[int], *below: Node, computed: int | None = None, owner: int | None = None) -> Node:
    made = Node(None, 0, array("I", tokens), owner, computed=len(tokens) if computed is None else computed)
    made.children = list(below)
    return made


def tree(*below: Node, ranges: bool = True) -> Tree:
    planted = Pool("code", FakeBackend().open(4096, 4), lambda _pool, _node: None, ranges=ranges).tree
    planted.root.children = list(below)
    planted.root.computed = 0
    above = [planted.root]
    for one in above:
        for child in one.children:
            child.parent, child.start = one, one.end
            above.append(child)
    return planted


def depth(found: Tree, tokens: list[int], owner: int = 1) -> int:
    return found.match(array("I", tokens), owner)[1]


def test_of_siblings_that_begin_alike_the_one_that_goes_on_is_followed() -> None:
    for turned in (1, -1):
        siblings = (node([1, 2], owner=1), node([1, 2], node([3, 4], owner=1), owner=1))[::turned]
        assert depth(tree(*siblings), [1, 2, 3, 4, 5]) == 4


def test_a_sibling_that_shares_more_and_ends_there_is_no_end_of_the_search() -> None:
    """The greedy walk took the nearer one, which three tokens are shared with, and never saw the other's child."""
    split = tree(node([1, 2, 3, 9], owner=1), node([1, 2], node([3, 4, 5], owner=1), owner=1))
    assert depth(split, [1, 2, 3, 4, 5]) == 5


def test_what_is_another_users_is_not_there() -> None:
    one = tree(node([7], node([1, 2], owner=1), node([1], owner=2)))
    assert [depth(one, [7, 1, 2], owner) for owner in (1, 2, 3)] == [3, 2, 1]


def test_what_is_being_computed_is_shared_too_and_told_by_its_node() -> None:
    found, shared = tree(node([1, 2, 3, 4], computed=2)).match(array("I", [1, 2, 3, 9]), 1)
    assert (shared, found.computed_end) == (3, 2)


def test_between_the_ends_of_nodes_nothing_is_shared_where_memory_cannot_be_cut() -> None:
    one = tree(node([1, 2], node([3, 4], owner=1)), ranges=False)
    assert [depth(one, [1, 2, 3, 5]), depth(one, [1, 2, 3, 4, 5])] == [2, 4]


nodes = st.recursive(
    st.builds(node, st.lists(st.integers(1, 2), min_size=1, max_size=3), owner=st.sampled_from([None, 1, 2])),
    lambda below: st.builds(
        lambda tokens, children, owner: node(tokens, *children, owner=owner),
        st.lists(st.integers(1, 2), min_size=1, max_size=3), st.lists(below, max_size=3), st.sampled_from([None, 1, 2]),
    ),
    max_leaves=12,
)  # fmt: skip


def paths(one: Node, owner: int) -> list[list[int]]:
    """All that a user could share, as lists of tokens."""
    own = list(one.ids)
    mine = [child for child in one.children if child.owner in (None, owner)]
    return [own, *([*own, *path] for child in mine for path in paths(child, owner))]


def common(one: list[int], other: list[int]) -> int:
    most = min(len(one), len(other))
    return next((at for at in range(most) if one[at] != other[at]), most)


@given(st.lists(nodes, max_size=3), st.lists(st.integers(1, 2), max_size=8), st.sampled_from([1, 2]))
def test_the_depth_is_what_the_best_of_all_paths_shares(below: list[Node], asked: list[int], owner: int) -> None:
    cut, whole = tree(*below), tree(*below, ranges=False)
    found = paths(cut.root, owner)
    assert depth(cut, asked, owner) == max(common(path, asked) for path in found)
    assert depth(whole, asked, owner) == max(len(path) for path in found if common(path, asked) == len(path))
