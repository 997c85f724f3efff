"""A round's plan: answers first, prefill for one pool, class before length and age, within the budget; whoever comes and
goes meanwhile, every answer is right, and nobody and nothing waits for a plan.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.charging import ChargedMachine, Prices
from support.examples import few
from support.machine import Machine, naive_answer

from orchestrator.engine.costs import FEWEST, Costs
from orchestrator.engine.messages import Cancel, Grant, InferenceJob, Reason, Urgency, ids_to_bytes
from orchestrator.engine.scheduler import planner
from orchestrator.engine.scheduler.planner import Limits, Want, plan_round
from orchestrator.engine.scheduler.step import Draft, Step, drafted


def want(ticket: int, tokens: int = 100, pool: int = 0, *, background: bool = False) -> Want:
    return Want(background, (tokens, ticket), ticket, pool, tokens)


def planned(
    answering: dict[int, list[int]] | None = None, wants: tuple[Want, ...] = (), budget: float = 1e9
) -> tuple[Step, ...]:
    limits = Limits(512, budget, alone_ms=budget)
    return plan_round(answering or {}, wants, {0: 1000, 1: 1000, 2: 1000}, limits, Costs())


def test_a_plan_names_who_follows_another_s_prefill_and_the_loop_tells_and_ends_it() -> None:
    made = Machine(batch=8)
    made.floor("code", range(1, 41))
    for ticket in (1, 2):
        made.ask(ticket, "code", [], 0)
    made.round()
    loop, told = made.loop, len(made.told)
    plan = planner.planned(loop._tickets, loop.pools, loop._speculation, Limits(8), loop.costs)
    assert [step.prefill for step in plan.steps] == [((1, 8),)]
    assert (plan.finished, [ticket.number for ticket in plan.following]) == ((), [2])
    assert (len(made.told), set(loop._tickets)) == (told, {1, 2})
    made.finish()
    ends = {number: [(end.reason, end.computed) for end in made.ends[number]] for number in (1, 2)}
    assert ends == {1: [(Reason.PREFILLED, 40)], 2: [(Reason.PREFILLED, 0)]}


def test_a_plan_says_who_computes_what_nobody_computes_and_the_loop_does_it() -> None:
    made = Machine(batch=8)
    made.floor("code", range(1, 41))
    for ticket in (1, 2):
        made.ask(ticket, "code", [], 0)
    made.round()
    made.loop.handle(Cancel(1))
    loop = made.loop
    node = loop._tickets[2].unfinished()
    assert node is not None
    for _ in range(2):
        plan = planner.planned(loop._tickets, loop.pools, loop._speculation, Limits(8), loop.costs)
        assert (plan.claims, [step.prefill for step in plan.steps]) == ({node: 2}, [((2, 8),)])
        assert node.computed_by is None, "planning has changed what it looks at"
    made.round()
    assert node.computed_by == 2


def test_every_running_answer_gets_its_token_in_every_pool() -> None:
    assert planned({0: [1, 2], 2: [3]}) == (Step(0, (1, 2)), Step(2, (3,)))


def test_with_nothing_to_do_there_is_no_step() -> None:
    assert planned({0: []}) == ()


def test_prefill_goes_to_one_pool_a_round() -> None:
    steps = planned({0: [9], 1: [8]}, (want(1, pool=0), want(2, pool=1)))
    assert [step.prefill for step in steps] == [((1, 100),), ()]


def test_interactive_comes_before_background_and_of_equal_length_the_oldest() -> None:
    wants = (want(1, background=True), want(3), want(2))
    assert [ticket for ticket, _ in planned(wants=wants)[0].prefill] == [2, 3, 1]


def test_what_the_first_leaves_of_a_batch_goes_to_the_next_of_its_pool() -> None:
    assert planned(wants=(want(1, 500), want(2, 500)))[0].prefill == ((1, 500), (2, 12))


def test_a_prefill_always_moves_however_small_the_budget() -> None:
    assert planned({0: [5]}, (want(1),), budget=0.0)[0].prefill[0][1] >= 1


def test_while_nobody_is_answered_steps_may_be_longer() -> None:
    limits = Limits(512, budget_ms=1.0, alone_ms=1e9)
    alone, beside = (plan_round(a, (want(1, 500),), {0: 1000}, limits, Costs()) for a in ({}, {0: [9]}))
    assert alone[0].prefill == ((1, 500),)
    assert beside[0].prefill[0][1] <= 64


@given(st.floats(10, 2000), st.floats(0.1, 1.0), st.integers(1, 9), st.integers(1, 3000))
def test_a_share_of_the_time_beside_answers_is_not_exceeded_and_binds_no_prompt_that_is_alone(
    budget: float, share: float, answers: int, tokens: int
) -> None:
    costs, cells = Costs(), {0: 1000}
    limits = Limits(512, budget, alone_ms=budget, prefill_share=share)
    (alone,) = plan_round({}, (want(1, tokens),), cells, limits, costs)
    assert alone == plan_round({}, (want(1, tokens),), cells, replace(limits, prefill_share=1.0), costs)[0]
    (beside,) = plan_round({0: list(range(answers))}, (want(99, tokens),), cells, limits, costs)
    answers_ms = costs.milliseconds(answers, 1000, answers)
    ((_, chosen),) = beside.prefill
    whole_ms = costs.milliseconds(answers + chosen, 1000, answers)
    assert chosen <= FEWEST or whole_ms - answers_ms <= max(0.0, (budget - answers_ms) * share) + 1e-6


@given(st.integers(0, 9), st.integers(0, 400), st.integers(1, 3000), st.floats(1, 2000))
def test_what_nobody_waits_for_takes_no_more_of_a_round_than_what_somebody_waits_for_and_moves_in_each(
    answers: int, awaited: int, aside: int, budget: float
) -> None:
    costs, limits = Costs(), Limits(512, budget, alone_ms=budget)
    wants = (*([want(90, awaited)] if awaited else []), want(91, aside, background=True))
    (step,) = plan_round({0: list(range(answers))}, wants, {0: 1000}, limits, costs)
    served = dict(step.prefill)
    if not answers and not awaited:
        assert served == {91: costs.chunk(0, 1000, aside, 512, budget)}
        return
    without_ms = costs.milliseconds(answers + served.get(90, 0), 1000, answers)
    assert served.get(91, 0) >= 1 or served[90] < awaited or step.rows == 512
    whole_ms = costs.milliseconds(step.rows, 1000, answers)
    assert served.get(91, 0) <= FEWEST or whole_ms <= without_ms + max(without_ms, planner.UNWAITED_MS) + 1e-6


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 60), st.integers(1, 30_000), st.floats(1, 2000))
def test_a_prompt_that_does_not_end_in_a_round_takes_no_more_of_it_than_all_answers_and_what_ends_and_moves_in_each(
    answers: int, elsewhere: int, question: int, tokens: int, budget: float
) -> None:
    costs, limits = Costs(), Limits(512, budget, alone_ms=budget)
    wants = (*([want(90, question)] if question else []), want(91, max(question, tokens)))
    answering = {0: list(range(answers)), 1: list(range(100, 100 + elsewhere))}
    step, *_ = plan_round(answering, wants, {0: 1000, 1: 1000}, limits, costs)
    served, wanted = dict(step.prefill), {one.ticket: one.tokens for one in wants}
    assert served
    ended = [number for number, tokens in served.items() if tokens == wanted[number]]
    if len(ended) == len(served) or not (answers or elsewhere or ended):
        return
    rows = answers + sum(served[number] for number in ended)
    without_ms = costs.milliseconds(rows, 1000, answers) if rows else 0.0
    others_ms = costs.milliseconds(elsewhere, 1000, elsewhere) if elsewhere else 0.0
    whole_ms = costs.milliseconds(step.rows, 1000, answers)
    (longer,) = served.keys() - {*ended}
    most_ms = without_ms + max(without_ms + others_ms, planner.AWAITED_MS)
    assert served[longer] <= FEWEST or whole_ms <= most_ms + 1e-6
    twice_ms = costs.milliseconds(rows + 2 * served[longer] + 1, 1000, answers)
    most = min(most_ms, budget - others_ms)
    assert twice_ms > most - 1e-6 or step.rows + served[longer] >= 512, "it could have had more"


def test_an_answer_beside_a_long_prompt_has_more_tokens_a_second_than_a_person_reads() -> None:
    costs = Costs()
    (step,) = plan_round({0: [1]}, (want(2, 30_000),), {0: 1000}, Limits(512), costs)
    assert costs.milliseconds(step.rows, 1000, 1) <= 1000 / 15
    assert dict(step.prefill)[2] > FEWEST


def test_a_question_s_first_token_does_not_wait_for_what_a_long_prompt_could_compute_while_nobody_is_answered() -> None:
    limits, costs = Limits(4096, budget_ms=220.0, alone_ms=1000.0), Costs()
    (step,) = plan_round({}, (want(1, 10), want(2, 3000)), {0: 0}, limits, costs)
    (alone,) = plan_round({}, (want(2, 3000),), {0: 0}, limits, costs)
    assert dict(step.prefill)[1] == 10
    assert costs.milliseconds(step.rows, 0, 1) <= 221.0 < costs.milliseconds(alone.rows, 0, 1)


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
tokens = st.integers(1, 63).map(lambda count: (7,) * count)
drafts = st.dictionaries(st.integers(100, 200), st.builds(Draft, tokens, st.floats(0, 63)), max_size=100)


@pytest.mark.parametrize("batch", [32, 64, 100, 512])
@few(60)
@given(many_answers, wants_of, st.floats(1, 2000), drafts)
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
        assert len(step.answering) + drafted(step.drafts) <= max(limits.logits, len(step.answering))


def test_three_drafted_answers_share_a_small_batch() -> None:
    drafts = {number: Draft((7,) * 63, 60.0) for number in (1, 2, 3)}
    (step,) = plan_round({0: [1, 2, 3]}, (), {0: 1000}, Limits(32), Costs(), drafts)
    assert 3 < step.rows <= 32


def left_of(wants: list[Want], rounds: int, answering: dict[int, list[int]]) -> dict[int, int]:
    """What is left of each want after so many rounds."""
    left = {one.ticket: one.tokens for one in wants}
    for _ in range(rounds):
        now = [replace(one, tokens=left[one.ticket]) for one in wants if left[one.ticket]]
        for step in plan_round(answering, now, {0: 1000, 1: 1000, 2: 1000}, Limits(512), Costs()):
            for ticket, tokens in step.prefill:
                assert 0 < tokens <= left[ticket]
                left[ticket] -= tokens
    return left


@pytest.mark.parametrize("answering", [{}, {0: [9]}, {1: [9]}, {0: [8], 2: [9]}])
@pytest.mark.parametrize("pool", [0, 1])
def test_a_short_question_beside_a_long_cold_prefill_is_prefilled_at_once(
    pool: int, answering: dict[int, list[int]]
) -> None:
    wants = [want(1, 30_000), want(2, 14, pool)]
    assert left_of(wants, 1, answering)[2] == 0
    assert left_of(wants, 2, answering)[1] < 30_000


def test_of_two_long_ones_the_shorter_goes_first_and_the_other_waits() -> None:
    left = left_of([want(1, 30_000), want(2, 20_000, 1)], 2, {})
    assert (left[1], left[2] < 20_000) == (30_000, True)


def test_a_background_prefill_however_short_waits_for_interactive_ones() -> None:
    assert left_of([want(1, 30_000), want(2, 14, 1, background=True)], 20, {})[2] == 14


arriving = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 400)), max_size=4)


@few(25)
@given(st.integers(1, 1500), st.lists(arriving, min_size=1, max_size=10), answers)
def test_a_prefill_is_overtaken_by_none_that_begins_once_as_many_tokens_were_computed(
    tokens: int, script: list[list[tuple[int, int]]], answering: dict[int, list[int]]
) -> None:
    """Further ones begin in each round, without end; the first one is finished all the same."""
    wants, left, computed = {1: want(1, tokens)}, {1: tokens}, 0
    begun = {1: 0}
    rounds = 0
    while left[1]:
        for pool, length in script[rounds % len(script)]:
            number = len(wants) + 1
            wants[number] = replace(want(number, length, pool), due=(computed + length, number))
            left[number], begun[number] = length, computed
        rounds += 1
        assert rounds < 10_000, "it starves"
        now = [replace(one, tokens=left[number]) for number, one in wants.items() if left[number]]
        for step in plan_round(answering, now, {0: 1000, 1: 1000, 2: 1000}, Limits(512), Costs()):
            served = [ticket for ticket, _ in step.prefill]
            assert not served or begun[served[0]] < tokens
            for ticket, count in step.prefill:
                left[ticket] -= count
                computed += count


CODE = [at % 47 for at in range(300)]


asking = st.tuples(st.just("ask"), st.tuples(st.sampled_from(["code", "other"]), st.integers(1, 200), st.booleans()))
script = st.lists(
    st.one_of(
        asking,
        asking,
        st.tuples(st.just("rounds"), st.integers(1, 20)),
        st.tuples(st.just("cancel"), st.integers(1, 8)),
        st.tuples(st.just("grant"), st.integers(1500, 9000)),
    ),
    max_size=30,
)


@few(40)
@given(script)
def test_whoever_comes_goes_or_loses_its_grant_every_answer_is_right(made: list[tuple[str, Any]]) -> None:
    machine, asked, cancelled = Machine(cells=8192), dict[int, list[int]](), set[int]()
    machine.floor("code", CODE)
    machine.floor("other", CODE[:100])
    for kind, value in made:
        if kind == "ask":
            floor, length, background = value
            ticket, tail = len(asked) + 1, [(at + length) % 53 for at in range(length)]
            asked[ticket] = [*machine.floors[floor], *tail]
            urgency = Urgency.BACKGROUND if background else Urgency.INTERACTIVE
            machine.loop.handle(InferenceJob(ticket, floor, ids_to_bytes(tail), 1, 40, urgency=urgency))
        elif kind == "rounds":
            for _ in range(value):
                machine.round()
        elif kind == "cancel":
            cancelled.add(value)
            machine.loop.handle(Cancel(value))
        else:
            machine.loop.handle(Grant(2, value, 2048))
    machine.finish()
    machine.loop.close()
    for ticket in asked.keys() - cancelled:
        assert machine.answer(ticket) == naive_answer(asked[ticket], 40)


def streaming(tmp_path: Path) -> ChargedMachine:
    """One answer that goes on and on, beside three floors idle in pools of their own, of which nothing is kept below."""
    machine = ChargedMachine(Prices(step=0.1, save=0.1), cells=16384, window=4096, folder=tmp_path, disk_budget=1)
    for ticket, name in enumerate(("one", "two", "three"), start=100):
        machine.floor(name, [ticket] * 600)
        machine.ask(ticket, name, [1], 0)
        machine.finish()
    machine.floor("code", CODE)
    machine.ask(1, "code", [3], 500)
    while machine.loop.has_idle_work() or not machine.answer(1):
        machine.round()
        machine.loop.flush()
    return machine


def test_who_comes_beside_an_answer_comes_in_with_the_next_round(tmp_path: Path) -> None:
    machine = streaming(tmp_path)
    for _ in range(3):
        machine.round()
    machine.ask(2, "code", [4], 5)
    machine.round()
    machine.round()
    machine.loop.flush()
    assert machine.answer(2)


def test_what_is_no_longer_granted_goes_a_piece_in_each_round(tmp_path: Path) -> None:
    machine = streaming(tmp_path)
    pools = machine.loop.pools
    code = pools.by_name["code"].memory.cells
    machine.loop.handle(Grant(2, code, 4096))
    rounds = 0
    while pools.held() > code:
        machine.round()
        rounds += 1
    assert set(pools.by_name) == {"code"}
    assert 2 < rounds <= 16, "a piece in each round"
