"""Watches on chosen folders, one by one, over watchdog's inotify reader: one descriptor and one thread for a codex.

watchdog's own recursive observer cannot be used. It watches ignored folders too (a `node_modules` alone can use up the
system's limit), silently skips folders that the limit refused, and does not report an overflow of the kernel's queue. Its
inotify reader has none of these faults. Does not know ignore rules.
"""

import errno
import os
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from watchdog.observers.inotify_c import CallbackId, InotifyConstants, InotifyEvent, InotifyFD, Mask, WatchDescriptor

_MASK = Mask(
    InotifyConstants.IN_CREATE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_MOVE
    | InotifyConstants.IN_CLOSE_WRITE
    | InotifyConstants.IN_ATTRIB  # permissions: a file that could not be read may be readable now
    | InotifyConstants.IN_DELETE_SELF
    | InotifyConstants.IN_MOVE_SELF
    | InotifyConstants.IN_DONT_FOLLOW
    | InotifyConstants.IN_EXCL_UNLINK
    | InotifyConstants.IN_ONLYDIR
)
_LIMITS = {errno.ENOSPC: "max_user_watches", errno.EMFILE: "max_user_instances"}


class WatchLimit(OSError):
    """The kernel has no watches left. `sysctl` names the limit."""

    def __init__(self, sysctl: str) -> None:
        super().__init__(f"the limit {sysctl} is reached")
        self.sysctl = sysctl


@dataclass(frozen=True, slots=True)
class Happened:
    """One event. `path` is absolute; `appeared`/`gone`: created or moved here, deleted or moved away."""

    path: str
    is_folder: bool = False
    appeared: bool = False
    gone: bool = False
    overflow: bool = False  # events were lost: anything may have happened anywhere


class FolderWatches:
    """Watches of one codex. `report` is called in the reader's thread, for one event at a time."""

    def __init__(self, report: Callable[[Happened], None]) -> None:
        """Raises WatchLimit."""
        self._report = report
        self._lock = threading.Lock()
        self._folder_of: dict[WatchDescriptor, str] = {}
        self._only: dict[WatchDescriptor, Collection[str]] = {}
        self._numbers = count(1)
        try:
            self._reader = InotifyFD()
        except OSError as error:
            raise _translated(error) from error
        self._reader.start()

    def __len__(self) -> int:
        return len(self._folder_of)

    def add(self, folder: Path, only: Collection[str] | None = None) -> None:
        """Watch the entries of a folder, not those of its subfolders; no error when it is gone. Raises WatchLimit.

        `only`: names of the entries to report, for a folder in which many others change. A folder that is also added
        without it is reported whole, in either order.
        """
        path, number = os.fsencode(folder), CallbackId(next(self._numbers))
        try:
            with self._lock:  # an event of the new watch must find its folder
                watch = self._reader.add_callback(path, _MASK, self, number)
                is_watched = watch in self._folder_of  # two roots of one repository, or a folder that was found twice
                if is_watched:
                    self._reader.remove_callbacks([(watch, number)])
                self._folder_of[watch] = os.fsdecode(path)
                self._restrict(watch, only, is_watched=is_watched)
        except OSError as error:
            if error.errno in _LIMITS:
                raise _translated(error) from error

    def close(self) -> None:
        """No event is reported after this."""
        self._reader.stop()
        self._reader.join()

    def on_event(self, event: InotifyEvent) -> None:
        with self._lock:
            folder, only = self._folder_of.get(event.wd), self._only.get(event.wd)
        if folder is not None and (only is None or not event.name or os.fsdecode(event.name) in only):
            self._report(_happened(folder, event))

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        with self._lock:
            self._folder_of.pop(wd, None)
            self._only.pop(wd, None)

    def on_queue_overflow(self) -> None:
        self._report(Happened("", overflow=True))

    def _restrict(self, watch: WatchDescriptor, only: Collection[str] | None, *, is_watched: bool) -> None:
        if only is None:
            self._only.pop(watch, None)
        elif not is_watched:
            self._only[watch] = frozenset(only)
        elif watch in self._only:
            self._only[watch] = frozenset((*self._only[watch], *only))


def _happened(folder: str, event: InotifyEvent) -> Happened:
    if event.is_delete_self or event.is_move_self:
        return Happened(folder, is_folder=True, gone=True)
    path = f"{folder.rstrip('/')}/{os.fsdecode(event.name)}" if event.name else folder
    appeared, gone = event.is_create or event.is_moved_to, event.is_delete or event.is_moved_from
    return Happened(path, event.is_directory, appeared, gone)


def _translated(error: OSError) -> OSError:
    name = _LIMITS.get(error.errno or 0)
    return error if name is None else WatchLimit(f"fs.inotify.{name}")
