"""Notices what does not come back from llama.cpp: a step, a restore, a context that is made.

    watch(20 s) ├─ carried about ─┤ watch(0.3 s) ├─ a step ─┤─ the first one's time begins anew ─┤

Knows neither what is done nor where a prediction comes from.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

FACTOR = 10.0
LEAST_SECONDS = 30.0

Watch = Callable[[float], AbstractContextManager[None]]


@dataclass(frozen=True)
class Watched:
    """In seconds of the clock."""

    began: float
    limit: float


class Watchdog:
    """`overrun` is called with the seconds that something took so far, once they are ten times those predicted, and at
    least 30."""

    def __init__(self, clock: Callable[[], float], overrun: Callable[[float], None]) -> None:
        self._clock = clock
        self._overrun = overrun
        self._watched: Watched | None = None

    def start(self) -> None:
        threading.Thread(target=self._look_on, name="watchdog", daemon=True).start()

    @contextmanager
    def watch(self, predicted: float) -> Iterator[None]:
        """Watches what is done inside; it should take so many seconds, infinite where nobody can say. May be nested: an
        inner end is a sign of life."""
        outer, self._watched = self._watched, Watched(self._clock(), max(LEAST_SECONDS, FACTOR * predicted))
        try:
            yield
        finally:
            self._watched = replace(outer, began=self._clock()) if outer is not None else None

    def look(self) -> None:
        """One look at what is being done."""
        watched = self._watched
        if watched is not None and self._clock() - watched.began > watched.limit:
            self._overrun(self._clock() - watched.began)

    def _look_on(self) -> None:
        waiting = threading.Event()
        while not waiting.wait(1.0):
            self.look()


def unwatched(_: float) -> AbstractContextManager[None]:
    """For who needs no watchdog."""
    return nullcontext()
