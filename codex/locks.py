"""One load of a codex at a time, over threads and processes.

Advisory file locks, because the kernel releases them with the process, however it ends. What stands in a lock's file says
who holds it, for people and for who decides whether to wait; the lock alone decides who may go on.

    held by a load that somebody asked for      refused, with the name of that load
    held by what follows the disk, or is brief  waited for
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO

from codex.catalog.databases import translated
from codex.errors import LoadCancelled, LoadRunning
from codex.progress import Cancelled, never

_TURN_S = 0.1  # how often a waiting load looks again
_MOST_BYTES = 64 * 1024  # of what a holder says of itself


@dataclass(frozen=True)
class LoadHolder:
    """Who holds a lock, in its own words. `asked`: a load that a user waits for, and may cancel."""

    name: str
    title: str
    asked: bool
    pid: int

    def refusal(self) -> LoadRunning:
        """What another one is told, with a command that ends this one where it can."""
        if self.pid != os.getpid():
            return LoadRunning(
                f"a load of {self.title} as {self.name!r} by process {self.pid} is running; wait for it, or end it there"
            )
        return LoadRunning(
            f"a load of {self.title} as {self.name!r} is running; "
            f"wait for it, or end it with: lore load --cancel {self.name}"
        )


@contextmanager
def load_lock(
    folder: Path, name: str, source: str, title: str, *, asked: bool = True, cancelled: Cancelled = never
) -> Iterator[None]:
    """Hold the codex's name and its source; waits for what nobody asked for.

    Raises LoadRunning at once when a load that was asked for holds either, LoadCancelled while waiting, DiskFull,
    CatalogError.
    """
    me = LoadHolder(name, title, asked, os.getpid())
    with ExitStack() as held:
        for key in sorted((f"name:{name}", f"source:{source}")):  # one order for all: nobody waits in a circle
            path = folder / f"{sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.lock"
            with translated(path):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                file = held.enter_context(path.open("ab+", buffering=0))
            while not _locked(file):
                other = _holder_in(file)
                if other is not None and other.asked:
                    raise other.refusal()
                _wait(cancelled, "it waited for an update of the same files")
            _write_holder(file, me)
        yield


@contextmanager
def in_turn(path: Path, cancelled: Callable[[], bool]) -> Iterator[None]:
    """Hold the lock file `path`, after whoever holds it now. Raises LoadCancelled while waiting, DiskFull, CatalogError."""
    with ExitStack() as held:
        with translated(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = held.enter_context(path.open("ab"))
        while not _locked(file):
            _wait(cancelled, "another one was cloning the same repository")
        yield


def _wait(cancelled: Cancelled, until: str) -> None:
    if cancelled():
        raise LoadCancelled(f"the load was cancelled while {until}")
    time.sleep(_TURN_S)


def _locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_holder(file: IO[bytes], me: LoadHolder) -> None:
    """A full disk must not keep a codex from being dropped: a holder that is not known is waited for."""
    with suppress(OSError):
        file.truncate(0)
        file.write(json.dumps(asdict(me)).encode())


def _holder_in(file: IO[bytes]) -> LoadHolder | None:
    """What the holder wrote; None where it has not, or not yet."""
    try:
        file.seek(0)
        return LoadHolder(**json.loads(file.read(_MOST_BYTES)))
    except (OSError, ValueError, TypeError):
        return None
