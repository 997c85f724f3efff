"""Where each codex's archive lies on disk, and the mark of whoever reads it.

A folder's name carries the version of what is stored: a new one takes the place of other versions'. Of what was set aside
the newest of each codex is kept, as long as all of them have room. Knows no tables.
"""

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Iterable
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from codex.archive.reading_mark import ReadingMark

_ASIDE = ".damaged"
_ASIDE_BYTES = 1 << 30  # of what is set aside beside the newest: it is kept to be looked at, and nothing reads it


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
            known = self._marks.get(codex)
            if known is None:
                known = self._marks[codex] = ReadingMark(self.of(codex))
            return known

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
