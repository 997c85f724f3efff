"""Writes and deletes checkpoint files in a thread, so that no answer waits for a disk, however many go at once."""

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.engine.checkpoints.checkpoint_folder import delete
from orchestrator.engine.checkpoints.file import SegmentHeader, write


@dataclass(frozen=True)
class Written:
    """Wakes the loop: a file is written or has failed, and the tiers have to take note of it."""


@dataclass(frozen=True)
class Put:
    """A file to be written."""

    path: Path
    header: SegmentHeader
    state: bytes


class Writer:
    """Does what it is told in the order of the calls: what is dropped and put again is there.

    In the writing thread `failed` is told what could not be written, and `done` is called after each file written.
    """

    def __init__(self, failed: Callable[[str, OSError], None], done: Callable[[], None] = lambda: None) -> None:
        self._failed = failed
        self._done_one = done
        self._waiting: queue.SimpleQueue[Put | Path | None] = queue.SimpleQueue()
        self._done: dict[str, int] = {}
        self._pending: dict[str, int] = {}
        self._dropped = 0  # files that are still to be deleted
        self._idle = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def has(self, name: str) -> bool:
        """Whether it waits, is being written, or is written and not told yet: else it would be written again."""
        return name in self._pending or name in self._done

    def pending(self) -> list[str]:
        """Names of all that do."""
        with self._idle:
            return list(self._pending | self._done)

    def in_hand(self) -> int:
        """Bytes of all that wait or are being written."""
        with self._idle:
            return sum(self._pending.values())

    def put(self, path: Path, header: SegmentHeader, state: bytes) -> None:
        with self._idle:
            self._pending[header.name] = len(state)
        self._waiting.put(Put(path, header, state))

    def drop(self, path: Path) -> None:
        """Deletes a file: a slow disk takes minutes for the thousands of a long conversation."""
        with self._idle:
            self._dropped += 1
        self._waiting.put(path)

    def finished(self) -> Iterator[tuple[str, int]]:
        """Names written since the last call, with the bytes of their files; 0 for those that failed."""
        with self._idle:
            done, self._done = self._done, {}
        yield from done.items()

    def flush(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: not self._pending and not self._dropped)

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._waiting.get()) is not None:
            if isinstance(job, Put):
                self._write(job)
            else:
                self._delete(job)

    def _write(self, put: Put) -> None:
        size = 0
        try:
            size = write(put.path, put.header, put.state)
        except OSError as error:
            self._failed(put.header.name, error)
        with self._idle:
            self._done[put.header.name] = size
            self._pending.pop(put.header.name, None)
            self._idle.notify_all()
        self._done_one()

    def _delete(self, path: Path) -> None:
        delete(path)
        with self._idle:
            self._dropped -= 1
            self._idle.notify_all()
