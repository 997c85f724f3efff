"""Notices a step that does not come back.

None before the first step has ended: a first step may compile kernels or page in weights for minutes.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FACTOR = 10.0
LEAST_SECONDS = 30.0


class Watchdog:
    """`predicted` gives the seconds that the present step should take; `overrun` is called with those it took so far."""

    def __init__(
        self, predicted: Callable[[], float], clock: Callable[[], float], overrun: Callable[[float], None]
    ) -> None:
        self._predicted = predicted
        self._clock = clock
        self._overrun = overrun
        self._began: float | None = None
        self._steps = 0

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    @contextmanager
    def step(self) -> Iterator[None]:
        self._began = self._clock()
        try:
            yield
        finally:
            self._began = None
            self._steps += 1

    def look(self) -> None:
        """One look at the running step."""
        began = self._began
        if began is not None and self._steps and self._clock() - began > max(LEAST_SECONDS, FACTOR * self._predicted()):
            self._overrun(self._clock() - began)

    def _watch(self) -> None:
        waiting = threading.Event()
        while not waiting.wait(1.0):
            self.look()
