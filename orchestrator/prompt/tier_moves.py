"""When a floor that stands changes its tier: down as soon as it no longer fits, up only with room to spare.

Pure: the clock's reading is handed in. Levels are the governor's words: calm, elevated, high, critical.
"""

from dataclasses import dataclass, replace

from orchestrator.prompt.coverage import (
    SHIPPED,
    Coverage,
    CoverageDecision,
    CoverageSettings,
    CoverageSizes,
    FloorRoom,
    decide_coverage,
)

NO_STEP_UP = frozenset({"high", "critical"})
DOWN_AFTER_S = 10.0
UP_AFTER_S = 60.0


@dataclass(frozen=True)
class Move:
    """What should stand now. `evict`: nobody uses the floor and memory is scarce, so its cells are to be given back."""

    decision: CoverageDecision
    evict: bool = False


@dataclass(frozen=True)
class Pending:
    """A wish for another tier and since when it lasts, in the seconds of the caller's clock."""

    tier: Coverage
    since: float


def redecide(
    current: CoverageDecision,
    sizes: CoverageSizes,
    room: FloorRoom,
    level: str = "calm",
    idle: bool = False,
    settings: CoverageSettings = SHIPPED,
) -> Move:
    """The tier for the room that there is now: the current one unless it must shrink, or may grow.

    Up needs `step_up_share` of room beyond each limit, and a level below high. What stands is not resized while it
    fits: a resized floor would be a new prefix.
    """
    evict = level == "critical" and idle
    plain = decide_coverage(sizes, room, settings)
    if plain.tier.rank < current.tier.rank:
        return Move(plain, evict)
    if plain.tier is current.tier:
        # What stands is kept as it is; the sentence is told anew, because its numbers are of now.
        return Move(replace(current, reason=plain.reason) if _stands(current, sizes, plain.limit) else plain, evict)
    return Move(_upwards(current, plain, sizes, room, level, settings), evict)


def due(
    pending: Pending | None,
    current: Coverage,
    wanted: Coverage,
    now: float,
    down_after_s: float = DOWN_AFTER_S,
    up_after_s: float = UP_AFTER_S,
) -> tuple[Pending | None, bool]:
    """Whether the wish has lasted its dwell time; what is pending from now on comes first."""
    if wanted is current:
        return None, False
    if pending is None or pending.tier is not wanted:
        pending = Pending(wanted, now)
    return pending, left(pending, current, now, down_after_s, up_after_s) <= 0


def left(
    pending: Pending,
    current: Coverage,
    now: float,
    down_after_s: float = DOWN_AFTER_S,
    up_after_s: float = UP_AFTER_S,
) -> float:
    """Seconds until the wish has lasted its dwell time; 0 or less when it has."""
    dwell = up_after_s if pending.tier.rank > current.rank else down_after_s
    return pending.since + dwell - now


def _stands(current: CoverageDecision, sizes: CoverageSizes, limit: int) -> bool:
    grown = current.tier is Coverage.FULL and current.tokens != sizes.full
    return not grown and current.tokens <= limit


def _upwards(
    current: CoverageDecision,
    plain: CoverageDecision,
    sizes: CoverageSizes,
    room: FloorRoom,
    level: str,
    settings: CoverageSettings,
) -> CoverageDecision:
    if level in NO_STEP_UP:
        return replace(current, reason=f"stays {current.tier}: {plain.tier} would fit, but memory pressure is {level}")
    careful = decide_coverage(sizes, room, settings, slack=settings.step_up_share)
    if careful.tier.rank > current.tier.rank:
        return careful
    return replace(
        current,
        reason=f"stays {current.tier}: {plain.tier} needs {settings.step_up_share:.0%} more room than its "
        f"{plain.tokens:,} tokens, and {plain.limit:,} are there",
    )
