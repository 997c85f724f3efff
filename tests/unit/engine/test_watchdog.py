"""The watchdog tells of a step that takes ten times its prediction, and of nothing else."""

import pytest

from orchestrator.engine.watchdog import FACTOR, LEAST_SECONDS, Watchdog


class Hands:
    """A clock that the test sets, and what was told."""

    def __init__(self, predicted: float) -> None:
        self.now = 0.0
        self.told: list[float] = []
        self.watchdog = Watchdog(lambda: predicted, lambda: self.now, self.told.append)

    def step(self, seconds: float) -> None:
        with self.watchdog.step():
            self.now += seconds
            self.watchdog.look()


def test_the_first_step_may_take_any_time() -> None:
    hands = Hands(0.1)
    hands.step(1000)
    assert hands.told == []


@pytest.mark.parametrize(("predicted", "limit"), [(0.1, LEAST_SECONDS), (20.0, FACTOR * 20.0)])
def test_a_later_one_is_told_beyond_ten_times_its_prediction_and_at_least_thirty_seconds(
    predicted: float, limit: float
) -> None:
    hands = Hands(predicted)
    hands.step(1)
    hands.step(limit)
    assert hands.told == []
    hands.step(limit + 1)
    assert hands.told == [limit + 1]


def test_between_steps_there_is_nothing_to_tell() -> None:
    hands = Hands(0.1)
    hands.step(1)
    hands.now += 10_000
    hands.watchdog.look()
    assert hands.told == []


def test_a_step_that_fails_has_ended_too() -> None:
    hands = Hands(0.1)
    with pytest.raises(RuntimeError), hands.watchdog.step():
        raise RuntimeError
    hands.now += 10_000
    hands.watchdog.look()
    assert hands.told == []
