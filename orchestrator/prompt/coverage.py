"""How much of a codex is in the cached prefix: decided at load and at declared boundaries, from numbers alone.

    #  when                                     coverage
    0  forced                                   that, or OverBudget with the numbers
    1  full fits                                full
    2  window >= 16,000 and skeleton fits       skeleton+hot; the hot bodies fill what is left
    3  window >= 4,000                          map, at most 10 % of the window
    4  otherwise                                none

    fits(coverage) = tokens[coverage] <= limit,  limit = min(available, 0.7 * window, kv_tokens)
    available = window - identity - overhead, overhead = 25 % of the window, never negative

A larger window or grant never gives a smaller coverage. Knows no clock, no codex and no engine.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from governor.budget import Bound
from governor.settings import short_count, size
from orchestrator.errors import InvalidRequest, OverBudget

Q8_0_OF_F16 = 34 / 64  # bytes of a q8_0 block of 32 values (32 + a half-precision scale) over those of f16
NO_STEP_UP = frozenset({"high", "critical"})


class Coverage(StrEnum):
    FULL = "full"
    SKELETON = "skeleton+hot"
    MAP = "map"
    NONE = "none"

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS = {Coverage.NONE: 0, Coverage.MAP: 1, Coverage.SKELETON: 2, Coverage.FULL: 3}


@dataclass(frozen=True)
class CoverageSettings:
    """Shares are of the window, sizes in tokens."""

    overhead_share: float = 0.25  # system, tools, turns and output
    window_share: float = 0.70  # a floor beyond it leaves a conversation no room to grow
    skeleton_window: int = 16_000
    map_window: int = 4_000
    map_share: float = 0.10
    step_up_share: float = 0.10  # room that a step up needs beyond the limit: no to and fro


DEFAULT_COVERAGE = CoverageSettings()


@dataclass(frozen=True)
class CoverageSizes:
    """Tokens of a codex at each coverage, None where it is not made for this codex. Exact but for those in `estimated`."""

    full: int
    skeleton: int | None = None
    map: int | None = None
    estimated: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """How a sentence says the tokens of the whole."""
        return "about " if "full" in self.estimated else ""


@dataclass(frozen=True)
class FloorRoom:
    """What a floor may take, in tokens: the governor's window, the identity's size, the KV that can be granted to it.

    `kv_bytes_per_token`, `kv_type`, `trained` (the window that the model was trained for) and `bound` (what ends the
    window) are for sentence and hint.
    """

    window: int
    identity: int
    kv_tokens: int
    kv_bytes_per_token: float = 0.0
    kv_type: str = "f16"
    trained: int = 0
    bound: Bound = Bound.KV


@dataclass(frozen=True)
class CoverageDecision:
    """`tokens`: what the coverage will hold at most, `hot_tokens` of them for whole bodies; `reason` has the numbers."""

    coverage: Coverage
    row: int
    tokens: int
    limit: int
    reason: str
    hot_tokens: int = 0
    hint: str = ""


def decide_coverage(
    sizes: CoverageSizes,
    room: FloorRoom,
    settings: CoverageSettings = DEFAULT_COVERAGE,
    forced: Coverage | None = None,
    slack: float = 0.0,
    why: str = "was forced",
) -> CoverageDecision:
    """Decides by the table above. With `slack`, every limit must be met with that share of room beyond it. `why` it has to
    be the forced one, for the refusal."""
    fit = _Fit(sizes, room, settings)
    if forced is not None:
        return _forced(forced, fit, why)
    need = 1.0 + slack
    if sizes.full * need <= fit.limit:
        return fit.decision(1, Coverage.FULL)
    skeleton_window = room.window >= settings.skeleton_window * need
    if sizes.skeleton is not None and skeleton_window and sizes.skeleton * need <= fit.limit:
        return fit.decision(2, Coverage.SKELETON)
    if room.window >= settings.map_window * need and fit.map_tokens > 0:
        return fit.decision(3, Coverage.MAP)
    return fit.decision(4, Coverage.NONE)


def coverage_named(name: str) -> Coverage:
    """The coverage a person or a file names, in any case; 'skeleton' is enough. InvalidRequest lists the names."""
    said = name.strip().lower()
    for coverage in Coverage:
        if said in (coverage.value, coverage.value.partition("+")[0]):
            return coverage
    raise InvalidRequest(f"{name!r} is no coverage", f"one of: {', '.join((*Coverage, 'auto'))}")


def available(room: FloorRoom, settings: CoverageSettings = DEFAULT_COVERAGE) -> int:
    """Tokens that the window leaves a floor's codex: without identity and overhead, never negative."""
    return max(0, share(room.window, 1 - settings.overhead_share) - room.identity)


