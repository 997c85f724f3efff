"""Whose prefill comes when: a short question does not wait for a long cold floor, and nobody starves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.charging import ChargedMachine, Prices

from orchestrator.engine.messages import Outcome

LONG = 5000


def beside_a_cold_floor(streams: bool, long: int = LONG) -> ChargedMachine:
    """A warm codex, and a cold one whose prefill of some seconds has begun (ticket 2)."""
    machine = ChargedMachine(Prices(), cells=60_000, window=30_000, sequences=12, batch=512)
    machine.floor("warm", [at % 50 for at in range(300)])
    machine.ask(1, "warm", [1], 0)
    machine.finish()
    if streams:
        machine.ask(9, "warm", [9], 400)
        machine.round()
    machine.floor("cold", [at % 40 for at in range(long)])
    machine.ask(2, "cold", [1], 1)
    for _ in range(3):
        machine.round()
    return machine


@pytest.mark.parametrize("streams", [False, True])
def test_a_short_question_on_a_warm_codex_is_answered_within_a_few_rounds_of_a_cold_ones_prefill(streams: bool) -> None:
    machine = beside_a_cold_floor(streams)
    machine.ask(3, "warm", [5] * 14, 1)
    rounds = 0
    while 3 not in machine.ends:
        machine.round()
        rounds += 1
    assert rounds <= 4
    assert 2 not in machine.ends


@settings(max_examples=4)
@given(st.integers(1, 200), st.integers(1, 3))
def test_a_cold_floor_is_done_once_others_had_as_many_tokens_however_many_short_questions_come(
    tail: int, each_round: int
) -> None:
    long = 2000
    machine, number = beside_a_cold_floor(streams=False, long=long), 10
    while 2 not in machine.ends:
        for _ in range(each_round):
            machine.ask(number := number + 1, "warm", [number % 50] * tail, 1)
        machine.round()
    others = machine.loop.counters.computed_tokens - long
    assert others <= long + 300 + 512 + each_round * tail
    machine.finish()
    assert {end.outcome for ends in machine.ends.values() for end in ends} == {Outcome.DONE}
