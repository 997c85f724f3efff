"""What follows a child's end, as a table of pure decisions."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.parent.supervision import (
    ALLOWED,
    LONGEST_PAUSE,
    ChildState,
    GiveUp,
    Restart,
    after_end,
    is_model_fault,
)


def test_the_first_end_is_followed_by_a_short_pause_and_each_further_one_by_three_times_it() -> None:
    pauses = [after_end([0.0] * many, 1.0) for many in (1, 2, 3, 4)]
    assert [round(pause.pause, 2) for pause in pauses if isinstance(pause, Restart)] == [0.1, 0.3, 0.9, 2.7]


def test_the_fifth_end_within_a_minute_gives_the_model_up_and_says_why() -> None:
    assert after_end([0, 10, 20, 30, 59], 59.5) == GiveUp("the engine ended 5 times within 60 s of service")


def test_ends_longer_ago_than_a_minute_are_forgotten() -> None:
    assert after_end([0, 1, 2, 3, 100], 100) == Restart(0.1)


@given(st.lists(st.floats(0, 1000), max_size=30), st.floats(0, 1000))
def test_a_pause_is_never_longer_than_the_longest(ends: list[float], now: float) -> None:
    decision = after_end(ends, now)
    assert isinstance(decision, GiveUp) or 0 < decision.pause <= LONGEST_PAUSE


def test_a_ticket_that_was_there_at_two_ends_is_at_fault_and_not_the_model() -> None:
    assert not is_model_fault([7, 8], [3, 8])
    assert is_model_fault([7, 8], [3])
    assert is_model_fault([], [3])


def test_every_state_has_its_row_and_none_leads_to_itself() -> None:
    assert set(ALLOWED) == set(ChildState)
    assert all(state not in then for state, then in ALLOWED.items())
    assert all(ChildState.STOPPED in then for state, then in ALLOWED.items() if state is not ChildState.STOPPED)
