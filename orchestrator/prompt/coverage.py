"""How much of a codex is in the cached prefix: decided at load and at declared boundaries, from numbers alone.

    #  when                                     coverage
    0  forced                                   that, or OverBudget with the numbers
    1  every file whole fits                    full
    2  every skeleton fits                      skeleton+hot; whole files fill what is left of the limit
    3  window >= 4,000                          map: lines and skeletons
    4  otherwise                                none

    fits(coverage) = tokens[coverage] <= limit,  limit = min(available, 0.7 * window, kv_tokens)
    available = window - identity - overhead, overhead = 25 % of the window, never negative
    a map takes at most min(limit, 0.5 * window, available - 4,000), and as little as a tenth of the window for the last:
    what it only lists is searched, and what is found needs room

A larger window or grant never gives a smaller coverage. Which file gets how much is decided in `codex.outline.coverage`.
Knows no clock, no codex and no engine.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from governor.budget import Bound
from governor.settings import short_count, size
from orchestrator.errors import InvalidRequest, OverBudget

Q8_0_OF_F16 = 34 / 64  # bytes of a q8_0 block of 32 values (32 + a half-precision scale) over those of f16
NO_STEP_UP = frozenset({"high", "critical"})
MOST_OF_A_MAP, LEAST_OF_A_MAP = 0.50, 0.10  # of the window
EVIDENCE = 4_000  # tokens that are fetched for a question before it is asked
GROWS = 2  # times its tokens have to fit before a floor is made again within its coverage: it is a new prefix


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
    map_window: int = 4_000
    map_share: float = 0.50
    step_up_share: float = 0.10  # room that a step up needs beyond the limit: no to and fro


DEFAULT_COVERAGE = CoverageSettings()


@dataclass(frozen=True)
class CoverageSizes:
    """Tokens of a codex at each coverage, None where it is not made for this codex. Exact but for those in `estimated`.

    `skeleton`: every file's skeleton and no more; `map`: the most that a map holds.
    """

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
    """What a floor may take, in tokens: the governor's window (of one sequence), the identity's size, and the KV that can
    be granted to it (the cells of a pool).

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
    """`tokens`: what the coverage may hold, of the `limit` for all; `map_limit`: what a map could take; `reason` has the
    numbers."""

    coverage: Coverage
    row: int
    tokens: int
    limit: int
    reason: str
    hint: str = ""
    map_limit: int = 0

    def keeps(self, tokens: int, might: int) -> bool:
        """Whether a floor of this coverage, made earlier, is kept: its tokens fit, and not twice what it might have had."""
        return tokens <= self.limit and self.tokens < GROWS * max(1, might)


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
    if sizes.skeleton is not None and sizes.skeleton * need <= fit.limit:
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
    def map_limit(self) -> int:
        window, most = self.room.window, min(MOST_OF_A_MAP, self.settings.map_share)
        searched = max(share(window, LEAST_OF_A_MAP), available(self.room, self.settings) - EVIDENCE)
        return min(self.limit, share(window, most), searched)

    @property
    def map_tokens(self) -> int:
        return min(self.sizes.map or 0, self.map_limit)

    def decision(self, row: int, coverage: Coverage) -> CoverageDecision:
        sizes, limit, forced = self.sizes, self.limit, "" if row else " as forced"
        if coverage is Coverage.FULL:
            fits = f"{sizes.about or 'its '}{sizes.full:,} tokens fit in {limit:,} of a window of {self.room.window:,}"
            why = f"full{forced}, because {fits}"
            return CoverageDecision(coverage, row, sizes.full, limit, why, map_limit=self.map_limit)
        held = {Coverage.SKELETON: max(sizes.skeleton or 0, min(limit, sizes.full)), Coverage.MAP: self.map_tokens}
        # What is forced may be less than what would fit.
        joined = "though" if forced and sizes.full <= limit else "because"
        reason = f"{coverage}{forced}, {joined} {self.too_large(sizes.full, sizes.about)}"
        tokens = held.get(coverage, 0)
        return CoverageDecision(coverage, row, tokens, limit, reason, self.hint(sizes.full), self.map_limit)

    def too_large(self, tokens: int, about: str = "") -> str:
        """What the codex needs against what there is, and what bounds that: in bytes where KV does, else in tokens."""
        room, limit = self.room, self.limit
        if tokens <= limit:
            return f"{about}{tokens:,} tokens would fit in {limit:,}"
        if not self.bound_by_kv or not room.kv_bytes_per_token:
            left = f"{about}{tokens:,} tokens do not fit in the {limit:,} that a window of {room.window:,} leaves"
            return left + self.bound
        window = self.window_for(tokens)
        cells, wide = (tokens, "") if tokens > room.kv_tokens else (window, f" a window of {window:,},")
        need, free = cells * room.kv_bytes_per_token, max(0, room.kv_tokens) * room.kv_bytes_per_token
        return f"{about}{short_count(tokens)} tokens need{wide} {size(need)} of KV and {size(free)} are free"

    @property
    def bound_by_kv(self) -> bool:
        """Whether more cells would raise the limit: they are the limit, or the window is as long as they allow."""
        room = self.room
        return room.kv_tokens <= self.limit or (room.bound is Bound.KV and room.window == room.kv_tokens)

    @property
    def bound(self) -> str:
        """What bounds the window beside KV in this memory."""
        return {
            Bound.TRAINED: ", the length that the model was trained for",
            Bound.CONTEXT: ", as model.context allows",
            Bound.MEASURED: ", the length that the model was measured to follow",
            Bound.RAM: ", for which RAM holds the KV of the layers on the CPU",
        }.get(self.room.bound, "")

    def hint(self, tokens: int) -> str:
        """What would make it fit, as far as it can be said; empty when it fits."""
        room, needed = self.room, self.window_for(tokens)
        if tokens <= self.limit:
            return ""
        if room.window < needed and room.bound is Bound.MEASURED:
            return "a model that follows longer texts would hold it (lore doctor --context)"
        if room.window < needed and needed > room.trained:
            return f"a model with a window of {needed:,} would hold it"
        limited = room.window < needed and (room.bound is Bound.CONTEXT or room.window < room.kv_tokens)
        setting = f"the setting model.context = {needed}" if limited else ""
        memory = self._more_kv(needed if room.window < needed else tokens)
        both = " and ".join(filter(None, (setting, memory)))
        return f"{both} would make it fit" if memory else f"{both} would hold it"

    def _more_kv(self, cells: int) -> str:
        room = self.room
        if cells <= room.kv_tokens:
            return ""
        if room.kv_type == "f16" and cells <= room.kv_tokens / Q8_0_OF_F16:
            return "KV type q8_0"
        return f"{size((cells - room.kv_tokens) * room.kv_bytes_per_token)} more for KV"

    def window_for(self, tokens: int) -> int:
        """The window that leaves a codex so many tokens."""
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

    A larger floor needs `step_up_share` of room beyond each limit, and a level below high. Within a coverage a floor is
    not resized while it fits, unless twice its tokens would: a resized floor is a new prefix.
    """
    plain = decide_coverage(sizes, room, settings)
    where = direction(current, plain)
    if where > 0:
        return _upwards(current, plain, sizes, room, level, settings)
    if where < 0 or (current.coverage is Coverage.FULL and current.tokens != sizes.full):
        return plain
    return replace(
        current, reason=plain.reason, hint=plain.hint
    )  # the floor is kept, and its sentence has the numbers of now


def direction(current: CoverageDecision, wanted: CoverageDecision) -> int:
    """Below 0 where the wanted floor is smaller, above 0 where it is larger, 0 where the current one is kept."""
    if wanted.coverage is not current.coverage:
        return wanted.coverage.rank - current.coverage.rank
    return -1 if current.tokens > wanted.limit else int(wanted.tokens >= GROWS * max(1, current.tokens))


@dataclass(frozen=True)
class Pending:
    """A wish for another floor and since when it lasts, in the seconds of the caller's clock."""

    coverage: Coverage
    larger: bool
    since: float


