"""Watches on chosen folders, one by one, by watchdog's bindings of inotify: one descriptor for a codex, read by the codex's
own thread.

watchdog's observers cannot be used. The recursive one watches ignored folders too (a `node_modules` alone can use up the
system's limit) and skips folders that the limit refused without a word; each hands over one event at a time between two
threads, which took most of the daemon's time beside a program that writes thousands of files. Does not know ignore rules.
"""

import ctypes
import errno
import math
import os
import select
import threading
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from watchdog.observers.inotify_c import InotifyConstants as Kernel
from watchdog.observers.inotify_c import InotifyFD, Mask, WatchDescriptor, inotify_add_watch, inotify_init

from codex.errors import OPEN_FILES

_APPEARED = Kernel.IN_CREATE | Kernel.IN_MOVED_TO
_GONE = Kernel.IN_DELETE | Kernel.IN_MOVED_FROM
_SELF = Kernel.IN_DELETE_SELF | Kernel.IN_MOVE_SELF
_ONLY_HERE = Kernel.IN_ONLYDIR | Kernel.IN_DONT_FOLLOW | Kernel.IN_EXCL_UNLINK
# Attributes are permissions too: a file that could not be read may be readable now.
_MASK = Mask(_APPEARED | _GONE | _SELF | Kernel.IN_CLOSE_WRITE | Kernel.IN_ATTRIB | _ONLY_HERE)
_NO_FILE = Kernel.IN_ISDIR | _SELF | Kernel.IN_Q_OVERFLOW | Kernel.IN_IGNORED
_AT_ONCE = 1 << 18  # bytes: thousands of events
_SYSCTLS = {
    errno.ENOSPC: "fs.inotify.max_user_watches",
    errno.EMFILE: "fs.inotify.max_user_instances",
    errno.ENFILE: "fs.file-max",
}


class WatchLimit(OSError):
    """No more watches can be had. `name` says what is used up, and how it is raised."""

    def __init__(self, name: str) -> None:
        super().__init__(f"used up: {name}")
        self.name = name


class Happened(NamedTuple):
    """One event. `path` is absolute; `appeared`/`gone`: created or moved here, deleted or moved away. `overflow`: events
    were lost, anything may have happened anywhere. No path and no overflow: something happened to files that nobody asked
    for."""

    path: str = ""
    is_folder: bool = False
    appeared: bool = False
    gone: bool = False
    overflow: bool = False


class FolderWatches:
    """Watches of one codex; used by one thread at a time."""

    def __init__(self) -> None:
        """Raises WatchLimit, another OSError."""
        self._folder_of: dict[WatchDescriptor, str] = {}
        self._only: dict[WatchDescriptor, Collection[str]] = {}
        self._number = inotify_init()
        if self._number < 0:
            raise _fault()
        os.set_inheritable(self._number, False)
        os.set_blocking(self._number, False)

    def __len__(self) -> int:
        return len(self._folder_of)

    def fileno(self) -> int:
        """Readable where something has happened."""
        return self._number

    def add(self, folder: Path, only: Collection[str] | None = None) -> None:
        """Watch the entries of a folder, not those of its subfolders; no error when it is gone. Raises WatchLimit.

        `only`: names of the entries to report, for a folder in which many others change. A folder that is also added
        without it is reported whole, in either order.
        """
        watch = inotify_add_watch(self._number, os.fsencode(folder), _MASK)
        if watch < 0:
            fault = _fault()
            if isinstance(fault, WatchLimit):
                raise fault
            return
        is_watched = watch in self._folder_of  # two roots of one repository, or a folder that was found twice
        self._folder_of[watch] = str(folder)
        if only is None:
            self._only.pop(watch, None)
        elif not is_watched:
            self._only[watch] = frozenset(only)
        elif watch in self._only:
            self._only[watch] = frozenset((*self._only[watch], *only))

    def read(self, files: Collection[bytes] | None = None) -> list[Happened]:
        """What has happened since; waits for nothing. `files`: of files those of these names alone, for whoever compares
        all of them anyway."""
        try:
            data = os.read(self._number, _AT_ONCE)
        except BlockingIOError:
            return []
        told, skipped = list[Happened](), False
        for watch, mask, _, name in InotifyFD._parse_event_buffer(data):
            if files is not None and not mask & _NO_FILE and name not in files:
                skipped = skipped or watch not in self._only
            elif (event := self._event(watch, mask, os.fsdecode(name))) is not None:
                told.append(event)
        return [*told, Happened()] if skipped else told

    def close(self) -> None:
        os.close(self._number)

    def _event(self, watch: WatchDescriptor, mask: Mask, name: str) -> Happened | None:
        if mask & Kernel.IN_Q_OVERFLOW:
            return Happened(overflow=True)
        if mask & Kernel.IN_IGNORED:
            self._folder_of.pop(watch, None)
            self._only.pop(watch, None)
            return None
        folder, only = self._folder_of.get(watch), self._only.get(watch)
        if folder is None or (only is not None and name and name not in only):
            return None
        if mask & _SELF:
            return Happened(folder, is_folder=True, gone=True)
        path = f"{folder.rstrip('/')}/{name}" if name else folder
        return Happened(path, bool(mask & Kernel.IN_ISDIR), bool(mask & _APPEARED), bool(mask & _GONE))


class Bell:
    """Rung by any thread for the one that waits for it, or for what happens to watched folders."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number: int | None = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def ring(self) -> None:
        with self._lock:
            if self._number is not None:
                os.eventfd_write(self._number, 1)

    def wait(self, watches: FolderWatches | None, seconds: float) -> bool:
        """Whether one of both was there in this time."""
        assert self._number is not None
        poll = select.poll()
        poll.register(self._number, select.POLLIN)
        if watches is not None:
            poll.register(watches, select.POLLIN)
        ready = [number for number, _ in poll.poll(math.ceil(1000 * seconds))]
        if self._number in ready:
            os.eventfd_read(self._number)
        return bool(ready)

    def close(self) -> None:
        with self._lock:
            if self._number is not None:
                os.close(self._number)
            self._number = None


def _fault() -> OSError:
    number = ctypes.get_errno()
    sysctl = _SYSCTLS.get(number)
    if sysctl is None:
        return OSError(number, os.strerror(number))
    if number == errno.EMFILE and not _may_open():  # the error of both
        return WatchLimit(OPEN_FILES)
    return WatchLimit(f"{sysctl} (sysctl -w {sysctl}=N)")


def _may_open() -> bool:
    """Whether this process may have one more open file."""
    try:
        os.close(os.eventfd(0))
    except OSError:
        return False
    return True
