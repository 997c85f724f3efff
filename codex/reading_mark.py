"""A mark that stands on disk while a codex's tables are read, so that the next process knows that the last one ended there.

LanceDB answers most damage with an error, some with the end of the whole process: a length read from garbage is asked of
the allocator. Whoever then starts again would end the same way, for ever. So what was being read when a process ended is
set aside and made again. A process that was killed in that very moment costs the same; reads take milliseconds.

Knows no tables. A place that cannot be written only means that no mark stands.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NAME = "reading"
_STANDS, _GONE = b"1", b"0"


class ReadingMark:
    """One folder's mark, for all threads of this process."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_SH)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Lets the file go; who still reads has no mark from then on, and leaves none."""
        with self._lock:
            if self._file is not None:
                if self._readers:
                    self._write(_GONE)
                os.close(self._file)
                self._file = None

    def left_behind(self) -> bool:
        """Whether a process ended while it read. Asked before the first read; another that lives may be reading."""
        with self._lock:  # against `close`: the number may be another file's by then
            if self._file is None or os.pread(self._file, 1, 0) != _STANDS:
                return False
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            fcntl.flock(self._file, fcntl.LOCK_SH)
            return True

    @contextmanager
    def standing(self) -> Iterator[None]:
        """The mark stands inside; one reader may be inside another."""
        with self._lock:
            self._readers += 1
            if self._readers == 1:
                self._write(_STANDS)
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if self._readers == 0:
                    self._write(_GONE)

    def _write(self, mark: bytes) -> None:
        """A microsecond: the byte goes to the kernel, which outlives this process, and not to the disk."""
        if self._file is not None:
            with suppress(OSError):
                os.pwrite(self._file, mark, 0)
