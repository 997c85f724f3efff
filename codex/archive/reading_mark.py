"""A mark that stands on disk while a codex's tables are read, so that the next process knows that the last one ended there.

LanceDB answers most damage with an error, some with the end of the whole process: a length read from garbage is asked of
the allocator. Whoever then starts again would end the same way, for ever. So what was being read when two processes in a
row ended is set aside and made again; one may have been killed in that very moment. The mark counts them.

Knows no tables. A place that cannot be written only means that no mark stands.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NAME = "reading"
_GONE = b"0"
_ENOUGH = 2  # processes in a row that ended while they read
_SOUND = 100  # reads after which what ended before is forgotten: opening alone may go well


class ReadingMark:
    """One folder's mark, for all threads of this process."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._file: int | None = None
        self._reads = 0
        self._ended = 0  # before this one, in a row
        with suppress(OSError):
            self._file = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._ended = ended(self._file)
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
        """Whether the last processes ended while they read. Asked before the first read."""
        return self._file is not None and self._ended >= _ENOUGH

    @contextmanager
    def standing(self) -> Iterator[None]:
        """The mark stands inside; one reader may be inside another."""
        with self._lock:
            self._readers += 1
            if self._readers == 1:
                self._write(b"%d" % min(self._ended + 1, 9))
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if self._readers == 0:
                    self._reads += 1
                    self._ended = self._ended if self._reads < _SOUND else 0
                    self._write(_GONE)

    def _write(self, mark: bytes) -> None:
        """A microsecond: the byte goes to the kernel, which outlives this process, and not to the disk."""
        if self._file is not None:
            with suppress(OSError):
                os.pwrite(self._file, mark, 0)


def ended(file: int) -> int:
    """How many processes in a row left their mark; 0 while another one lives, which may be reading. May raise OSError."""
    mark = os.pread(file, 1, 0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 0
    return int(mark) if mark.isdigit() else 0
