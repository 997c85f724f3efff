"""The cost curve: learned from steps, and padding only where it pays."""

import random

from hypothesis import given
from hypothesis import strategies as st
from support.machine import Machine

from orchestrator.engine.costs import FEWEST, Costs


def cpu(rows: int, cells: int, slower: float = 1.0) -> float:
    """A machine with tiles: rows in full tiles are cheap at depth, others dear."""
    full = rows // 64 * 64
    return slower * (5 + 0.5 * rows + 1e-4 * full * cells + 4e-3 * (rows - full) * cells)


def gpu(rows: int, cells: int) -> float:
    return 3 + 0.02 * rows + 1e-5 * rows * cells


def taught(tile: int, machine, steps: int = 300, seed: int = 0) -> Costs:
    costs, chance = Costs(tile), random.Random(seed)
    for _ in range(steps):
        rows, cells = chance.choice([1, 2, 8, 40, 64, 128, 512]), chance.choice([100, 1000, 8000, 30000])
        costs.learn(rows, cells, machine(rows, cells) * chance.uniform(0.95, 1.05))
    return costs


def test_it_learns_the_machine_s_curve() -> None:
    for tile, machine in ((64, cpu), (1, gpu)):
        costs = taught(tile, machine)
        for rows, cells in ((1, 8000), (8, 8000), (64, 8000), (512, 30000)):
            assert abs(costs.milliseconds(rows, cells) / machine(rows, cells) - 1) < 0.35


def test_it_follows_a_machine_that_became_slower() -> None:
    costs, chance = taught(64, cpu), random.Random(1)
    for _ in range(800):
        rows, cells = chance.choice([1, 8, 64, 512]), chance.choice([1000, 8000, 30000])
        costs.learn(rows, cells, cpu(rows, cells, slower=3.0))
    assert 2 < costs.milliseconds(64, 8000) / cpu(64, 8000) < 4


def test_it_follows_although_padding_is_asked_for_before_each_step() -> None:
    costs = Costs(64)
    for _ in range(40):
        costs.padding(1, 8000, 512)
        costs.learn(1, 8000, 500.0)
    assert abs(costs.milliseconds(1, 8000) / 500 - 1) < 0.2


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


def test_a_short_step_at_depth_is_padded_to_the_tile() -> None:
    assert taught(64, cpu).padding(14, 8000, 512) == 50


def test_one_row_at_no_depth_is_not_padded() -> None:
    assert taught(64, cpu).padding(1, 10, 512) == 0


def test_a_full_tile_and_an_empty_step_are_never_padded() -> None:
    costs = Costs(64)
    assert [costs.padding(rows, 8000, 512) for rows in (0, 64, 128)] == [0, 0, 0]


@given(st.integers(0, 600), st.integers(0, 130_000))
def test_without_tiles_nothing_is_padded(rows: int, cells: int) -> None:
    assert Costs(1).padding(rows, cells, 1024) == 0


measured = st.tuples(st.integers(1, 512), st.integers(0, 130_000), st.floats(0.01, 60_000))


@given(st.lists(measured, max_size=60), st.integers(1, 512), st.integers(0, 130_000))
def test_whatever_was_measured_a_prediction_is_a_positive_number(
    steps: list[tuple[int, int, float]], rows: int, cells: int
) -> None:
    costs = Costs(64)
    for step in steps:
        costs.learn(*step)
    assert 0 < costs.milliseconds(rows, cells) < 1e12


@given(st.integers(0, 30), st.integers(0, 50_000), st.integers(1, 5000), st.floats(0, 2000), st.sampled_from([1, 64]))
def test_a_chunk_is_at_least_one_token_and_never_more_than_wanted_or_fits(
    beside: int, cells: int, wanted: int, budget: float, tile: int
) -> None:
    size = Costs(tile).chunk(beside, cells, wanted, 512, budget)
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
    costs = taught(64, cpu, steps=60)
    size = costs.chunk(beside, cells, wanted, batch, budget)
    rows = beside + size
    made = rows + (padding if rows + (padding := costs.padding(rows, cells, 512)) <= batch else 0)
    assert size <= FEWEST or costs.milliseconds(made, cells) <= budget


def test_a_step_is_not_priced_by_a_padding_that_the_backend_does_not_take() -> None:
    costs = taught(64, cpu)
    tile, loose = costs.milliseconds(64, 8000), costs.milliseconds(40, 8000)
    assert tile < loose
    assert costs.chunk(0, 8000, 40, 64, (tile + loose) / 2) == 40
    assert costs.chunk(0, 8000, 40, 63, (tile + loose) / 2) < 40


def test_a_chunk_fills_whole_tiles_with_the_answers_beside_it() -> None:
    assert [Costs(64).chunk(beside, 1000, 5000, 512, 1e9) for beside in (0, 1, 8)] == [512, 511, 504]


def test_one_tile_is_taken_rather_than_half_of_a_chunk_that_fills_none() -> None:
    costs = taught(64, cpu)
    assert costs.chunk(1, 8000, 100, 512, costs.milliseconds(64, 8000) * 1.01) == 63
