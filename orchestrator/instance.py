"""One daemon per folder and one per socket: the locks that say so, and what a second daemon is told.

Two daemons would write the same databases, indexes and checkpoints past each other. The socket's lock does not prevent
it: two daemons may serve two sockets from one folder. A lock is held for as long as its process lives, and the kernel
lets go of it however that ends. The file stays behind: what is written in it is for people, the lock alone decides.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import Conflict
from orchestrator.settings import Paths, SettingsError
from orchestrator.settings.model import ServeSettings

LOCK = "daemon.lock"
OTHERS = "other folders: set XDG_DATA_HOME and XDG_CACHE_HOME"


@dataclass(frozen=True)
class LockHolder:
    """A process that holds a lock, by what it wrote into the file. `about`: the socket that it serves, or ''."""

    pid: str
    about: str

    def __str__(self) -> str:
        return f"a daemon (pid {self.pid})" if self.pid else "a daemon"


class HeldError(Exception):
    """Another process holds the lock."""

    def __init__(self, holder: LockHolder) -> None:
        super().__init__(f"held by pid {holder.pid}")
        self.holder = holder


@contextmanager
def held(paths: Paths, socket: str) -> Iterator[None]:
    """Holds the folders that the daemon writes to. Raises Conflict where another daemon holds one, SettingsError."""
    with ExitStack() as locks:
        for folder in written(paths):
            locks.callback(os.close, locked(folder, socket))
        yield


def refuse_second(given: ServeSettings, paths: Paths) -> None:
    """Raises Conflict where a daemon serves this socket, or has these folders.

    Asked before a daemon is put together, because loading its parts takes seconds. Locks are only looked at. The daemon
    takes them itself, and who comes in between is refused then.
    """
    socket = Path(given.socket or paths.socket)
    if other := holder(lock_of(socket)):
        raise served(socket, other)
    for folder in written(paths):
        if other := holder(folder / LOCK):
            raise used(folder, other)


def daemon_of(paths: Paths) -> LockHolder | None:
    """The daemon that has these folders now, whatever socket it serves."""
    return next(filter(None, (holder(folder / LOCK) for folder in written(paths))), None)


def written(paths: Paths) -> tuple[Path, ...]:
    """systemd and links may name one folder for both."""
    return tuple({folder.resolve(): folder for folder in (paths.data, paths.cache)}.values())


def locked(folder: Path, socket: str) -> int:
    """The lock's descriptor; the file names the socket that is served."""
    try:
        return lock_file(folder / LOCK, socket)
    except HeldError as held:
        raise used(folder, held.holder) from held
    except OSError as error:
        raise SettingsError(f"cannot lock {folder / LOCK}: {error.strerror}", f"give the daemon {OTHERS}") from error


# -- what a second daemon is told


def used(folder: Path, other: LockHolder) -> Conflict:
    use = f"use it with --socket {other.about}" if other.about else "use it"
    kill = f" (kill {other.pid})" if other.pid else ""
    return Conflict(f"{other} already uses {folder}", f"{use}, stop it first{kill}, or give this one {OTHERS}")


def served(socket: Path, other: LockHolder | None = None) -> Conflict:
    hint = "use it, stop it first, or give this one another --socket"
    return Conflict(f"{other or 'a daemon'} already serves {socket}", hint)


# -- lock files


def lock_of(socket: Path) -> Path:
    """The lock beside a socket."""
    return socket.with_name(socket.name + ".lock")


def lock_file(file: Path, about: str = "") -> int:
    """The lock's descriptor: it is held until that is closed. Raises HeldError, OSError.

    The file is never removed: who opened it before would hold the lock of a file that nobody finds.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n{about}\n".encode(errors="surrogateescape"), 0)
    except BlockingIOError:
        other = read(descriptor)
        os.close(descriptor)
        raise HeldError(other) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def holder(file: Path) -> LockHolder | None:
    """Who holds it now. Never keeps another from taking it: a lock is looked at only where its writer may live."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        found = read(descriptor)
        if not found.pid or not Path(f"/proc/{found.pid}").exists():
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return found
    finally:
        os.close(descriptor)
    return None


def read(descriptor: int) -> LockHolder:
    pid, _, about = os.pread(descriptor, 4096, 0).decode(errors="replace").partition("\n")
    return LockHolder(pid.strip(), about.strip())
