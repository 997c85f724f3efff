"""When changes on disk are taken in. Pure: the time is passed in.

`Gathering` decides when a batch is complete.

    state      leaves it by
    quiet      note → gathering
    gathering  due → quiet (the batch is taken) · hold → held
    held       release → gathering · too long → gathering

An editor's save is several events; a checkout is thousands, during which git holds `index.lock`: both are one batch.

`Pace` decides when a batch is taken in. Beside a build that writes files for minutes each would be taken in behind the one
before, in all of the time that can be had. So from the second of a stream on it rests.

    taken in   ████████            ██          took 4 and 4, rests 8: a third of the time
    batches    ▲ ▲ ▲  ▲    ▲     ▲ ▲           one that comes alone waits for nothing
"""

import math
from dataclasses import dataclass

from codex.settings import WatchSettings

_TOO_MANY = 2_000  # paths of one batch; beyond it a comparison of the whole tree is cheaper
_REST = 2.0  # times as long as it took
_LONGEST_REST_S = 30.0


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """What may have changed. `everything`: compare all, `paths` are then not complete.

    `commit`: version control moved on, so branch, revision or number of changed files may differ, whatever the files do.
    """

    paths: frozenset[str] = frozenset()
    everything: bool = False
    commit: bool = False


class Gathering:
    """One codex's gathering; used by one thread at a time. Times are seconds of one monotonic clock."""

    def __init__(self, settings: WatchSettings) -> None:
        self._settings = settings
        self._paths: set[str] = set()
        self.everything = False  # all is to be compared: paths say nothing more
        self._commit = False
        self._first: float | None = None
        self._last = 0.0
        self._held_since: float | None = None

    def note(self, now: float, path: str | None = None, *, everything: bool = False, commit: bool = False) -> None:
        """Something happened to `path`, or to more than one could name."""
        self._first = now if self._first is None else self._first
        self._last = now
        self.everything = self.everything or everything
        self._commit = self._commit or commit
        if path is not None:
            self._paths.add(path)
        if len(self._paths) > _TOO_MANY:
            self.everything = True
            self._paths.clear()

    def hold(self, now: float) -> None:
        """Version control is at work: its changes are reported when it has ended."""
        self._held_since = now if self._held_since is None else self._held_since

    def release(self, now: float) -> None:
        """Version control is done."""
        self._held_since = None
        if self._first is not None:
            self._first = self._last = now

    def due(self) -> float | None:
        """When the batch can be taken; None when there is none."""
        if self._first is None:
            return None
        quiet = min(self._last + self._settings.debounce_s, self._first + self._settings.longest_wait_s)
        return quiet if self._held_since is None else max(quiet, self._held_since + self._settings.longest_hold_s)

    def take(self, now: float) -> ChangeBatch | None:
        """The batch if it is due, and a fresh start; else None."""
        due = self.due()
        if due is None or now < due:
            return None
        batch = ChangeBatch(frozenset(self._paths), self.everything, self._commit)
        self._paths = set()
        self.everything = self._commit = False
        self._first = None
        self._held_since = None
        return batch


class Pace:
    """Of one codex's takings-in. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._ended = -math.inf
        self._rests_until = -math.inf

    def ended(self, began: float, now: float) -> None:
        """One was begun and has ended."""
        rest = min(_REST * (now - began), _LONGEST_REST_S)
        is_stream = began - self._ended <= 2 * rest
        self._rests_until = now + rest if is_stream else now
        self._ended = now

    def left(self, now: float) -> float:
        """Seconds until the next one may begin."""
        return max(0.0, self._rests_until - now)
