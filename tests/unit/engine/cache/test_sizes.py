"""How many sequences a pool has: an answer fits into it, and a step takes a row of each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.machine import END_EVERY, Machine

from orchestrator.engine.cache.pool import sequences_of
from orchestrator.engine.fake import FakeBackend
from orchestrator.engine.messages import Outcome


@given(st.integers(2, 256), st.integers(32, 65_536), st.booleans())
def test_a_pool_has_room_for_one_answer_and_never_more_of_them_than_a_step_has_rows(
    sequences: int, batch: int, ranges: bool
) -> None:
    assert (2 if ranges else 3) <= sequences_of(FakeBackend(ranges=ranges), sequences, batch) <= max(3, batch)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("ranges", [False, True])
def test_with_the_fewest_sequences_that_may_be_set_everybody_is_answered(ranges: bool, constant: bool) -> None:
    machine = Machine(sequences=2, backend=FakeBackend(END_EVERY, ranges=ranges, constant=constant))
    machine.floor("code", range(50))
    for ticket in (1, 2, 3):
        machine.ask(ticket, "code", [ticket, 7], 5)
    machine.finish()
    assert [machine.ends[ticket][0].outcome for ticket in (1, 2, 3)] == [Outcome.DONE] * 3