def limit_of(room: FloorRoom, settings: CoverageSettings = DEFAULT_COVERAGE) -> int:
    return max(0, min(available(room, settings), share(room.window, settings.window_share), room.kv_tokens))


def share(tokens: int, fraction: float) -> int:
    """The whole tokens of a share. The summand undoes what 0.7 and its like lose in binary."""
    return math.floor(tokens * fraction + 1e-6)


# -- a decision with its sentence


def _forced(forced: Coverage, fit: "_Fit", why: str) -> CoverageDecision:
    sizes = fit.sizes
    needed = {Coverage.FULL: sizes.full, Coverage.SKELETON: sizes.skeleton, Coverage.MAP: 1, Coverage.NONE: 0}[forced]
    if needed is None or (forced is Coverage.MAP and sizes.map is None):
        raise InvalidRequest(
            f"coverage {forced} is not made for this codex", "choose another coverage, or none to let it be chosen"
        )
    if needed > fit.limit:
        raise OverBudget(
            f"coverage {forced} {why}, but {fit.too_large(needed)}",
            fit.hint(needed) or "load fewer files (--exclude), or let the coverage be chosen",
        )
    return fit.decision(0, forced)


@dataclass(frozen=True)
class _Fit:
    """A codex of these sizes against this room. Row 0 of a decision is that of a forced coverage."""

    sizes: CoverageSizes
    room: FloorRoom
    settings: CoverageSettings

    @property
    def limit(self) -> int:
        return limit_of(self.room, self.settings)

    @property
    def map_tokens(self) -> int:
        if self.sizes.map is None:
            return 0
        return min(self.sizes.map, share(self.room.window, self.settings.map_share), self.limit)

    def decision(self, row: int, coverage: Coverage) -> CoverageDecision:
        sizes, limit, forced = self.sizes, self.limit, "" if row else " as forced"
        if coverage is Coverage.FULL:
            fits = f"{sizes.about or 'its '}{sizes.full:,} tokens fit in {limit:,} of a window of {self.room.window:,}"
            return CoverageDecision(coverage, row, sizes.full, limit, f"full{forced}, because {fits}")
        tokens = hot = 0
        if coverage is Coverage.SKELETON:
            signatures = sizes.skeleton or 0
            hot = max(0, min(limit, sizes.full) - signatures)
            tokens = signatures + hot
        elif coverage is Coverage.MAP:
            tokens = self.map_tokens
        # What is forced may be less than what would fit.
        joined = "though" if forced and sizes.full <= limit else "because"
        reason = f"{coverage}{forced}, {joined} {self.too_large(sizes.full, sizes.about)}"
        return CoverageDecision(coverage, row, tokens, limit, reason, hot, self.hint(sizes.full))

    def too_large(self, tokens: int, about: str = "") -> str:
        """What the codex needs against what there is: in bytes where KV is the bound, else in tokens of the window."""
        room, limit = self.room, self.limit
        if tokens <= limit:
            return f"{about}{tokens:,} tokens would fit in {limit:,}"
        if room.kv_tokens > limit or not room.kv_bytes_per_token:
            return f"{about}{tokens:,} tokens do not fit in the {limit:,} that a window of {room.window:,} leaves"
        need, free = tokens * room.kv_bytes_per_token, max(0, room.kv_tokens) * room.kv_bytes_per_token
        return f"{about}{short_count(tokens)} tokens need {size(need)} of KV and {size(free)} are free"

    def hint(self, tokens: int) -> str:
        """What would make it fit, as far as it can be said; empty when it fits or nothing here helps."""
        room = self.room
        if tokens <= self.limit:
            return ""
        if tokens > min(available(room, self.settings), share(room.window, self.settings.window_share)):
            needed = self._window_for(tokens)
            if needed <= room.trained:
                return f"the setting model.context = {needed} would hold it"
            return f"a model with a window of {needed:,} would hold it"
        if room.kv_type == "f16" and tokens <= room.kv_tokens / Q8_0_OF_F16:
            return "KV type q8_0 would make it fit"
        return f"{size((tokens - room.kv_tokens) * room.kv_bytes_per_token)} more for KV would make it fit"

    def _window_for(self, tokens: int) -> int:
        by_overhead = (tokens + self.room.identity) / (1 - self.settings.overhead_share)
        return math.ceil(max(by_overhead, tokens / self.settings.window_share))


