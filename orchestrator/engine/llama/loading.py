"""How far a model is that is being loaded, and whether it still moves.

llama.cpp tells what it has placed of the weights, but a mapped file it has read in one call before that, of which it tells
nothing: of 587 MB from a cold disk the first word came when all was read. What was read is seen by the memory that the
process takes, and that the call goes on by the page faults of its thread, whether pages come from a disk, from the network
or from the cache. Both are asked of the kernel; where it does not say, llama.cpp's word is all there is.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from orchestrator.engine.messages import ModelLoading

# Predicted for the longest while without a sign of life, so the watchdog waits ten minutes: a driver may compile kernels
# that long for a GPU it has not met, and a load is ended for nothing at the price of all that was read.
STILL_SECONDS = 60.0
TELL_SECONDS = 0.5
HEARTBEAT = 30  # times that it may be told: then it is, though nothing is new, as a sign that this process still runs
PAGE = os.sysconf("SC_PAGE_SIZE")


class LoadProgress:
    """Of one model, which the thread that makes this loads."""

    def __init__(self) -> None:
        self._thread = threading.get_native_id()
        self._placed = 0.0
        self._size = 0
        self._before = 0
        self._farthest = 0.0

    def begin(self, size: int) -> None:
        """What the process takes from now on is this model's, whose files have so many bytes."""
        self._size, self._before = size, resident()

    def place(self, fraction: float, _: object = None) -> bool:
        """llama.cpp's callback: it stops loading where it gets anything but True, so nothing here can fail."""
        self._placed = fraction
        return True

    def fraction(self) -> float:
        read = (resident() - self._before) / self._size if self._size else 0.0
        return min(1.0, max(0.0, self._placed, read))

    def signs(self) -> object:
        """Another value whenever the load has moved."""
        return self._placed, faults(self._thread)

    def news(self, *, old: bool = False) -> ModelLoading | None:
        """What is to be told: once for each further percent, and `old` news too where they are wanted."""
        before = self._farthest
        self._farthest = max(before, self.fraction())  # memory may be taken back under pressure
        return ModelLoading(self._farthest) if old or int(100 * self._farthest) > int(100 * before) else None


@contextmanager
def telling(progress: LoadProgress, tell: Callable[[Sequence[ModelLoading]], None]) -> Iterator[None]:
    """Tells, from a thread of its own, how far it is; nothing any more when this has ended."""
    over = threading.Event()

    def go_on() -> None:
        for time in count():
            if over.wait(TELL_SECONDS):
                return
            if (news := progress.news(old=time % HEARTBEAT == 0)) is not None:
                tell([news])

    thread = threading.Thread(target=go_on, name="loading", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def resident() -> int:
    """Bytes of memory that this process has, mapped files included; 0 where the kernel does not say."""
    return int((said("/proc/self/statm") or ["0", "0"])[1]) * PAGE


def faults(thread: int) -> int:
    """Page faults of a thread of this process, by its native number; 0 where the kernel does not say."""
    fields = said(f"/proc/self/task/{thread}/stat")
    return int(fields[7]) + int(fields[9]) if fields else 0


def said(path: str) -> list[str]:
    """The words behind the name, which stands in brackets and may have any in it."""
    try:
        return Path(path).read_text().rpartition(")")[2].split()
    except OSError:
        return []
