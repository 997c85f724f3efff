"""How full the window is right of the floor, and what of memory may still be fetched for a question.

    pressure = used / threshold                     strategy     limit    minimum trust
    below 0.30                                      stuff        x 3      0.2
    0.30 to below 0.70                              hybrid       x 1      0.3
    from 0.70                                       selective    x 0.4    0.5
    above 0.95                                      selective, skipped: limit 0, trust 1.0

    whether at all: below 0.50 always; to below 0.80 if the question asks for memory; from there if it also is short

Sizes in tokens, both measured right of the floor. Knows no memory and no model.
"""

import math
from dataclasses import dataclass

from orchestrator.prompt.tasks import Phrases, shipped

BASE_LIMIT = 5
SKIP_ABOVE = 0.95
ALWAYS_BELOW = 0.50
IF_ASKED_BELOW = 0.80
SHORT_QUESTION = 200  # characters


@dataclass(frozen=True)
class Prefetch:
    """How many memories may be fetched, and how trusted they must be. `factor` scales the retrieval plan's limits."""

    strategy: str
    pressure: float
    used: int
    window: int
    threshold: int
    factor: float
    limit: int
    minimum_trust: float
    skipped: bool

    def wanted_for(self, question: str, memory: Phrases | None = None) -> bool:
        """Whether to prefetch for this question at all."""
        if self.skipped:
            return False
        if self.pressure < ALWAYS_BELOW:
            return True
        asks = (memory or shipped("memory")).found_in(question) is not None
        return asks and (self.pressure < IF_ASKED_BELOW or len(question) < SHORT_QUESTION)

    def report(self) -> tuple[str, ...]:
        """Lines for people, as part of the plan."""
        return (
            f"strategy: {self.strategy}",
            f"pressure: {self.pressure:.0%}",
            f"used: {self.used:,} of {self.window:,} tokens, threshold {self.threshold:,}",
            f"limit: {self.limit} memories, minimum trust {self.minimum_trust}",
            f"skipped: {'yes' if self.skipped else 'no'}",
            f"advice: {self.advice()}",
        )

    def advice(self) -> str:
        if self.skipped:
            return "the conversation fills its budget: start a new session, or let older turns be condensed"
        return _ADVICE[self.strategy]


_ADVICE = {
    "stuff": "there is room: fetch generously",
    "hybrid": "fetch what fits the question",
    "selective": "room is scarce: fetch only what is trusted and asked for",
}


def pressure_of(used: int, window: int, threshold: int | None) -> float:
    """used / threshold; the window stands in for a missing threshold; 0 when the window is unknown (0)."""
    if window <= 0:
        return 0.0
    return max(0, used) / (threshold or window)


def decide_prefetch(used: int, window: int, threshold: int | None = None, base: int = BASE_LIMIT) -> Prefetch:
    """The table above. `threshold` is the governor's token budget for that part; None when there is none."""
    pressure = pressure_of(used, window, threshold)
    strategy, factor, trust = _row(pressure)
    skipped = pressure > SKIP_ABOVE
    return Prefetch(
        strategy=strategy,
        pressure=pressure,
        used=used,
        window=window,
        threshold=threshold or window,
        factor=0.0 if skipped else factor,
        limit=0 if skipped else max(1, math.floor(base * factor + 1e-9)),
        minimum_trust=1.0 if skipped else trust,
        skipped=skipped,
    )


def _row(pressure: float) -> tuple[str, float, float]:
    if pressure < 0.30:
        return "stuff", 3.0, 0.2
    if pressure < 0.70:
        return "hybrid", 1.0, 0.3
    return "selective", 0.4, 0.5
