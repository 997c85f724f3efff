"""How well memories work, in figures: what of them each turn counts, and what the counts of many turns say. Pure.

    relevance       mean similarity of what was loaded with the question that it was loaded for
    budget_use      tokens of blocks when they were built, of those that they might have taken
    refreshes       blocks built anew, a turn
    precision       share of the loaded memories that an answer referenced, each turn
    cold_build_ms   the first block of a conversation
    growth          memories a day
    confirmed       share of the facts that were confirmed more than once
    brier           of decisions with an outcome: mean of (confidence - outcome)²; a success is 1, a part 0.5, a failure 0
    overconfidence  of the same: mean confidence less mean outcome

Censors stand in every block whatever is asked: they are not recalled, and none of the figures counts them. Nothing is made
up where nothing was measured. Knows no database and no clock.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.karma.records import JUDGED_FROM, DecisionOutcome

DAYS = 30  # that the figures look back
MISJUDGED = 0.1  # how far confidence and outcome are apart, before it is worth saying
OUTCOME_VALUES = {DecisionOutcome.SUCCESS: 1.0, DecisionOutcome.PARTIAL: 0.5, DecisionOutcome.FAILURE: 0.0}
"""What became of a decision, as the probability that it should have had; of a pending one nothing is known."""


@dataclass(frozen=True)
class TurnCounts:
    """What one turn counts, or the sum of many. `loaded` memories with the sum of their `similarity` (0..1) and their
    `tokens`, of `room` tokens, are those of blocks that were `built`; `shown` ones are counted in each turn, `cold` is
    the first block of a conversation."""

    turns: int = 0
    refreshes: int = 0
    built: int = 0
    loaded: int = 0
    similarity: float = 0.0
    tokens: int = 0
    room: int = 0
    shown: int = 0
    referenced: int = 0
    cold: int = 0
    cold_ms: float = 0.0


@dataclass(frozen=True)
class Growth:
    """Memories that came in within so many days."""

    memories: int
    days: float


@dataclass(frozen=True)
class JudgedDecision:
    """How sure somebody was (0..1), and what became of it."""

    confidence: float
    outcome: DecisionOutcome


@dataclass(frozen=True)
class Measured:
    """`value` is None where nothing was measured. `measured`: on how many; `least` and `most`: the target, both
    exclusive but for a range."""

    name: str
    says: str
    value: float | None
    measured: int
    least: float | None = None
    most: float | None = None

    @property
    def reached(self) -> bool | None:
        """None where too little was measured, or there is no target."""
        if self.value is None or self.measured < JUDGED_FROM or (self.least is None and self.most is None):
            return None
        if self.least is not None and self.most is not None:
            return self.least <= self.value <= self.most
        return self.value > self.least if self.least is not None else self.value < (self.most or 0.0)


def figures_of(
    counts: TurnCounts, facts: int, confirmed: int, growth: Growth, decisions: Sequence[JudgedDecision]
) -> tuple[Measured, ...]:
    """`facts` that stand, of which so many were `confirmed` more than once."""
    loaded, use = ratio(counts.similarity, counts.loaded), ratio(counts.tokens, counts.room)
    cold = ratio(counts.cold_ms, counts.cold)
    return (
        Measured("relevance", "mean similarity of loaded memories", loaded, counts.loaded, least=0.6),
        Measured("budget_use", "share of a block's tokens that it uses", use, counts.built, least=0.5, most=0.9),
        Measured("refreshes", "blocks built anew, a turn", *per(counts.refreshes, counts.turns), most=0.3),
        Measured(
            "precision",
            "share of loaded memories that the answer references",
            *per(counts.referenced, counts.shown),
            least=0.4,
        ),
        Measured("cold_build_ms", "milliseconds for the first block", cold, counts.cold, most=500.0),
        Measured("growth", "memories a day", ratio(growth.memories, growth.days), growth.memories),
        Measured("confirmed", "share of facts confirmed more than once", *per(confirmed, facts), least=0.2),
        *_calibration([one for one in decisions if one.outcome in OUTCOME_VALUES]),
    )


def _calibration(judged: Sequence[JudgedDecision]) -> Iterator[Measured]:
    came = [OUTCOME_VALUES[one.outcome] for one in judged]
    squares = sum((one.confidence - outcome) ** 2 for one, outcome in zip(judged, came, strict=True))
    over = sum(one.confidence for one in judged) - sum(came)
    count = len(judged)
    # 0.25 is what somebody has who says 50 % of everything.
    yield Measured("brier", "Brier score of decisions with an outcome", ratio(squares, count), count, most=0.25)
    yield Measured("overconfidence", "their mean confidence less their mean outcome", ratio(over, count), count)


def calibration(decisions: Sequence[JudgedDecision]) -> str:
    """What to know of earlier decisions, in a sentence; '' where they were about as sure as right, or too few have an
    outcome."""
    came = [OUTCOME_VALUES[one.outcome] for one in decisions if one.outcome in OUTCOME_VALUES]
    sure = [one.confidence for one in decisions if one.outcome in OUTCOME_VALUES]
    if len(came) < JUDGED_FROM or abs(sum(sure) - sum(came)) < MISJUDGED * len(came):
        return ""
    less = "less" if sum(sure) > sum(came) else "more"
    share, meant = sum(came) / len(came), sum(sure) / len(sure)
    return f"Of {len(came)} past decisions {share:.0%} went well, at a confidence of {meant:.0%}: be {less} sure."


def ratio(part: float, whole: float) -> float | None:
    """None of nothing."""
    return part / whole if whole > 0 else None


def per(part: int, whole: int) -> tuple[float | None, int]:
    """With what it was measured on."""
    return ratio(part, whole), whole
