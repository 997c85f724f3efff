"""A round's plan: answers first, prefill for one pool, class before age, within the budget."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.costs import Costs
from orchestrator.engine.scheduler.planner import (
    SHORT_MS,
    SHORT_SHARE,
    Draft,
    Limits,
    Step,
    Want,
    credit_after,
    plan_round,
)


def want(ticket: int, tokens: int = 100, pool: int = 0, *, background: bool = False) -> Want:
    return Want(background, ticket, ticket, pool, tokens)


def planned(
    answering: dict[int, list[int]] | None = None, wants: tuple[Want, ...] = (), budget: float = 1e9
) -> tuple[Step, ...]:
    limits = Limits(512, budget, alone_ms=budget)
    return plan_round(answering or {}, wants, {0: 1000, 1: 1000, 2: 1000}, limits, Costs())


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
    alone, beside = (plan_round(a, (want(1, 500),), {0: 1000}, limits, Costs()) for a in ({}, {0: [9]}))
    assert alone[0].prefill == ((1, 500),)
    assert beside[0].prefill[0][1] <= 64


wants_of = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3000), st.booleans()), max_size=8)
answers = st.dictionaries(st.integers(0, 2), st.lists(st.integers(100, 200), max_size=9, unique=True), max_size=3)


@given(answers, wants_of, st.floats(1, 2000))
def test_any_plan_serves_all_answers_once_and_keeps_to_the_batch_and_to_what_was_wanted(
    answering: dict[int, list[int]], specs: list[tuple[int, int, bool]], budget: float
) -> None:
    wants = tuple(want(n, tokens, pool, background=back) for n, (pool, tokens, back) in enumerate(specs))
    steps = planned(answering, wants, budget)
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
        assert step.rows <= 512
    if prefills:
        assert prefills[0][1] == min(wants).ticket


many_answers = st.dictionaries(st.integers(0, 2), st.lists(st.integers(100, 200), max_size=31, unique=True), max_size=3)
drafted = st.dictionaries(st.integers(100, 200), st.builds(Draft, st.integers(1, 63), st.floats(0, 63)), max_size=100)


@pytest.mark.parametrize("batch", [32, 64, 100, 512])
@settings(max_examples=200)
@given(many_answers, wants_of, st.floats(1, 2000), drafted)
def test_no_step_has_more_rows_than_the_backend_takes_nor_more_drafts_than_it_has_logits_for(
    batch: int,
    answering: dict[int, list[int]],
    specs: list[tuple[int, int, bool]],
    budget: float,
    drafts: dict[int, Draft],
) -> None:
    wants = tuple(want(n, tokens, pool, background=back) for n, (pool, tokens, back) in enumerate(specs))
    limits, costs = Limits(batch, budget, alone_ms=budget), Costs()
    for step in plan_round(answering, wants, {0: 1000, 1: 1000, 2: 1000}, limits, costs, drafts):
        assert step.rows <= batch
        assert len(step.answering) + sum(count for _, count in step.drafts) <= max(limits.logits, len(step.answering))


def test_three_drafted_answers_share_a_small_batch() -> None:
    drafts = {number: Draft(63, 60.0) for number in (1, 2, 3)}
    (step,) = plan_round({0: [1, 2, 3]}, (), {0: 1000}, Limits(32), Costs(), drafts)
    assert 3 < step.rows <= 32


def prefilled(
    wants: list[Want], rounds: int, answering: dict[int, list[int]], costs: Costs, credit: float = 0.0
) -> tuple[list[list[Step]], dict[int, int]]:
    """So many rounds of a prefill: their steps, and what is left of each want."""
    left, made = {one.ticket: one.tokens for one in wants}, []
    for _ in range(rounds):
        now = [replace(one, tokens=left[one.ticket]) for one in wants if left[one.ticket]]
        steps = plan_round(answering, now, {0: 1000, 1: 1000, 2: 1000}, Limits(512), costs, None, credit)
        credit = credit_after(credit, steps)
        made.append(list(steps))
        for step in steps:
            for ticket, tokens in step.prefill:
                assert 0 < tokens <= left[ticket]
                left[ticket] -= tokens
    return made, left


@pytest.mark.parametrize("answering", [{}, {0: [9]}, {1: [9]}, {0: [8], 2: [9]}])
@pytest.mark.parametrize("pool", [0, 1])
def test_a_short_question_beside_a_long_cold_prefill_is_prefilled_within_a_few_rounds(
    pool: int, answering: dict[int, list[int]]
) -> None:
    made, left = prefilled([want(1, 30_000), want(2, 14, pool)], 6, answering, Costs())
    assert left[2] == 0
    assert all(any(ticket == 1 for step in steps for ticket, _ in step.prefill) for steps in made)


def test_a_short_question_that_was_saved_up_for_is_prefilled_at_once() -> None:
    _, left = prefilled([want(1, 30_000), want(2, 14, 1)], 1, {0: [9]}, Costs(), credit=SHORT_MS)
    assert left[2] == 0


def test_what_is_no_short_prefill_waits_for_its_age() -> None:
    _, left = prefilled([want(1, 30_000), want(2, 20_000, 1)], 20, {}, Costs(), credit=SHORT_MS)
    assert left[2] == 20_000


def test_a_background_prefill_however_short_waits_for_interactive_ones() -> None:
    _, left = prefilled([want(1, 30_000), want(2, 14, 1, background=True)], 20, {}, Costs(), credit=SHORT_MS)
    assert left[2] == 14


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 400)), min_size=1, max_size=12), answers)
def test_short_prefills_that_never_cease_take_no_more_than_their_share_of_the_first(
    specs: list[tuple[int, int]], answering: dict[int, list[int]]
) -> None:
    """In each round the same short ones want as much again: the oldest still has three quarters of the time."""
    costs, credit, left, shorts, total = Costs(), 0.0, 30_000, 0.0, 0.0
    cells = {0: 1000, 1: 1000, 2: 1000}
    for _ in range(60):
        wants = [want(1, left), *(want(2 + n, tokens, pool) for n, (pool, tokens) in enumerate(specs))]
        steps = plan_round(answering, wants, cells, Limits(512), costs, None, credit)
        credit = credit_after(credit, steps)
        for step in steps:
            assert step.rows <= 512
            mine = sum(tokens for ticket, tokens in step.prefill if ticket == 1)
            left -= mine
            others = sum(tokens for ticket, tokens in step.prefill if ticket != 1) if step.credit_ms < 0 else 0
            shorts += costs.milliseconds(others, 1000) if others and not mine else 0.0
            total += costs.milliseconds(mine, 1000) if mine else 0.0
    assert left < 30_000
    assert shorts <= SHORT_SHARE / (1 - SHORT_SHARE) * total * 1.5 + 500
