"""How many threads compute beside what else runs on this machine.

llama.cpp's threads meet many times in a step and spin while they wait: one that another process keeps from its core holds
up all of them. On two cores beside one busy process two threads took 22 to 86 ms for a token, one thread took 7.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

SECONDS = 1.0  # between looks; the kernel counts in hundredths


@dataclass(frozen=True)
class CoreTimes:
    """Seconds since some start: of the clock, that the cores at hand were busy (all together), and of them ours."""

    clock: float
    busy: float
    own: float


class ThreadCount:
    """`use` is told the number of threads whenever it changes; `most` is how many compute on a quiet machine."""

    def __init__(self, most: int, use: Callable[[int], None], read: Callable[[], CoreTimes] | None = None) -> None:
        self._most = most
        self._use = use
        self._read = read or core_times
        self._last = self._read()
        self._threads = most

    def start(self) -> None:
        threading.Thread(target=self._watch, name="crowding", daemon=True).start()

    def look(self) -> None:
        try:
            now, last = self._read(), self._last
        except OSError:
            return  # a machine without a descriptor to spare says nothing now: it is asked again
        self._last = now
        if now.clock <= last.clock:
            return
        others = max(0.0, (now.busy - last.busy) - (now.own - last.own)) / (now.clock - last.clock)
        threads = threads_beside(others, cores(), self._most)
        if threads != self._threads:
            self._threads = threads
            self._use(threads)

    def _watch(self) -> None:
        waiting = threading.Event()
        while not waiting.wait(SECONDS):
            self.look()


def threads_beside(others: float, cores: int, most: int) -> int:
    """`others`: cores that other processes keep busy, on average. A core that is busy for less than half counts as free."""
    return max(1, min(most, int(cores - others + 0.5)))


def default_threads() -> int:
    """One a physical core, of those that this process may use."""
    return max(1, min(psutil.cpu_count(logical=False) or cores(), cores()))


def cores() -> int:
    return len(os.sched_getaffinity(0))


def core_times() -> CoreTimes:
    every = psutil.cpu_times(percpu=True)
    mine = [every[core] for core in os.sched_getaffinity(0) if core < len(every)]
    busy = sum(core.user + core.nice + core.system + core.irq + core.softirq + core.steal for core in mine)
    return CoreTimes(time.monotonic(), busy, time.process_time())
