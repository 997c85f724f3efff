"""A round's plan: answers first, prefill for one pool, class before age, within the budget."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.costs import Costs
from orchestrator.engine.plan import Limits, Step, Want, plan_round


def want(ticket: int, tokens: int = 100, pool: int = 0, *, background: bool = False) -> Want:
    return Want(background, ticket, ticket, pool, tokens)


def planned(
    answering: dict[int, list[int]] | None = None, wants: tuple[Want, ...] = (), budget: float = 1e9, tile: int = 1
) -> tuple[Step, ...]:
    limits = Limits(512, budget, alone_ms=budget)
    return plan_round(answering or {}, wants, {0: 1000, 1: 1000, 2: 1000}, limits, Costs(tile))


def test_every_running_answer_gets_its_token_in_every_pool() -> None:
    assert planned({0: [1, 2], 2: [3]}) == (Step(0, (1, 2)), Step(2, (3,)))


def test_with_nothing_to_do_there_is_no_step() -> None:
    assert planned({0: []}) == ()


def test_prefill_goes_to_one_pool_a_round() -> None:
    steps = planned({0: [9], 1: [8]}, (want(1, pool=0), want(2, pool=1)))
    assert [step.prefill for step in steps] == [((1, 100),), ()]


def test_interactive_comes_before_background_and_then_the_oldest() -> None:
    wants = (want(1, background=True), want(3), want(2))
    assert planned(wants=wants)[0].prefill == ((2, 100), (3, 100), (1, 100))


def test_what_the_first_leaves_of_a_batch_goes_to_the_next_of_its_pool() -> None:
    assert planned(wants=(want(1, 500), want(2, 500)))[0].prefill == ((1, 500), (2, 12))


def test_a_prefill_always_moves_however_small_the_budget() -> None:
    assert planned({0: [5]}, (want(1),), budget=0.0)[0].prefill[0][1] >= 1


def test_while_nobody_is_answered_steps_may_be_longer() -> None:
    limits = Limits(512, budget_ms=1.0, alone_ms=1e9)
    alone, beside = (plan_round(a, (want(1, 500),), {0: 1000}, limits, Costs(64)) for a in ({}, {0: [9]}))
    assert alone[0].prefill == ((1, 500),)
    assert beside[0].prefill[0][1] <= 64


wants_of = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3000), st.booleans()), max_size=8)
answers = st.dictionaries(st.integers(0, 2), st.lists(st.integers(100, 200), max_size=9, unique=True), max_size=3)


@given(answers, wants_of, st.floats(1, 2000), st.sampled_from([1, 64]))
def test_any_plan_serves_all_answers_once_and_keeps_to_the_batch_and_to_what_was_wanted(
    answering: dict[int, list[int]], specs: list[tuple[int, int, bool]], budget: float, tile: int
) -> None:
    wants = tuple(want(n, tokens, pool, background=back) for n, (pool, tokens, back) in enumerate(specs))
    steps = planned(answering, wants, budget, tile)
    served = {step.pool: list(step.answering) for step in steps if step.answering}
    assert served == {pool: tickets for pool, tickets in answering.items() if tickets}
    assert len({step.pool for step in steps}) == len(steps)
    prefills = [(step, ticket, tokens) for step in steps for ticket, tokens in step.prefill]
    assert len({step.pool for step, _, _ in prefills}) <= 1
    assert bool(prefills) == bool(wants)
    for step, ticket, tokens in prefills:
        assert 0 < tokens <= wants[ticket].tokens
        assert wants[ticket].pool == step.pool
    for step in steps:
        assert len(step.answering) + sum(tokens for _, tokens in step.prefill) + step.padding <= 512
    if prefills:
        assert prefills[0][1] == min(wants).ticket


@given(st.integers(0, 8), st.integers(64, 5000), st.floats(50, 1000))
def test_a_step_keeps_to_its_budget_when_more_than_one_tile_could_be_taken(
    beside: int, tokens: int, budget: float
) -> None:
    costs, limits = Costs(64), Limits(512, budget, alone_ms=budget)
    (step,) = plan_round({0: list(range(100, 100 + beside))}, (want(1, tokens),), {0: 1000}, limits, costs)
    rows = beside + step.prefill[0][1] + step.padding
    assert rows <= 64 + 63 or costs.milliseconds(rows, 1000) <= budget
