"""The picture of the cells: how far a prompt leads in it, through equal and through foreign siblings."""

from array import array

from hypothesis import given
from hypothesis import strategies as st
from support.machine import Machine

from orchestrator.engine.cache.node import Node
from orchestrator.engine.cache.path import Path
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.checkpoints.view import View
from orchestrator.engine.child.cache_view import EMPTY, Shape, Standing, anchored, cast, matched
from orchestrator.engine.child.forecast import foretold
from orchestrator.engine.fake import FakeBackend
from orchestrator.engine.messages import Cancel, Reuse, Tier


def node(tokens: list[int], *below: Shape, filled: int | None = None, owner: int | None = None) -> Shape:
    return Shape(array("I", tokens), len(tokens), len(tokens) if filled is None else filled, owner, below)


def root(*below: Shape) -> Shape:
    return node([], *below)


def ids(*tokens: int) -> "array[int]":
    return array("I", tokens)


def test_a_picture_of_nothing_shares_nothing() -> None:
    assert matched(EMPTY, ids(1), 1) == anchored(EMPTY, ids(1), 1) == Standing(0, 0)


def test_of_siblings_that_begin_alike_the_one_that_goes_on_is_followed() -> None:
    short, long = node([1, 2], owner=1), node([1, 2], node([3, 4], owner=1), owner=1)
    for siblings in ((short, long), (long, short)):
        assert matched(root(*siblings), ids(1, 2, 3, 4, 5), 1).depth == 4


def test_a_sibling_that_shares_more_and_ends_there_is_no_end_of_the_search() -> None:
    """The greedy walk took the nearer one, which three tokens are shared with, and never saw the other's child."""
    split = root(node([1, 2, 3, 9], owner=1), node([1, 2], node([3, 4, 5], owner=1), owner=1))
    assert matched(split, ids(1, 2, 3, 4, 5), 1).depth == 5


def test_what_is_another_users_is_not_there() -> None:
    one = root(node([7], node([1, 2], owner=1), node([1], owner=2)))
    assert [matched(one, ids(7, 1, 2), owner).depth for owner in (1, 2, 3)] == [3, 2, 1]


def test_what_is_being_computed_is_told_apart_from_what_stands() -> None:
    assert matched(root(node([1, 2, 3, 4], filled=2)), ids(1, 2, 3, 9), 1) == Standing(3, 2)


def test_an_anchor_that_grows_after_the_picture_was_taken_is_not_told_before_the_next_one() -> None:
    grown = node([1, 2, 3], owner=1)
    grown.ids.append(4)
    assert anchored(root(grown), ids(1, 2, 3, 4), 1).depth == 0
    assert matched(root(grown), ids(1, 2, 3, 4), 1).depth == 3


def test_between_anchors_nothing_is_shared() -> None:
    one = root(node([1, 2], node([3, 4], owner=1)))
    assert anchored(one, ids(1, 2, 3, 5), 1) == Standing(2, 2, (0, 2))
    assert anchored(one, ids(1, 2, 3, 4, 5), 1) == Standing(4, 4, (0, 2, 4))


def test_a_conversation_of_two_thousand_turns_is_told_from_its_picture() -> None:
    """A node a turn, each below the one before."""
    pool = Pool("code", FakeBackend().open(4096, 4), lambda _pool, _node: None)
    tip, talk = pool.tree.root, array("I", range(2000))
    for token in talk:
        below = Node(tip, tip.end, array("I", [token]), 1, filled=1)
        tip.children.append(below)
        tip = below
    picture = cast({"code": pool}, View(), ranges=True)
    assert matched(picture.pools["code"], talk, 1) == Standing(2000, 2000)
    assert foretold(picture, "code", Path(talk, 0, 1), 0) == ((Reuse(0, 2000, Tier.VRAM),), 2000)


def everything(shape: Shape) -> list[Shape]:
    return [shape, *(one for below in shape.below for one in everything(below))]


def test_what_is_given_up_after_the_picture_was_taken_takes_no_token_from_it() -> None:
    machine = Machine()
    machine.floor("code", [n % 50 for n in range(600)])
    machine.ask(1, "code", [1, 2, 3], 5)
    for _ in range(3):
        machine.round()
    shapes = everything(machine.loop.picture().pools["code"])
    assert any(0 < shape.filled < shape.length for shape in shapes), "somebody is computing it"
    machine.loop.handle(Cancel(1))
    assert [len(shape.ids) for shape in shapes] == [shape.length for shape in shapes]


shapes = st.recursive(
    st.builds(node, st.lists(st.integers(1, 2), min_size=1, max_size=3), owner=st.sampled_from([None, 1, 2])),
    lambda below: st.builds(
        lambda tokens, children, owner: node(tokens, *children, owner=owner),
        st.lists(st.integers(1, 2), min_size=1, max_size=3), st.lists(below, max_size=3), st.sampled_from([None, 1, 2]),
    ),
    max_leaves=12,
)  # fmt: skip


def paths(shape: Shape, owner: int) -> list[list[int]]:
    """All that a user could share, as lists of tokens."""
    own = list(shape.ids)
    mine = [child for child in shape.below if child.owner in (None, owner)]
    return [own, *([*own, *path] for child in mine for path in paths(child, owner))]


def common(one: list[int], other: list[int]) -> int:
    most = min(len(one), len(other))
    return next((at for at in range(most) if one[at] != other[at]), most)


@given(st.lists(shapes, max_size=3), st.lists(st.integers(1, 2), max_size=8), st.sampled_from([1, 2]))
def test_the_depth_is_what_the_best_of_all_paths_shares(below: list[Shape], asked: list[int], owner: int) -> None:
    one = root(*below)
    assert matched(one, ids(*asked), owner).depth == max(common(path, asked) for path in paths(one, owner))
    whole = [len(path) for path in paths(one, owner) if common(path, asked) == len(path)]
    assert anchored(one, ids(*asked), owner).depth == max(whole)
