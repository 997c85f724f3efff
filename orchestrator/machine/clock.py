"""Time that nobody sets: how long something lasts, and how old it is, also where the wall clock is changed meanwhile.

wall clock   ──────────┐ set back                ┌──────── set forward
                       └─────────────────────────┘
steady clock ─────────────────────────────────────────────  goes on, also while the machine sleeps
"""

import time
from collections.abc import Callable

SHIFTED_S = 1.0  # between the two clocks: less is how finely the wall clock is kept


def since_boot() -> float:
    """Seconds, those of sleep among them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """Seconds since 1970 as the wall clock had them when this was made, and what has passed since."""

    def __init__(self, wall: Callable[[], float] = time.time, passed: Callable[[], float] = since_boot) -> None:
        self._wall = wall
        self._passed = passed
        self._began = wall() - passed()
        self._shift = 0.0

    def __call__(self) -> float:
        return self._began + self._passed()

    @property
    def shift(self) -> float:
        """Seconds by which the wall clock was set since; a time of this clock plus these is one that a person reads. The
        same number until it is set again."""
        now = self._wall() - self()
        if abs(now - self._shift) > SHIFTED_S:
            self._shift = now
        return self._shift

    def oldest(self) -> float:
        """The earlier of both clocks: what is too old by it is so by each of them."""
        return min(self._wall(), self())
