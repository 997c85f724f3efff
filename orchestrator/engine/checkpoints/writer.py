"""Writes, deletes and reads checkpoint files in threads, so that no answer waits for a disk, however many go at once."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from orchestrator.engine.checkpoints.file import SegmentHeader, delete, delete_model, read_state, write


@dataclass(frozen=True)
class CheckpointWritten:
    """Wakes the loop: a file is written or has failed, and the store has to take note of it."""


@dataclass(frozen=True, eq=False)
class Put:
    """A file to be written."""

    path: Path
    header: SegmentHeader
    state: bytes


class Writer:
    """Works in the order of the calls: what is dropped and put again is there.

    In the writing thread `failed` is called with what could not be written, and `done` after each file.
    """

    def __init__(self, failed: Callable[[str, OSError], None], done: Callable[[], None]) -> None:
        self._failed = failed
        self._done = done
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._finished: list[tuple[Put, bool]] = []
        self._waiting_bytes = 0
        self._open = 0  # calls that are not done yet
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def waiting_bytes(self) -> int:
        """Bytes of all states that wait or are being written."""
        return self._waiting_bytes

    def put(self, path: Path, header: SegmentHeader, state: bytes) -> Put:
        put = Put(path, header, state)
        with self._changed:
            self._waiting_bytes += len(state)
        self._enqueue(partial(self._write, put))
        return put

    def drop(self, path: Path) -> None:
        """Deletes a file: a slow disk takes minutes for the thousands of a long conversation."""
        self._enqueue(lambda: delete(path))

    def drop_model(self, folder: Path) -> None:
        self._enqueue(lambda: delete_model(folder))

    def finished(self) -> list[tuple[Put, bool]]:
        """What was written since the last call, and whether it could be."""
        with self._changed:
            finished, self._finished = self._finished, []
        return finished

    def flush(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._open)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _enqueue(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._open += 1
        self._queue.put(work)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    def _write(self, put: Put) -> None:
        written = True
        try:
            write(put.path, put.header, put.state)
        except OSError as error:
            written = False
            self._failed(put.header.name, error)
        with self._changed:
            self._finished.append((put, written))
            self._waiting_bytes -= len(put.state)
        self._done()


@dataclass
class Reader:
    """Used by one thread, the loop's."""

    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "reading"))
    _ahead: tuple[Path, SegmentHeader, "Future[bytes]"] | None = None

    def expect(self, path: Path, header: SegmentHeader) -> None:
        """Begins to read what is likely to be asked for next; forgets what was expected before."""
        self._ahead = path, header, self._thread.submit(read_state, path, header)

    def read(self, path: Path, header: SegmentHeader) -> bytes:
        """The verified state. Raises DamagedCheckpoint and OSError."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[:2] == (path, header):
            return ahead[2].result()
        return read_state(path, header)

    def settle(self) -> None:
        """Forgets what was expected, once no file is open."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            wait([ahead[2]])

    def close(self) -> None:
        self.settle()
        self._thread.shutdown()
