"""One load of a codex at a time, over threads and processes.

Advisory file locks, because the kernel releases them with the process, however it ends.
"""

import fcntl
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from codex.errors import LoadCancelled, LoadRunning
from codex.schema import translated

_TURN_S = 0.1  # how often a waiting load looks again


@contextmanager
def load_lock(folder: Path, name: str, source: str, title: str) -> Iterator[None]:
    """Hold the codex's name and its source. Raises LoadRunning at once when either is held, DiskFull, CatalogError."""
    with ExitStack() as held:
        for key in sorted((f"name:{name}", f"source:{source}")):
            path = folder / f"{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.lock"
            with translated(path):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                file = held.enter_context(path.open("a"))
            if not _locked(file):
                raise LoadRunning(
                    f"a load of {title} as {name!r} is running; wait for it, or end it with: lore load --cancel {name}"
                )
        yield


@contextmanager
def in_turn(path: Path, cancelled: Callable[[], bool]) -> Iterator[None]:
    """Hold the lock file `path`, after whoever holds it now. Raises LoadCancelled while waiting, DiskFull, CatalogError."""
    with ExitStack() as held:
        with translated(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = held.enter_context(path.open("a"))
        while not _locked(file):
            if cancelled():
                raise LoadCancelled("the load was cancelled while another one was cloning the same repository")
            time.sleep(_TURN_S)
        yield


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