# -- when it changes


def redecide(
    current: CoverageDecision,
    sizes: CoverageSizes,
    room: FloorRoom,
    level: str = "calm",
    settings: CoverageSettings = DEFAULT_COVERAGE,
) -> CoverageDecision:
    """The coverage for the room that there is now: the current one unless it must shrink, or may grow.

    A larger coverage needs `step_up_share` of room beyond each limit, and a level below high. A floor is not resized
    while it fits: a resized floor would be a new prefix.
    """
    plain = decide_coverage(sizes, room, settings)
    if plain.coverage.rank < current.coverage.rank:
        return plain
    if plain.coverage is not current.coverage:
        return _upwards(current, plain, sizes, room, level, settings)
    grown = current.coverage is Coverage.FULL and current.tokens != sizes.full
    if grown or current.tokens > plain.limit:
        return plain
    return replace(current, reason=plain.reason)  # the floor is kept, and its sentence has the numbers of now


@dataclass(frozen=True)
class Pending:
    """A wish for another coverage and since when it lasts, in the seconds of the caller's clock."""

    coverage: Coverage
    since: float


def change_due(
    pending: Pending | None,
    current: Coverage,
    wanted: Coverage,
    now: float,
    down_after_s: float,
    up_after_s: float,
) -> tuple[Pending | None, bool]:
    """Whether the wish has lasted its dwell time; what is pending from now on comes first."""
    if wanted is current:
        return None, False
    if pending is None or pending.coverage is not wanted:
        pending = Pending(wanted, now)
    return pending, left(pending, current, now, down_after_s, up_after_s) <= 0


def left(pending: Pending, current: Coverage, now: float, down_after_s: float, up_after_s: float) -> float:
    """Seconds until the wish has lasted its dwell time; 0 or less when it has."""
    dwell = up_after_s if pending.coverage.rank > current.rank else down_after_s
    return pending.since + dwell - now


def _upwards(
    current: CoverageDecision,
    plain: CoverageDecision,
    sizes: CoverageSizes,
    room: FloorRoom,
    level: str,
    settings: CoverageSettings,
) -> CoverageDecision:
    if level in NO_STEP_UP:
        return replace(
            current, reason=f"stays {current.coverage}: {plain.coverage} would fit, but memory pressure is {level}"
        )
    careful = decide_coverage(sizes, room, settings, slack=settings.step_up_share)
    if careful.coverage.rank > current.coverage.rank:
        return careful
    return replace(
        current,
        reason=f"stays {current.coverage}: {plain.coverage} needs {settings.step_up_share:.0%} more room than its "
        f"{plain.tokens:,} tokens, and {plain.limit:,} are there",
    )
