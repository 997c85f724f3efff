"""How many memories are fetched before the model is asked: by how full the part of the window right of the floor is. Pure.

    pressure       mode        limit         least trust    prefetched
    below 0.30     stuff       base x 3      0.2            always below 0.50; below 0.80 where the query asks for memory;
    below 0.70     hybrid      base          0.3            from 0.80 where it does, in fewer than 200 characters;
    else           selective   base x 0.4    0.5            above 0.95 never (mode skip)

    pressure = used / threshold, both right of the floor, in tokens; 0 where the window is unknown
    limit    = max(1, floor(base x factor))

The threshold is what the governor lets that part have, or the window where it says nothing. A memory costs tokens of every
turn that follows, so fewer and surer ones are fetched as room gets scarce. Knows no memory and how none is found.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.prompt.coverage import share
from orchestrator.prompt.phrases import NO_MORE, MorePhrases, asks_for_memory, read_part

BASE_LIMIT = 5
ALWAYS_BELOW = 0.50
ASKED_BELOW = 0.80
SKIP_ABOVE = 0.95
SHORT_QUERY = 200  # characters: a long query has its own context


class PrefetchMode(StrEnum):
    STUFF = "stuff"
    HYBRID = "hybrid"
    SELECTIVE = "selective"
    SKIP = "skip"


@dataclass(frozen=True)
class _Mode:
    mode: PrefetchMode
    below: float
    factor: float
    min_trust: float
    advice: str


_MODES = (
    _Mode(PrefetchMode.STUFF, 0.30, 3.0, 0.2, "there is room: fetch widely"),
    _Mode(PrefetchMode.HYBRID, 0.70, 1.0, 0.3, "fetch what is relevant, and leave room for the conversation"),
    _Mode(PrefetchMode.SELECTIVE, math.inf, 0.4, 0.5, "fetch little and sure; a new session would have more room"),
)
_SKIP = _Mode(
    PrefetchMode.SKIP, math.inf, 0.0, 1.0, "no room for memories: shorten the question or start a new session"
)


@dataclass(frozen=True)
class ContextUse:
    """Tokens right of the floor: those `used`, and the `threshold` that the governor sets, None where it sets none; and the
    `window` of one sequence, 0 where it is unknown."""

    used: int
    window: int
    threshold: int | None = None

    @property
    def bound(self) -> int:
        return self.window if self.threshold is None else self.threshold

    @property
    def pressure(self) -> float:
        return self.used / max(1, self.bound) if self.window > 0 else 0.0


@dataclass(frozen=True)
class Prefetch:
    """What may be fetched: at most `limit` memories with a trust of at least `min_trust`.

    `factor` multiplies the limits of a retrieval plan. `wanted` is false where nothing is fetched in advance; `advice` is
    one line for people.
    """

    use: ContextUse
    mode: PrefetchMode
    factor: float
    limit: int
    min_trust: float
    wanted: bool
    advice: str

    @property
    def pressure(self) -> float:
        return self.use.pressure

    def report(self) -> str:
        """The same for people, in two lines."""
        fetched = f"at most {self.limit:,}, trust {self.min_trust} or more" if self.wanted else "skipped"
        bound, window = f"{self.use.bound:,}", f"{self.use.window:,}"
        used = f"{self.pressure:.1%} of context used ({self.use.used:,} of {bound} tokens; window {window})"
        return f"{self.mode.upper()}: {used}; memories: {fetched}\n{self.advice}"


def prefetch_for(query: str, use: ContextUse, base: int = BASE_LIMIT, more: MorePhrases = NO_MORE) -> Prefetch:
    """What may be fetched for a query, by the tables above."""
    row = _SKIP if use.pressure > SKIP_ABOVE else next(mode for mode in _MODES if use.pressure < mode.below)
    skipped = row is _SKIP
    return Prefetch(
        use=use,
        mode=row.mode,
        factor=row.factor,
        limit=0 if skipped else max(1, share(base, row.factor)),
        min_trust=row.min_trust,
        wanted=not skipped and _wanted(query, use.pressure, more),
        advice=row.advice,
    )


def _wanted(query: str, pressure: float, more: MorePhrases) -> bool:
    if pressure < ALWAYS_BELOW:
        return True
    if pressure >= ASKED_BELOW and len(query) >= SHORT_QUERY:
        return False
    return asks_for_memory(read_part(query), more)
