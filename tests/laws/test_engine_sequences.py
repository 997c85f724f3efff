"""More answers than sequences and cells: who has none waits in line, and no answer is another for it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import few
from support.fake_engine import FakeBackend
from support.machine import END_EVERY, Machine, naive_answer

from orchestrator.engine.messages import Admitted, Grant, Outcome

FLOOR = [at % 50 for at in range(300)]

jobs = st.lists(
    st.tuples(
        st.sampled_from(["code", "other"]), st.lists(st.integers(1, 3), min_size=1, max_size=40), st.integers(0, 20),
        st.integers(0, 6),
    ),
    min_size=1, max_size=25,
)  # fmt: skip


def crowd(cells: int, *, ranges: bool = True) -> Machine:
    """A machine whose pools have three sequences."""
    machine = Machine(cells=cells, window=2048, sequences=3, backend=FakeBackend(END_EVERY, ranges=ranges))
    machine.floor("code", FLOOR)
    machine.floor("other", FLOOR[::-1])
    return machine


@few(20)
@given(jobs, st.sampled_from([1024, 2048, 12_000]), st.booleans())
def test_however_many_ask_every_answer_is_right_and_the_line_is_kept(
    asked: list[tuple[str, list[int], int, int]], cells: int, ranges: bool
) -> None:
    machine = crowd(cells, ranges=ranges)
    for ticket, (floor, tail, most, rounds) in enumerate(asked, 1):
        machine.ask(ticket, floor, tail, most, owner=1 + ticket % 2)
        for _ in range(rounds):
            machine.round()
            assert machine.loop.pools.held() <= cells
    machine.finish()
    for ticket, (floor, tail, most, _) in enumerate(asked, 1):
        (end,) = machine.ends[ticket]
        assert end.outcome is Outcome.DONE
        assert machine.answer(ticket) == naive_answer([*machine.floors[floor], *tail], most)
    entered = [message.ticket for message in machine.told if isinstance(message, Admitted)]
    assert entered == sorted(entered), "somebody was overtaken"


@pytest.mark.parametrize(("granted", "stay"), [(1536, {"other"}), (2048, {"code", "other"})])
def test_what_a_pool_takes_beside_its_cells_counts_once_for_each_pool(granted: int, stay: set[str]) -> None:
    """A grant has one pool's left out already: two pools of 1,024 and 512 cells need 512 tokens more."""
    backend = FakeBackend(END_EVERY)
    backend.info = replace(backend.info, pool_tokens=512)
    machine = Machine(cells=1024, window=2048, sequences=3, backend=backend)
    machine.floor("code", FLOOR)
    machine.floor("other", FLOOR[::-1])
    machine.ask(1, "code", [1, 2, 3], 4)
    machine.finish()
    machine.loop.handle(Grant(2, granted, 2048))
    machine.ask(2, "other", [1, 2, 3], 4)
    machine.finish()
    assert set(machine.loop.pools.by_name) == stay
    assert [machine.ends[ticket][0].outcome for ticket in (1, 2)] == [Outcome.DONE] * 2


def test_thirty_conversations_of_three_turns_on_a_small_pool_are_all_answered() -> None:
    machine, talks, ticket = crowd(2048), {talk: [talk] + [7] * 40 for talk in range(30)}, 0
    for _ in range(3):
        asked = dict[int, int]()
        for talk, tail in talks.items():
            ticket += 1
            asked[ticket] = talk
            machine.ask(ticket, "code", tail, 60, owner=talk % 7)
        machine.finish()
        for number, talk in asked.items():
            assert machine.ends[number][0].outcome is Outcome.DONE
            assert machine.answer(number) == naive_answer([*FLOOR, *talks[talk]], 60)
            talks[talk] = [*talks[talk], *machine.answer(number), 3]


def test_a_ticket_that_needs_a_larger_pool_gets_it_once_those_before_it_were_answered() -> None:
    machine = crowd(8192)
    machine.backend.end_every = 10**9
    machine.ask(1, "code", [3], 200)
    machine.finish()
    small = machine.loop.pools.by_name["code"].memory.cells
    machine.ask(2, "code", [3], 50)
    machine.round()
    machine.ask(3, "code", [at % 40 for at in range(1700)], 5)
    machine.ask(4, "code", [4], 5)
    machine.finish()
    assert [machine.ends[ticket][0].outcome for ticket in (2, 3, 4)] == [Outcome.DONE] * 3
    assert machine.loop.pools.by_name["code"].memory.cells >= small
