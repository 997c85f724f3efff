"""A lock file: held for as long as a process lives, and let go of by the kernel however that ends. The file stays behind.

What stands in it is for people; the lock alone decides.
"""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Holder:
    """A process that holds a lock: what it wrote of itself, '' where it wrote nothing."""

    pid: str
    about: str


class HeldError(Exception):
    """Another process holds it."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(f"held by pid {holder.pid}")
        self.holder = holder


def taken(file: Path, about: str = "") -> int:
    """The lock's descriptor: it is held until that is closed. Raises HeldError, OSError.

    The file is never removed: who opened it before would hold the lock of a file that nobody finds.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n{about}\n".encode(errors="surrogateescape"), 0)
    except BlockingIOError:
        held = said(descriptor)
        os.close(descriptor)
        raise HeldError(held) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def holder(file: Path) -> Holder | None:
    """Who holds it now. Never keeps another from taking it: a lock is looked at only where its writer may live."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        found = said(descriptor)
        if not found.pid or not Path(f"/proc/{found.pid}").exists():
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return found
    finally:
        os.close(descriptor)
    return None


def said(descriptor: int) -> Holder:
    pid, _, about = os.pread(descriptor, 4096, 0).decode(errors="replace").partition("\n")
    return Holder(pid.strip(), about.strip())
