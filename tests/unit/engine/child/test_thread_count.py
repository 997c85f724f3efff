"""Threads of a step, beside what else keeps the cores busy."""

import os
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.child.worker import CoreTimes, ThreadCount, core_times, threads_beside
from orchestrator.engine.model import default_threads

CORES = len(os.sched_getaffinity(0))


def told(busy_cores: list[float], own_cores: list[float], most: int) -> list[int]:
    """What is told when the machine and we are so busy in one second after the other."""
    found: list[int] = []

    def seconds() -> Iterator[CoreTimes]:
        busy = own = 0.0
        yield CoreTimes(0.0, busy, own)
        for second, (all_of_us, we) in enumerate(zip(busy_cores, own_cores, strict=True), 1):
            busy, own = busy + all_of_us, own + we
            yield CoreTimes(float(second), busy, own)

    count = ThreadCount(most, found.append, seconds().__next__)
    for _ in busy_cores:
        count.look()
    return found


@given(st.floats(0, 256), st.integers(1, 256), st.integers(1, 256))
def test_at_least_one_thread_and_never_more_than_on_a_quiet_machine(others: float, count: int, most: int) -> None:
    assert 1 <= threads_beside(others, count, most) <= most


def test_a_busy_process_takes_its_core_away_and_gives_it_back() -> None:
    assert told([1.0, 1.0, 0.0], [0.0, 0.0, 0.0], CORES) == ([CORES - 1, CORES] if CORES > 1 else [])


def test_our_own_work_crowds_nobody() -> None:
    count = float(CORES)
    assert told([count, count], [count, count], CORES) == []


def test_nothing_is_told_while_nothing_changes() -> None:
    assert told([0.1, 0.0, 0.2], [0.0, 0.0, 0.0], CORES) == []


def test_a_machine_that_does_not_say_for_a_moment_is_asked_again_and_ends_nothing() -> None:
    found: list[int] = []
    reads: Iterator[CoreTimes | OSError] = iter(
        [CoreTimes(0.0, 0.0, 0.0), OSError(23, "Too many open files in system"), CoreTimes(2.0, 2.0, 0.0)]
    )

    def read() -> CoreTimes:
        if isinstance(one := next(reads), OSError):
            raise one
        return one

    count = ThreadCount(CORES, found.append, read)
    count.look()
    count.look()
    assert found == ([CORES - 1] if CORES > 1 else [])


def test_the_kernel_s_figures_are_read() -> None:
    first = core_times()
    sum(range(100_000))
    second = core_times()
    assert second.clock > first.clock
    assert second.own > first.own
    assert second.busy >= first.busy
    assert 1 <= default_threads() <= CORES <= (os.cpu_count() or 1)