def change_due(
    pending: Pending | None,
    current: CoverageDecision,
    wanted: CoverageDecision,
    now: float,
    down_after_s: float,
    up_after_s: float,
) -> tuple[Pending | None, float]:
    """What is pending from now on, and the seconds until it has lasted its dwell time: 0 or less when it has."""
    where = direction(current, wanted)
    if not where:
        return None, 0.0
    wish = Pending(wanted.coverage, where > 0, now)
    if pending is not None and replace(pending, since=now) == wish:
        wish = pending
    return wish, wish.since + (up_after_s if wish.larger else down_after_s) - now


def _upwards(
    current: CoverageDecision,
    plain: CoverageDecision,
    sizes: CoverageSizes,
    room: FloorRoom,
    level: str,
    settings: CoverageSettings,
) -> CoverageDecision:
    if level in NO_STEP_UP:
        reason = f"stays {current.coverage}: {plain.coverage} would fit, but memory pressure is {level}"
        return replace(current, reason=reason, hint="")
    careful = decide_coverage(sizes, room, settings, slack=settings.step_up_share)
    if direction(current, careful) > 0:
        return careful
    needs = f"{plain.coverage} needs {settings.step_up_share:.0%} more room than its {plain.tokens:,} tokens"
    return replace(current, reason=f"stays {current.coverage}: {needs}, and {plain.limit:,} are there", hint="")
