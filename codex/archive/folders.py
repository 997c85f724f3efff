"""Where each codex's archive is on disk, and the mark of the processes that read it.

A folder's name has the version of the stored format; a folder of a new version replaces those of others. Of the folders
that were moved aside as damaged, the newest is kept, and older ones up to `_ASIDE_BYTES`.

LanceDB can end the process when it reads damaged files: its Rust code panics or allocates too much. A restarted process
would end the same way each time. Therefore a reader writes a mark into the folder and removes it afterwards. When two
processes in a row have left their mark, the folder is moved aside and built again; a single mark can be from a process
that was killed at that moment. A mark that cannot be written is skipped. Does not know the tables.
"""

import fcntl
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path

_ASIDE = ".damaged"
_ASIDE_BYTES = 1 << 30  # of what is set aside beside the newest: it is kept to be looked at, and nothing reads it
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
    def reading(self) -> Iterator[None]:
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


class Folders:
    """Thread-safe, but for two threads that make or remove the same codex's folder."""

    def __init__(self, root: Path, version: str) -> None:
        self._root = root
        self._version = version
        self._marks: dict[str, ReadingMark] = {}
        self._lock = threading.Lock()

    def of(self, codex: str) -> Path:
        """Where it lies, or would."""
        return self._root / f"{_stem(codex)}.v{self._version}"

    def make(self, codex: str) -> Path:
        """A new folder; those of other versions are gone, what was set aside stays. Raises OSError."""
        folder = self.of(codex)
        for other in self._root.glob(f"{_stem(codex)}.v*"):
            if not other.name.endswith(_ASIDE):
                shutil.rmtree(other, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        self._unmark(codex)  # one of a folder that was gone
        return folder

    def remove(self, codex: str) -> None:
        """The folder goes, and what was set aside of it: both hold the codex's texts."""
        self._unmark(codex)
        for folder in (self.of(codex), *self._aside(codex)):
            shutil.rmtree(folder, ignore_errors=True)

    def set_aside(self, codex: str) -> Path | None:
        """Renames the folder so that nothing finds it again; returns where it now is."""
        self._unmark(codex)
        folder = self.of(codex)
        if not folder.exists():
            return None
        for older in self._aside(codex):
            shutil.rmtree(older, ignore_errors=True)
        target = folder.rename(folder.with_name(f"{folder.name}{_ASIDE}"))
        with suppress(OSError):
            os.utime(target)  # since when it is set aside
        for older in beyond(_ASIDE_BYTES, [(_since(one), _bytes(one), one) for one in self._root.glob(f"*{_ASIDE}")]):
            shutil.rmtree(older, ignore_errors=True)
        return target

    def mark(self, codex: str) -> ReadingMark:
        """The mark of a folder that exists."""
        with self._lock:
            cached = self._marks.get(codex)
            if cached is None:
                cached = self._marks[codex] = ReadingMark(self.of(codex))
            return cached

    def close(self) -> None:
        """Lets go of all marks; `mark` makes them anew."""
        with self._lock:
            for mark in self._marks.values():
                mark.close()
            self._marks.clear()

    def _aside(self, codex: str) -> list[Path]:
        return list(self._root.glob(f"{_stem(codex)}.v*{_ASIDE}"))

    def _unmark(self, codex: str) -> None:
        with self._lock:
            mark = self._marks.pop(codex, None)
        if mark is not None:
            mark.close()


def beyond(most: int, aside: Iterable[tuple[float, int, Path]]) -> list[Path]:
    """Which of (since when, bytes, folder) must go: the newest stays, and behind it as many as `most` bytes hold."""
    others = sorted(aside, reverse=True)[1:]
    held = accumulate(size for _, size, _ in others)
    return [folder for (_, _, folder), size in zip(others, held, strict=True) if size > most]


def _stem(codex: str) -> str:
    """What the names of a codex's folders begin with: safe on any disk, and no other codex's."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", codex)[:40]
    return f"{safe}-{hashlib.sha256(codex.encode()).hexdigest()[:10]}"


def _since(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _bytes(folder: Path) -> int:
    size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(where, name)).st_size  # noqa: PTH118
    return size
