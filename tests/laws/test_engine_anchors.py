"""Where memory cannot be cut, a prompt's marks are where the next one goes on: they save tokens and change no answer."""

import random
from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import few
from support.fake_engine import FakeBackend
from support.machine import END_EVERY, Machine, naive_answer

from orchestrator.engine.cache.state_tree import LEAST_TO_MARK
from orchestrator.engine.messages import Cancel, Outcome

FLOOR = [at % 50 for at in range(300)]
KINDS = {"joined": {"ranges": False}, "constant": {"ranges": False, "constant": True}}
kinds = pytest.mark.parametrize("kind", KINDS)
# A prompt is a row of texts with a mark behind each; few texts, so that prompts begin alike.
texts = st.lists(st.tuples(st.integers(1, 2), st.sampled_from([3, 20, 31, 32, 33, 90])), min_size=1, max_size=5)


def machine(kind: str, **options: object) -> Machine:
    made = Machine(window=4000, cells=40_000, backend=FakeBackend(END_EVERY, **KINDS[kind]), **options)
    made.floor("code", FLOOR)
    return made


def written(row: Sequence[tuple[int, int]]) -> tuple[list[int], tuple[int, ...]]:
    """The ids of a row of texts, and the ends of all but the last."""
    ids = [token for token, length in row for _ in range(length)]
    return ids, tuple(accumulate(length for _, length in row))[:-1]


def computed(one: Machine, ticket: int, row: Sequence[tuple[int, int]], owner: int = 1, most: int = 5) -> int:
    """Tokens of the prompt that were computed for its ticket, alone."""
    ids, marks = written(row)
    one.ask(ticket, "code", ids, most, owner, marks)
    one.finish()
    return one.ends[ticket][0].computed


@few(12)
@given(texts, texts, st.sampled_from(sorted(KINDS)))
def test_a_second_question_computes_what_is_behind_the_last_mark_that_both_have(
    one: list[tuple[int, int]], other: list[tuple[int, int]], kind: str
) -> None:
    made = machine(kind, sequences=12)
    (ids, marks), (others, _) = written(one), written(other)
    computed(made, 1, one)
    shared = [mark for mark in marks if ids[:mark] == others[:mark] and mark < len(others)]
    assert computed(made, 2, other) <= len(others) - max(shared, default=0) + LEAST_TO_MARK - 1


@kinds
def test_after_a_restart_another_conversation_goes_on_where_the_first_one_began(tmp_path, kind: str) -> None:
    made, head = machine(kind, folder=tmp_path, sequences=12), (7, 200)
    for ticket, row in enumerate([[head, (1, 40)], [head, (1, 40), (2, 50)], [head, (2, 60)]], 1):
        computed(made, ticket, row)
    made.restart()
    assert computed(made, 4, [head, (3, 5)]) == 5
    assert computed(made, 5, [head, (4, 6)]) == 6
    assert computed(made, 6, [head, (3, 5)], owner=2) == 205, "behind the floor nobody shares another's"


@kinds
def test_of_a_long_conversation_the_beginning_outlives_its_turns(kind: str) -> None:
    made, head, talk = machine(kind, sequences=6), (7, 200), list[tuple[int, int]]()
    for ticket in range(1, 12):
        talk.append((ticket, 40))
        computed(made, ticket, [head, *talk])
    assert computed(made, 20, [head, (30, 5)]) == 5


@kinds
def test_a_mark_that_is_nearly_where_a_node_ends_costs_no_step(kind: str) -> None:
    made = machine(kind, sequences=12)
    computed(made, 1, [(7, 200), (1, 5)])
    steps = [made.loop.counters.steps]
    for ticket, length in enumerate([LEAST_TO_MARK - 1, LEAST_TO_MARK], 2):
        computed(made, ticket, [(7, 200), (ticket, length), (9, 4)], most=0)
        steps.append(made.loop.counters.steps)
    assert [later - earlier for earlier, later in pairwise(steps)] == [1, 2]


asks = st.tuples(texts, st.integers(0, 20), st.integers(1, 2), st.integers(0, 3))


@few(10)
@given(
    st.lists(st.tuples(asks, st.sampled_from(["", "", "restart", "evict", "cancel"])), min_size=1, max_size=8),
    st.sampled_from(["ranges", *KINDS]), st.sampled_from([3, 6, 16]), st.booleans(), st.integers(0, 2**32),
)  # fmt: skip
def test_marks_never_change_an_answer(tmp_path_factory, script, kind: str, sequences: int, disk: bool, seed: int):
    chance = random.Random(seed)
    folder = tmp_path_factory.mktemp("model") / "kv" if disk else None
    made = Machine(
        window=4000, cells=chance.choice([2048, 40_000]), folder=folder, sequences=sequences,
        backend=FakeBackend(END_EVERY, **KINDS.get(kind, {})),
    )  # fmt: skip
    made.floor("code", FLOOR)
    for ticket, ((row, most, owner, rounds), event) in enumerate(script, 1):
        ids, ends = written(row)
        marks = tuple(sorted(chance.sample(range(len(ids) + 2), min(3, len(ids))))) if chance.random() < 0.5 else ends
        made.ask(ticket, "code", ids, most, owner, marks)
        for _ in range(rounds):
            made.round()
        happen(made, event, ticket, chance)
    made.finish()
    for ticket, ((row, most, *_), _) in enumerate(script, 1):
        end, expected = made.ends.get(ticket), naive_answer([*FLOOR, *written(row)[0]], most)
        whole = end is not None and end[0].outcome is Outcome.DONE
        assert made.answer(ticket) == (expected if whole else expected[: len(made.answer(ticket))])


def happen(made: Machine, event: str, ticket: int, chance: random.Random) -> None:
    if event == "restart":
        made.finish()
        made.restart()
    elif event == "cancel":
        made.loop.handle(Cancel(chance.randint(1, ticket)))
    elif event == "evict":
        for pool in made.loop.pools.by_name.values():
            while (tip := pool.tree.stalest()) is not None and chance.random() < 0.8:
                pool.tree.evict(tip)


def test_marks_make_no_nodes_where_memory_can_be_cut() -> None:
    made = Machine()
    made.floor("code", FLOOR)
    made.ask(1, "code", [1] * 200, 0, marks=(50, 100))
    made.finish()
    assert [(one.start, one.end) for one in made.loop.pools.by_name["code"].tree.nodes()] == [(0, 300), (300, 500)]
