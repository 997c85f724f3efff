"""A round never stalls an answer beyond its budget: whatever waits, is restored or evicted beside it."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.charging import ChargedMachine, Prices

from orchestrator.engine.messages import Grant
from orchestrator.engine.scheduler.planner import Limits

BUDGET = Limits(64).budget_ms / 1000
PREFILL = 0.02  # a round's prefill comes to a few tokens, whatever time is left


def floors(count: int, tokens: int = 256) -> dict[str, list[int]]:
    return {f"floor{n}": [(n * 13 + at) % 50 for at in range(tokens)] for n in range(count)}


def on_disk(prices: Prices, folder: Path, known: dict[str, list[int]]) -> ChargedMachine:
    """All floors lie on disk, in no pool; ticket 1 streams its answer."""
    machine = ChargedMachine(prices, folder, cells=200_000, window=20_000, sequences=12)
    for ticket, (name, ids) in enumerate(known.items(), start=100):
        machine.floor(name, ids)
        machine.ask(ticket, name, [1, 2], 0)
    machine.finish()
    machine.restart()
    return streaming(machine, "streaming", [7] * 10)


def streaming(machine: ChargedMachine, floor: str, ids: list[int]) -> ChargedMachine:
    machine.floor(floor, ids)
    machine.ask(1, floor, [3], 500)
    for _ in range(20):
        machine.round()
    machine.loop.flush()
    return machine


prices = st.builds(
    Prices, token=st.sampled_from([0.0005, 0.001]), save=st.floats(0.001, 0.2), restore=st.floats(0.001, 0.2),
    open=st.floats(0.0, 0.2),
)  # fmt: skip


@settings(max_examples=12)
@given(prices, st.integers(1, 6), st.integers(100, 600), st.integers(2, 300))
def test_no_gap_is_longer_than_the_budget_and_one_piece_however_many_wait_for_floors_on_disk(
    price: Prices, questions: int, tokens: int, tail: int
) -> None:
    with TemporaryDirectory() as folder:
        known = floors(questions, tokens)
        machine = on_disk(price, Path(folder), known)
        for ticket, name in enumerate(known, start=200):
            machine.ask(ticket, name, [5] * tail, 1)
        assert max(machine.gaps(1, 60)) <= BUDGET + price.piece + PREFILL
        machine.store.close()


@settings(max_examples=12)
@given(prices, st.integers(1, 5), st.integers(100, 900))
def test_no_gap_is_longer_when_pools_close_and_what_stood_in_them_is_saved(
    price: Prices, questions: int, tail: int
) -> None:
    machine = ChargedMachine(price, cells=4096, window=2048, sequences=6)
    known = floors(questions, 600)
    for ticket, (name, ids) in enumerate(known.items(), start=100):
        machine.floor(name, ids)
        machine.ask(ticket, name, [ticket] * 50, 2)
        machine.finish()
    streaming(machine, "streaming", [7] * 10)
    for ticket, name in enumerate(known, start=200):
        machine.ask(ticket, name, [5] * tail, 1)
    machine.loop.handle(Grant(2, 3000, 2048))
    assert max(machine.gaps(1, 60)) <= BUDGET + price.piece + PREFILL


@pytest.mark.parametrize("questions", [1, 2, 4, 6])
def test_restores_of_a_tenth_of_a_second_hold_up_an_answer_by_no_more_than_a_round(
    questions: int, tmp_path: Path
) -> None:
    known = floors(questions)
    machine = on_disk(Prices(), tmp_path, known)
    for ticket, name in enumerate(known, start=200):
        machine.ask(ticket, name, [5] * 400, 1)
    assert max(machine.gaps(1, 60)) <= 0.24
    assert machine.store.counters.disk_hits == questions
