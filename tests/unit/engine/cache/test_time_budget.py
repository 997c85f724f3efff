"""What a round grants: one piece in any case, then what ends in time."""

import pytest

from orchestrator.engine.cache.time_budget import OutOfTime, TimeBudget, endless


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
