"""A prompt that comes back piece by piece has its cells, holds up nobody who needs nothing brought, and never starves."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.charging import ChargedMachine, Prices
from support.fake_engine import FakeBackend
from support.machine import Machine

from orchestrator.engine.messages import Cancel, InferenceJob, Outcome, Urgency, ids_to_bytes
from orchestrator.engine.scheduler.planner import Limits
from orchestrator.engine.scheduler.ticket import Phase

PIECES = 16
LONG = [at % 47 for at in range(PIECES * 256)]
NEAR = [at % 43 + 50 for at in range(200)]
SLOW = Prices(restore=0.5)  # a segment of the long floor: eight seconds in all, as 32k tokens of 128 KiB at 500 MB/s
BUDGET = Limits(64).budget_ms / 1000


def machine(folder: Path, prices: Prices = SLOW, cells: int = 40_000) -> ChargedMachine:
    """The long floor lies on disk alone; the near one stands in its cells."""
    made = ChargedMachine(prices, folder, cells=cells, window=20_000, sequences=30)
    for ticket, (name, ids) in enumerate((("long", LONG), ("near", NEAR)), start=1000):
        made.floor(name, ids)
        made.ask(ticket, name, [1], 0)
    made.finish()
    made.restart()
    made.ask(1002, "near", [2], 0)
    made.finish()
    return made


def alone(floor: list[int], tail: list[int], most: int) -> list[int]:
    fresh = Machine(backend=FakeBackend(10**9), cells=20_000, window=20_000)
    fresh.floor("floor", floor)
    fresh.ask(1, "floor", tail, most)
    fresh.finish()
    return fresh.answer(1)


def seconds_until_answered(made: ChargedMachine, ticket: int) -> float:
    began, rounds = made.charging.seconds, 0
    while not made.answer(ticket):
        made.round()
        made.loop.flush()
        rounds += 1
        assert rounds < 1000, "it is never answered"
    return made.charging.seconds - began


def test_a_question_whose_prompt_stands_waits_for_a_piece_of_anothers_restore_and_not_for_its_end(
    tmp_path: Path,
) -> None:
    made = machine(tmp_path)
    made.ask(1, "long", [5, 6], 5)
    made.round()
    made.ask(2, "near", [7, 8], 5)
    assert seconds_until_answered(made, 2) <= SLOW.restore + 0.1
    made.finish()
    assert (made.answer(1), made.answer(2)) == (alone(LONG, [5, 6], 5), alone(NEAR, [7, 8], 5))
    assert made.ends[1][0].computed == 2


def test_both_at_once_are_served_so_as_well(tmp_path: Path) -> None:
    made = machine(tmp_path)
    made.ask(1, "long", [5, 6], 5)
    made.ask(2, "near", [7, 8], 5)
    assert seconds_until_answered(made, 2) <= SLOW.open + SLOW.restore + 0.1
    made.finish()
    assert made.ends[1][0].outcome is Outcome.DONE


def test_a_long_prompt_that_is_computed_takes_a_quarter_of_the_time_of_one_that_came_first_and_is_restored(
    tmp_path: Path,
) -> None:
    price = Prices(restore=0.05)
    by_itself, beside = machine(tmp_path / "one", price), machine(tmp_path / "two", price)
    for made in (by_itself, beside):
        made.ask(1, "long", [5, 6], 5)
    beside.round()
    beside.ask(2, "near", [7] * 9000, 1)
    lone, both = seconds_until_answered(by_itself, 1), seconds_until_answered(beside, 1)
    assert both <= lone / 0.75 + 3 * BUDGET
    assert not beside.answer(2)


@settings(max_examples=6)
@given(st.lists(st.integers(0, 3), max_size=60), st.sampled_from([0.002, 0.05, 0.5]), st.booleans())
def test_whoever_comes_meanwhile_a_piece_is_restored_in_every_round_and_all_answers_are_right(
    tmp_path_factory: pytest.TempPathFactory, comes: list[int], price: float, streaming: bool
) -> None:
    made, asked = machine(tmp_path_factory.mktemp("model") / "kv", Prices(restore=price)), {1: ("long", LONG, [5, 6])}
    if streaming:
        made.ask(500, "near", [3], 400)
        seconds_until_answered(made, 500)
    made.ask(1, "long", [5, 6], 4)
    for rounds, tokens in enumerate([*comes, *[0] * (PIECES + 3)]):
        if tokens:
            ticket = 10 + rounds
            asked[ticket] = ("near", NEAR, [ticket] * tokens)
            made.ask(ticket, "near", asked[ticket][2], 4)
        made.round()
        if rounds == PIECES + 2:
            made.loop.flush()
            assert made.answer(1), "it starves"
    made.finish()
    for ticket, (_, floor, tail) in asked.items():
        assert made.answer(ticket) == alone(floor, tail, 4)
        assert made.ends[ticket][0].computed == len(tail)


def test_who_waits_for_the_same_floor_goes_on_restoring_it_when_the_first_one_is_called_off(tmp_path: Path) -> None:
    made = machine(tmp_path)
    made.ask(1, "long", [5, 6], 5)
    made.ask(2, "long", [7], 5)
    for _ in range(4):
        made.round()
    made.loop.handle(Cancel(1))
    made.finish()
    assert (made.ends[2][0].computed, made.answer(2)) == (1, alone(LONG, [7], 5))
    assert made.store.counters.disk_hits == PIECES + 1, "no piece is brought twice"  # and one of the near floor


def test_a_question_goes_on_with_what_is_restored_in_the_background(tmp_path: Path) -> None:
    made = machine(tmp_path)
    made.loop.handle(InferenceJob(1, "long", b"", 1, 0, urgency=Urgency.BACKGROUND))
    for _ in range(3):
        made.round()
    made.loop.handle(InferenceJob(2, "long", ids_to_bytes([7]), 1, 5))
    made.finish()
    assert (made.ends[2][0].computed, made.answer(2)) == (1, alone(LONG, [7], 5))
    assert made.ends[1][0].outcome is Outcome.DONE
    assert made.ends[1][0].computed == 0


def test_its_cells_are_its_own_while_it_is_restored(tmp_path: Path) -> None:
    made = machine(tmp_path, cells=5120)
    made.ask(1, "long", [5, 6], 100)
    made.round()
    assert made.loop._tickets[1].phase is Phase.RESTORING
    assert made.loop.pools.by_name["long"].in_use() >= len(LONG) + 2 + 100
    made.ask(2, "long", [8] * 663, 300)  # does not fit beside it
    made.round()
    assert made.loop._tickets[2].phase is Phase.WAITING
    made.finish()
    assert (made.answer(1), made.answer(2)) == (alone(LONG, [5, 6], 100), alone(LONG, [8] * 663, 300))


def test_a_piece_that_is_damaged_is_computed_and_nobody_waits_for_it(tmp_path: Path) -> None:
    made = machine(tmp_path)
    files = sorted(tmp_path.glob("*.kv"), key=lambda file: file.stat().st_size)
    files[-3].write_bytes(files[-3].read_bytes()[:-9])
    made.ask(1, "long", [5, 6], 5)
    made.ask(2, "long", [7], 5)
    made.finish()
    assert (made.answer(1), made.answer(2)) == (alone(LONG, [5, 6], 5), alone(LONG, [7], 5))
    assert made.ends[1][0].computed + made.ends[2][0].computed <= len(LONG) + 3
