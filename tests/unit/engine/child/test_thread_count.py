"""Threads of a step, beside what else keeps the cores busy."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from support.fake_engine import FakeBackend

from orchestrator.engine.child.thread_count import CoreTimes, ThreadCount, core_times, threads_beside
from orchestrator.engine.child.worker import Watchdog, Worker, overrun
from orchestrator.engine.messages import Shutdown
from orchestrator.engine.model import EngineSpec, default_threads
from orchestrator.engine.transport import Wire

CORES = len(os.sched_getaffinity(0))
QUIET = CoreTimes(0.0, 0.0, 0.0)


def told(busy_cores: list[float], own_cores: list[float], most: int) -> list[int]:
    """What is told when the machine and we are so busy in one second after the other."""
    found: list[int] = []

    def seconds() -> Iterator[CoreTimes]:
        busy = own = 0.0
        yield CoreTimes(0.0, busy, own)
        for second, (all_of_us, we) in enumerate(zip(busy_cores, own_cores, strict=True), 1):
            busy, own = busy + all_of_us, own + we
            yield CoreTimes(float(second), busy, own)

    read = seconds().__next__
    count = ThreadCount(most, found.append, read(), read)
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
        [OSError(23, "Too many open files in system"), CoreTimes(2.0, 2.0, 0.0)]
    )

    def read() -> CoreTimes:
        if isinstance(one := next(reads), OSError):
            raise one
        return one

    count = ThreadCount(CORES, found.append, QUIET, read)
    count.look()
    count.look()
    assert found == ([CORES - 1] if CORES > 1 else [])


def test_what_ran_while_the_model_was_loaded_counts_for_the_first_step() -> None:
    backend, now = FakeBackend(), core_times()
    backend.threads = CORES
    ours, theirs = socket.socketpair()
    busy_since = CoreTimes(now.clock - 100, now.busy - 100 * (CORES - 1), now.own)
    watchdog = Watchdog(time.monotonic, overrun)
    worker = Worker(backend, EngineSpec("fake"), Wire(theirs), watchdog, busy_since)
    running = threading.Thread(target=worker.run)
    with ours:
        running.start()
        Wire(ours).send([Shutdown()])
        running.join(60)
    assert backend.threads == 1


def test_a_moment_too_short_for_the_kernel_s_clock_says_nothing_and_is_joined_to_the_next() -> None:
    found: list[int] = []
    reads = iter([CoreTimes(0.01, 0.02, 0.0), CoreTimes(0.5, 0.5, 0.0)])
    count = ThreadCount(CORES, found.append, QUIET, reads.__next__)
    count.look()
    assert found == []
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


def test_a_thread_that_shares_its_core_with_a_busy_process_waits_for_it() -> None:
    """A process of its own, which may bind itself to one core."""
    shared = """
import os, signal
from orchestrator.engine.child.thread_count import core_waits
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
other = os.fork()
while other == 0:
    pass
before, most = core_waits(), 2_000
while most and max(core_waits().values()) < max(before.values()) + 0.05:
    sum(range(200_000))
    most -= 1
os.kill(other, signal.SIGKILL)
print(bool(most), len(before))
"""
    said = subprocess.run([sys.executable, "-P", "-c", shared], capture_output=True, text=True, check=True, timeout=100)
    assert said.stdout.split() == ["True", "1"]
