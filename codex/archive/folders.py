"""Where each codex's archive lies on disk, and the mark of whoever reads it.

A folder's name carries the version of what is stored: a new one takes the place of other versions'. Knows no tables.
"""

import hashlib
import re
import shutil
import threading
from pathlib import Path

from codex.archive.reading_mark import ReadingMark


class Folders:
    """Thread-safe, but for two threads that make or remove the same codex's folder."""

    def __init__(self, root: Path, version: str) -> None:
        self._root = root
        self._version = version
        self._marks: dict[str, ReadingMark] = {}
        self._lock = threading.Lock()

    def of(self, codex: str) -> Path:
        """Where it lies, or would."""
        safe = re.sub(r"[^A-Za-z0-9_-]+", "_", codex)[:40]
        name = hashlib.sha256(codex.encode()).hexdigest()[:10]
        return self._root / f"{safe}-{name}.v{self._version}"

    def make(self, codex: str) -> Path:
        """A new folder; those of other versions are gone, what was set aside stays. Raises OSError."""
        folder = self.of(codex)
        for other in self._root.glob(f"{folder.name.split('.v', 1)[0]}.v*"):
            if not other.name.endswith(".damaged"):
                shutil.rmtree(other, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        self._unmark(codex)  # one of a folder that was gone
        return folder

    def remove(self, codex: str) -> None:
        self._unmark(codex)
        shutil.rmtree(self.of(codex), ignore_errors=True)

    def set_aside(self, codex: str) -> Path | None:
        """Renames the folder so that nothing finds it again; returns where it now is."""
        self._unmark(codex)
        folder = self.of(codex)
        if not folder.exists():
            return None
        target = folder.with_name(f"{folder.name}.damaged")
        for older in self._root.glob("*.damaged"):  # of any codex: the newest damage is the one worth looking at
            shutil.rmtree(older, ignore_errors=True)
        return folder.rename(target)

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

    def _unmark(self, codex: str) -> None:
        with self._lock:
            mark = self._marks.pop(codex, None)
        if mark is not None:
            mark.close()
