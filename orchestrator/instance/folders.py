"""The daemon's folders are one daemon's: two would write the same databases, indexes and checkpoints past each other.

The socket's lock does not say it: two daemons may serve two sockets from one folder.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from orchestrator.errors import Conflict
from orchestrator.instance.lock_file import HeldError, Holder, holder, taken
from orchestrator.settings import Paths, SettingsError

LOCK = "daemon.lock"
OTHERS = "other folders: set XDG_DATA_HOME and XDG_CACHE_HOME"


@contextmanager
def held(paths: Paths, socket: str) -> Iterator[None]:
    """Holds what is written to. Raises Conflict where another daemon has it, SettingsError."""
    with ExitStack() as locks:
        for folder in written(paths):
            locks.callback(os.close, locked(folder, socket))
        yield


def locked(folder: Path, socket: str) -> int:
    """The lock's descriptor; it says which socket is served."""
    try:
        return taken(folder / LOCK, socket)
    except HeldError as held:
        raise used(folder, held.holder) from held
    except OSError as error:
        raise SettingsError(f"cannot lock {folder / LOCK}: {error.strerror}", f"give the daemon {OTHERS}") from error


def used(folder: Path, other: Holder) -> Conflict:
    return Conflict(f"a daemon{by(other)} already uses {folder}", f"{instead(other)} {OTHERS}")


def daemon_of(paths: Paths) -> Holder | None:
    """The daemon that has these folders now, whatever socket it serves."""
    return next(filter(None, (holder(folder / LOCK) for folder in written(paths))), None)


def written(paths: Paths) -> tuple[Path, ...]:
    """systemd and links may name one folder for both."""
    return tuple({folder.resolve(): folder for folder in (paths.data, paths.cache)}.values())


def by(other: Holder) -> str:
    return f" (pid {other.pid})" if other.pid else ""


def instead(other: Holder) -> str:
    use = f"use it with --socket {other.about}" if other.about else "use it"
    return f"{use}, stop it first{f' (kill {other.pid})' if other.pid else ''}, or give this one"
