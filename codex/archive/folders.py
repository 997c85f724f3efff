"""Where each codex's archive is on disk.

A folder's name has the version of the stored format; a folder of a new version replaces those of others. Of the folders
that were moved aside as damaged, the newest is kept, and older ones up to `_ASIDE_BYTES`.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

_ASIDE = ".damaged"
_ASIDE_BYTES = 1 << 30  # of what is set aside beside the newest: it is kept to be looked at, and nothing reads it


class Folders:
    """Thread-safe, but for two threads that make or remove the same codex's folder."""

    def __init__(self, root: Path, version: str) -> None:
        self._root = root
        self._version = version

    def of(self, codex: str) -> Path:
        """Where it lies, or would."""
        return self._root / f"{stem(codex)}.v{self._version}"

    def make(self, codex: str) -> Path:
        """A new folder; those of other versions are gone, what was set aside stays. Raises OSError."""
        folder = self.of(codex)
        for other in self._root.glob(f"{stem(codex)}.v*"):
            if not other.name.endswith(_ASIDE):
                shutil.rmtree(other, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        return folder

    def remove(self, codex: str) -> None:
        """The folder goes, and what was set aside of it: both hold the codex's texts."""
        for folder in (self.of(codex), *self._aside(codex)):
            shutil.rmtree(folder, ignore_errors=True)

    def set_aside(self, codex: str) -> Path | None:
        """Renames the folder so that nothing finds it again; returns where it now is."""
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

    def _aside(self, codex: str) -> list[Path]:
        return list(self._root.glob(f"{stem(codex)}.v*{_ASIDE}"))


def beyond(most: int, aside: Iterable[tuple[float, int, Path]]) -> list[Path]:
    """Which of (since when, bytes, folder) must go: the newest stays, and behind it as many as `most` bytes hold."""
    others = sorted(aside, reverse=True)[1:]
    held = accumulate(size for _, size, _ in others)
    return [folder for (_, _, folder), size in zip(others, held, strict=True) if size > most]


def stem(codex: str) -> str:
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
