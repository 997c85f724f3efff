"""Comparisons that are made behind an answer and kept: what is told meanwhile, and when the next one begins."""

import threading

from support.waiting import SOON

from codex.errors import CodexError
from codex.following.comparing import KEPT_S, LONGEST_S, Comparing, Differences

TWO = Differences(changed=2)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def comparing(answers, clock):
    """Asked one after the other; what is asked for is noted."""
    asked = []

    def compare(name, cancelled):
        asked.append(name)
        answer = answers[min(len(asked), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Comparing(compare, clock), asked


def test_nothing_is_known_before_somebody_wanted_it_and_then_what_was_found():
    made, _ = comparing([TWO], Clock())
    assert made.latest("a", 1) == Differences()
    made.want("a", 1)
    made.wait()
    assert made.latest("a", 1) == TWO
    assert made.latest("b", 1) == Differences()


def test_what_was_found_of_another_state_is_not_told_and_compared_at_once():
    made, asked = comparing([TWO, Differences(added=1)], Clock())
    made.want("a", 1)
    made.wait()
    assert made.latest("a", 2) == Differences()
    made.want("a", 2)
    made.wait()
    assert made.latest("a", 2) == Differences(added=1)
    assert asked == ["a", "a"]


def test_what_is_young_is_not_compared_again():
    clock = Clock()
    made, asked = comparing([TWO], clock)
    for clock.now in (0.0, KEPT_S - 1, KEPT_S + 1):
        made.want("a", 1)
        made.wait()
    assert asked == ["a", "a"]


def test_a_comparison_takes_no_more_than_a_twentieth_of_the_time():
    clock = Clock()

    def slow(name, cancelled):
        clock.now += 10
        return TWO

    made = Comparing(slow, clock)
    ended = []
    for clock.now in (0.0, 100.0, 209.0, 211.0):
        made.want("a", 1)
        made.wait()
        ended.append(clock.now)
    assert ended == [10.0, 100.0, 209.0, 221.0]


def test_one_is_made_at_a_time_and_the_answer_waits_for_none():
    going_on = threading.Event()

    def held_up(name, cancelled):
        going_on.wait(SOON)
        return TWO

    made = Comparing(held_up)
    made.want("a", 1)
    made.want("b", 1)
    assert made.latest("a", 1) == Differences()
    going_on.set()
    made.wait()
    assert (made.latest("a", 1), made.latest("b", 1)) == (TWO, Differences())


def test_a_folder_that_cannot_be_compared_is_told_nothing_of_and_not_asked_at_once_again():
    made, asked = comparing([CodexError("it is gone"), OSError("no")], Clock())
    for name in ("a", "b", "a", "b"):
        made.want(name, 1)
        made.wait()
    assert asked == ["a", "b"]
    assert made.latest("a", 1) == Differences()


def test_one_that_takes_too_long_is_told_to_end():
    clock, seen = Clock(), []

    def patient(name, cancelled):
        seen.append(cancelled())
        clock.now += LONGEST_S + 1
        seen.append(cancelled())
        return TWO

    made = Comparing(patient, clock)
    made.want("a", 1)
    made.wait()
    assert seen == [False, True]
