"""The cost curve is learned from steps, and prompts are cut by it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.machine import Machine

from orchestrator.engine.costs import FEWEST, Costs, OutOfTime, TimeBudget, endless


def cpu(rows: int, cells: int, slower: float = 1.0) -> float:
    return slower * (5 + 0.5 * rows + 1e-3 * cells + 4e-4 * rows * cells)


def gpu(rows: int, cells: int) -> float:
    return 3 + 0.02 * rows + 1e-5 * rows * cells


def taught(machine, steps: int = 300, seed: int = 0) -> Costs:
    costs, chance = Costs(), random.Random(seed)
    for _ in range(steps):
        rows, cells = chance.choice([1, 2, 8, 40, 64, 128, 512]), chance.choice([100, 1000, 8000, 30000])
        costs.learn(rows, cells, machine(rows, cells) * chance.uniform(0.95, 1.05))
    return costs


def test_it_learns_the_machine_s_curve() -> None:
    for machine in (cpu, gpu):
        costs = taught(machine)
        for rows, cells in ((1, 8000), (8, 8000), (64, 8000), (512, 30000)):
            assert abs(costs.milliseconds(rows, cells) / machine(rows, cells) - 1) < 0.35


def test_it_follows_a_machine_that_became_slower() -> None:
    costs, chance = taught(cpu), random.Random(1)
    for _ in range(800):
        rows, cells = chance.choice([1, 8, 64, 512]), chance.choice([1000, 8000, 30000])
        costs.learn(rows, cells, cpu(rows, cells, slower=3.0))
    assert 2 < costs.milliseconds(64, 8000) / cpu(64, 8000) < 4


def test_a_process_s_first_step_which_reads_the_weights_from_the_disk_is_not_taken_for_what_steps_cost() -> None:
    machine = Machine()
    machine.floor("code", [7] * 20)
    for _ in range(2):
        machine.ask(1, "code", [1, 2], 4)
        machine.round()
        assert (machine.loop.counters.steps, machine.loop.costs.kept()) == (1, {})
        machine.round()
        assert machine.loop.costs.kept()
        machine.restart()


measured = st.tuples(st.integers(1, 512), st.integers(0, 130_000), st.floats(0.01, 60_000))


@given(st.lists(measured, max_size=60), st.integers(1, 512), st.integers(0, 130_000))
def test_whatever_was_measured_a_prediction_is_a_positive_number(
    steps: list[tuple[int, int, float]], rows: int, cells: int
) -> None:
    costs = Costs()
    for step in steps:
        costs.learn(*step)
    assert 0 < costs.milliseconds(rows, cells) < 1e12


@given(st.integers(0, 30), st.integers(0, 50_000), st.integers(1, 5000), st.floats(0, 2000))
def test_a_chunk_is_at_least_one_token_and_never_more_than_wanted_or_fits(
    beside: int, cells: int, wanted: int, budget: float
) -> None:
    size = Costs().chunk(beside, cells, wanted, 512, budget)
    assert 1 <= size <= min(wanted, 512 - beside)


@given(
    st.integers(0, 12),
    st.integers(0, 20_000),
    st.integers(1, 5000),
    st.floats(1, 2000),
    st.sampled_from([40, 100, 512]),
)
def test_a_chunk_keeps_to_its_budget_unless_it_is_of_the_fewest_tokens(
    beside: int, cells: int, wanted: int, budget: float, batch: int
) -> None:
    costs = taught(cpu, steps=60)
    size = costs.chunk(beside, cells, wanted, batch, budget)
    assert size <= FEWEST or costs.milliseconds(beside + size, cells) <= budget


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


def test_the_first_piece_is_granted_also_when_the_time_is_over() -> None:
    slack = TimeBudget(Clock(), until=3.0)
    slack.take()
    with pytest.raises(OutOfTime):
        slack.take()


def test_pieces_are_granted_while_one_as_long_as_the_last_still_ends_in_time() -> None:
    clock = Clock()
    slack, granted = TimeBudget(clock, until=11.0), 0
    while slack.left():
        slack.take()
        granted += 1
        clock.now += 0.3
    assert granted == 3


def test_what_must_be_done_now_is_always_granted() -> None:
    slack = endless()
    for _ in range(5):
        slack.take()
    assert slack.left()
