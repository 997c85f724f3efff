"""What follows a child's end, as a table of pure decisions."""

import errno

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.client.supervisor import (
    ALLOWED,
    LONGEST_PAUSE,
    ChildState,
    GiveUp,
    Restart,
    after_end,
    is_lasting,
    is_model_fault,
    loading_words,
    pause_after,
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


@given(st.integers(0, 10**9))
def test_a_pause_grows_with_what_came_to_nothing_and_is_never_longer_than_the_longest(times: int) -> None:
    assert 0 < pause_after(times) <= pause_after(times + 1) <= LONGEST_PAUSE


def test_what_the_machine_lacks_is_waited_for_and_a_file_that_is_not_there_is_not() -> None:
    passing = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOBUFS)
    assert not any(is_lasting(OSError(number, "")) for number in passing)
    assert is_lasting(FileNotFoundError(errno.ENOENT, "python"))
    assert is_lasting(PermissionError(errno.EACCES, "python"))


def test_the_reason_of_a_load_says_how_far_it_is_and_never_that_it_is_done() -> None:
    assert loading_words(0.0, again=False) == "the model is loading"
    assert loading_words(0.439, again=False) == "the model is loading, 43 %"
    assert loading_words(1.0, again=True) == "the model is loading again, 99 %"


def test_a_ticket_that_was_there_at_two_ends_is_at_fault_and_not_the_model() -> None:
    assert not is_model_fault([7, 8], [3, 8])
    assert is_model_fault([7, 8], [3])
    assert is_model_fault([], [3])


def test_every_state_has_its_row_and_none_leads_to_itself() -> None:
    assert set(ALLOWED) == set(ChildState)
    assert all(state not in then for state, then in ALLOWED.items())
    assert all(ChildState.STOPPED in then for state, then in ALLOWED.items() if state is not ChildState.STOPPED)
