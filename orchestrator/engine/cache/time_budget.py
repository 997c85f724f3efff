"""What a round has left for carrying cells about: one deadline for restores, evictions and moves, beside running answers.

    restore a segment ┐
    save an evicted   ├─ each piece asks first ─▶ time is left: done ─▶ spent: OutOfTime, and on with it next round
    open a context    ┘

The first piece of a round is always granted, so that everything comes to its end; so a round overruns by one piece at
most. Knows no cells.
"""

import math
from collections.abc import Callable


class OutOfTime(Exception):
    """This round has no time for another piece. What was done stays done; whoever is told asks again in the next round."""


class TimeBudget:
    """`clock` gives seconds; a piece is granted that ends by `until` of it if it takes as long as the one before."""

    def __init__(self, clock: Callable[[], float], until: float) -> None:
        self._clock = clock
        self._until = until
        self.taken = False
        self._began = 0.0  # the last piece

    def left(self) -> bool:
        """Whether another piece would be granted."""
        now = self._clock()
        return not self.taken or now + (now - self._began) < self._until

    def take(self) -> None:
        """Raises OutOfTime."""
        if not self.left():
            raise OutOfTime
        self.taken, self._began = True, self._clock()


def endless() -> TimeBudget:
    """For what has to be done now, or where nobody is answered."""
    return TimeBudget(lambda: 0.0, math.inf)
