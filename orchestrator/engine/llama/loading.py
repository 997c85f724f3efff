"""How far the load of a model is, and whether it still moves.

llama.cpp reports which part of the weights it has placed. Before that it reads a mapped file in one call, of which it
reports nothing: of 587 MB from a cold disk the first report came when all was read. How much was read is seen by the
memory that the process takes, and that the call goes on by the page faults of its thread, whether pages come from a disk,
from the network or from the cache. Where the kernel does not have these figures, llama.cpp's reports are all there is.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from orchestrator.engine.messages import ModelLoading

# Predicted for the longest while without a sign of life, so the watchdog waits ten minutes: a driver may compile kernels
# that long for a GPU it has not met, and a load that is ended for nothing costs all that was read.
STILL_SECONDS = 60.0
LOOK_SECONDS = 0.5
HEARTBEAT = 30  # looks: each such one is reported, also where nothing changed, as a sign that this process still runs
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
        """The memory that the process takes from now on is this model's, whose files have `size` bytes."""
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

    def report(self, *, again: bool = False) -> ModelLoading | None:
        """One for each further percent, else None. `again`: also where nothing changed."""
        before = self._farthest
        self._farthest = max(before, self.fraction())  # memory may be taken back under pressure
        return ModelLoading(self._farthest) if again or int(100 * self._farthest) > int(100 * before) else None


@contextmanager
def reported(progress: LoadProgress, send: Callable[[Sequence[ModelLoading]], None]) -> Iterator[None]:
    """Sends reports from a thread of its own, which has ended when this does."""
    over = threading.Event()

    def look_on() -> None:
        for look in count():
            if over.wait(LOOK_SECONDS):
                return
            if (report := progress.report(again=look % HEARTBEAT == 0)) is not None:
                send([report])

    thread = threading.Thread(target=look_on, name="loading", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def resident() -> int:
    """Bytes of memory that this process has, mapped files included; 0 where they cannot be read."""
    return int((fields_of("/proc/self/statm") or ["0", "0"])[1]) * PAGE


def faults(thread: int) -> int:
    """Page faults of a thread of this process, by its native number; 0 where they cannot be read."""
    fields = fields_of(f"/proc/self/task/{thread}/stat")
    return int(fields[7]) + int(fields[9]) if fields else 0


def fields_of(path: str) -> list[str]:
    """Those behind the name of the program, which is in brackets and may have spaces in it."""
    try:
        return Path(path).read_text().rpartition(")")[2].split()
    except OSError:
        return []
