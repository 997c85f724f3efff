"""How many threads compute a step, and how long threads waited for a core."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

CORE_SECONDS = 1.0  # between looks at the cores
LEAST_CORE_SECONDS = 0.2  # that a look must be about: the kernel counts in hundredths


@dataclass(frozen=True)
class CoreTimes:
    """Seconds since some start: of the clock, that the cores at hand were busy (all together), and of them ours."""

    clock: float
    busy: float
    own: float


class ThreadCount:
    """How many threads compute beside what else ran here `since` the last look; `most` on a quiet machine. `use` gets what
    changes.

    llama.cpp's threads meet many times in a step and spin while they wait: one that other work keeps from its core holds
    up all of them. On two cores beside one busy process two threads took 22 to 86 ms for a token, one thread took 7;
    beside a schema that was compiled two took up to 750 ms, one took 16.
    """

    def __init__(
        self,
        most: int,
        use: Callable[[int], None],
        since: CoreTimes,
        read: Callable[[], CoreTimes] | None = None,
    ) -> None:
        self._most = most
        self._use = use
        self._read = read or core_times
        self._last = since
        self._threads = most
        self._others = 0.0  # cores that other processes keep busy
        self._apart = 0  # that other threads of ours do
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="thread-count", daemon=True).start()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What this thread computes inside has a core for itself."""
        self._set(apart=1)
        try:
            yield
        finally:
            self._set(apart=-1)

    def look(self) -> None:
        try:
            now, last = self._read(), self._last
        except OSError:
            return  # a machine without a descriptor to spare says nothing now: it is asked again
        if now.clock - last.clock < LEAST_CORE_SECONDS:
            return
        self._last = now
        self._set(others=max(0.0, (now.busy - last.busy) - (now.own - last.own)) / (now.clock - last.clock))

    def _set(self, *, others: float | None = None, apart: int = 0) -> None:
        with self._lock:
            self._others = self._others if others is None else others
            self._apart += apart
            threads = threads_beside(self._others + self._apart, len(os.sched_getaffinity(0)), self._most)
            if threads != self._threads:
                self._threads = threads
                self._use(threads)

    def _watch(self) -> None:
        waiting = threading.Event()
        while not waiting.wait(CORE_SECONDS):
            self.look()


def threads_beside(others: float, cores: int, most: int) -> int:
    """`others`: cores that other work keeps busy, on average. A core that is busy for less than half counts as free."""
    return max(1, min(most, int(cores - others + 0.5)))


def core_times() -> CoreTimes:
    every = psutil.cpu_times(percpu=True)
    mine = [every[core] for core in os.sched_getaffinity(0) if core < len(every)]
    busy = sum(core.user + core.nice + core.system + core.irq + core.softirq + core.steal for core in mine)
    return CoreTimes(time.monotonic(), busy, time.process_time())


def core_waits() -> dict[int, float]:
    """Seconds that each thread of this process, by its number, could have run and had no core; none where the kernel does
    not count them. https://docs.kernel.org/scheduler/sched-stats.html, /proc/PID/schedstat."""
    found = {}
    with suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            with suppress(OSError, IndexError):
                found[int(thread.name)] = int((thread / "schedstat").read_bytes().split()[1]) / 1e9
    return found
