"""Notices what does not come back from llama.cpp: a step, a restore, a text that is embedded, a model that is loaded.

    watch(20 s) ├─ carried about ─┤ watch(0.3 s) ├─ a step ─┤─ the first one's time begins anew ─┤      the loop's thread
                            watch(61 s) ├─ a batch ─┤─ nothing ─┤                                     a lane's thread

Each thread is watched by what it does itself. Knows neither what is done nor where a prediction comes from.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

FACTOR = 10.0
LEAST_SECONDS = 30.0
OVERRUN_STATUS = 86  # of a process that its watchdog has ended

Watch = Callable[[float], AbstractContextManager[None]]


def silent() -> object:
    """For what shows no sign of life before it ends."""
    return None


@dataclass
class Watched:
    """What a thread does. Times in seconds of the clock; `sign` is what `signs` said last."""

    what: str
    limit: float
    signs: Callable[[], object]
    began: float
    sign: object


class Watchdog:
    """`overrun` is called with what was done and the seconds that it took so far, or showed no sign of life, once they are
    ten times those predicted, and at least 30."""

    def __init__(self, clock: Callable[[], float], overrun: Callable[[str, float], None]) -> None:
        self._clock = clock
        self._overrun = overrun
        self._watched: dict[int, Watched] = {}  # by thread

    def start(self) -> None:
        threading.Thread(target=self._look_on, name="watchdog", daemon=True).start()

    @contextmanager
    def watch(self, what: str, predicted: float, signs: Callable[[], object] = silent) -> Iterator[None]:
        """Watches what this thread does inside; it should take so many seconds, infinite where nobody can say. May be
        nested: an inner end is a sign of life. So is whenever `signs`, asked from another thread, says something else."""
        thread, limit = threading.get_ident(), max(LEAST_SECONDS, FACTOR * predicted)
        outer = self._watched.get(thread)
        self._watched[thread] = Watched(what, limit, signs, self._clock(), signs())
        try:
            yield
        finally:
            if outer is None:
                del self._watched[thread]
            else:
                outer.began = self._clock()
                self._watched[thread] = outer

    def look(self) -> None:
        """One look at all that is being done."""
        now = self._clock()
        for watched in tuple(self._watched.values()):
            sign = watched.signs()
            if sign != watched.sign:
                watched.sign, watched.began = sign, now
            elif now - watched.began > watched.limit:
                self._overrun(watched.what, now - watched.began)

    def _look_on(self) -> None:
        waiting = threading.Event()
        while not waiting.wait(1.0):
            self.look()


def unwatched(_: float) -> AbstractContextManager[None]:
    """For who needs no watchdog."""
    return nullcontext()
