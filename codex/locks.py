"""One load of a codex at a time, over threads and processes.

Advisory file locks, because the kernel releases them with the process, however it ends. The text of a lock's file names
the holder, for users and for the decision to wait; only the lock itself excludes others.

    held by a load that a user asked for           refused, with the name of that load
    held by an update from the disk, or briefly    waited for
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
_MOST_BYTES = 64 * 1024  # of a holder's description


@dataclass(frozen=True)
class LoadHolder:
    """The holder of a lock, as it described itself. `asked`: a load that a user waits for, and may cancel."""

    name: str
    title: str
    asked: bool
    pid: int

    def refusal(self) -> LoadRunning:
        """The error of another load, with the command that ends this one where there is one."""
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
    """Hold the codex's name and its source; waits for a holder that no user asked for.

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
    """Hold the lock file `path`, after its present holder. Raises LoadCancelled while waiting, DiskFull, CatalogError."""
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
    """On a full disk it writes nothing, so that a codex can still be dropped; a holder without a name is waited for."""
    with suppress(OSError):
        file.truncate(0)
        file.write(json.dumps(asdict(me)).encode())


def _holder_in(file: IO[bytes]) -> LoadHolder | None:
    """The holder's description; None before it is written."""
    try:
        file.seek(0)
        return LoadHolder(**json.loads(file.read(_MOST_BYTES)))
    except (OSError, ValueError, TypeError):
        return None
