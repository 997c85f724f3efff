"""Which memories are shown, in which size: score, deduplicate, fill. Pure.

    score = ( 0.25 similarity + 0.25 relevance + 0.15 priority of the kind in the frame + 0.15 recency + 0.10 outcome
              + 0.05 usage + 0.05 confidence ) × boost × 1.1 for what is proven × 0.5 for what is superseded
    with a weight w of recency:  score' = (1 - w) · score + w · recency

A relevance floor comes before the budget: more room must not admit noise. Where one memory holds much of the question, what
holds less than half of that shares a word with it by chance. What the conversation says already is left out.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from codex.words import STOP_WORDS, stem, words
from orchestrator.karma.records import DAY_S, DecisionOutcome, MemoryRecord, MemoryState
from orchestrator.karma.search import FLOOR, FoundMemory, successors_first
from orchestrator.karma.store import MemoryUsage
from orchestrator.relevance.intent import Frame, MemoryPlan

SIMILARITY, RELEVANCE, PRIORITY, RECENCY, OUTCOME, USAGE, CONFIDENCE = 0.25, 0.25, 0.15, 0.15, 0.10, 0.05, 0.05
HALF_DAYS = 30.0
OUTCOMES = {
    DecisionOutcome.SUCCESS: 1.2,
    DecisionOutcome.PARTIAL: 1.0,
    DecisionOutcome.PENDING: 0.9,
    DecisionOutcome.FAILURE: 0.8,
}
PROVEN = 1.1
PROVEN_STATES = frozenset({MemoryState.CORE, MemoryState.EFFECTIVE})
REPLACED = 0.5
OF_BEST = 0.5  # of the best similarity; what has less is left out (decision 0053)
MOST_USAGE = 1.5
LEAST_SHOWINGS = 2  # before a boost is made of them
LEAST_LETTERS, REFERENCED = 3, 0.15  # of a word that counts; Jaccard index of an item that an answer uses
SAID, PARTLY_SAID = 0.5, 0.3  # share of a memory's words that a turn holds


@dataclass(frozen=True)
class RankedMemory:
    """`shown`: the text of the size that is shown; `line`: what stands in its place where that does not fit."""

    record: MemoryRecord
    similarity: float
    score: float
    shown: str
    line: str
    tokens: int = 0


def recency(record: MemoryRecord, now: float) -> float:
    """1 for what is new, half of it after 30 days."""
    return math.exp(-math.log(2) * max(0.0, now - record.created) / DAY_S / HALF_DAYS)


def boost(usage: MemoryUsage | None) -> float:
    """0.5 for what was shown and never referenced, up to 1.5; 1 for what was hardly shown."""
    if usage is None or usage.showings < LEAST_SHOWINGS or usage.shown <= 0:
        return 1.0
    return 0.5 + min(1.0, usage.referenced / usage.shown)


def score(found: FoundMemory, frame: Frame, usage: MemoryUsage | None, now: float, weight: float = 0.0) -> float:
    record = found.record
    outcome = OUTCOMES[record.outcome] if record.outcome is not None else 1.0
    used = min(MOST_USAGE, 1 + 0.1 * math.log10(max(1, record.activations)))
    fresh = recency(record, now)
    whole = (
        SIMILARITY * found.similarity
        + RELEVANCE * found.relevance
        + PRIORITY * frame.priority(record.kind)
        + RECENCY * fresh
        + OUTCOME * outcome
        + USAGE * used
        + CONFIDENCE * record.confidence
    ) * boost(usage)
    whole *= PROVEN if record.state in PROVEN_STATES else 1.0
    whole *= REPLACED if record.state is MemoryState.SUPERSEDED else 1.0
    return (1 - weight) * whole + weight * fresh


def ranked(
    found: Iterable[FoundMemory],
    plan: MemoryPlan,
    frame: Frame,
    usage: Mapping[str, MemoryUsage],
    turns: Sequence[str],
    now: float,
    min_trust: float = 0.0,
) -> list[RankedMemory]:
    """What is relevant, trusted and not said already, the best first; at most the plan's limit of each kind."""
    said = [_content(turn) for turn in turns]
    left = dict(plan.limits)
    chosen = []
    relevant = _relevant([one for one in found if one.record.trust >= min_trust])
    scored = [(score(one, frame, usage.get(one.record.id), now, plan.recency), one) for one in relevant]
    for value, one in successors_first(scored):
        size = _size(one.record, said)
        if size is not None and left.get(one.record.kind, 0) > 0:
            left[one.record.kind] -= 1
            chosen.append(RankedMemory(one.record, one.similarity, value, size, one.record.micro))
    return chosen


def _relevant(found: Sequence[FoundMemory]) -> list[FoundMemory]:
    """What is superseded is there because the past is asked for: it is not compared with what is true now."""
    least = max([FLOOR, *(OF_BEST * one.similarity for one in found)])
    return [one for one in found if one.similarity >= (FLOOR if one.record.state is MemoryState.SUPERSEDED else least)]


def _size(record: MemoryRecord, said: Sequence[frozenset[str]]) -> str | None:
    """The summary; one line where a turn says a part of it; None where a turn says it, unless it is suspect."""
    if record.verbatim:
        return record.text
    mine = _content(record.summary)
    most = max((len(mine & turn) / len(mine) for turn in said if mine), default=0.0)
    if most > SAID and not record.suspect:
        return None
    return record.micro if most > PARTLY_SAID else record.summary


def filled(
    chosen: Sequence[RankedMemory], budgets: Mapping[str, int], total: int, count: Callable[[str], int]
) -> list[RankedMemory]:
    """Greedily by score: the chosen size where it fits, else one line, else no more of that kind. What a kind leaves is for
    the others, in the order of `budgets`. What is verbatim or pinned is never shortened and has no bound here: it takes its
    room first, and a prompt that cannot hold it is refused."""
    held = [replace(one, tokens=count(one.shown)) for one in chosen if one.record.verbatim or one.record.pinned]
    taken = {one.record.id: one for one in held}
    room, spare = max(0, total - sum(one.tokens for one in held)), 0
    for kind, budget in budgets.items():
        own = min(room, budget + spare)
        left = _filled_kind([one for one in chosen if one.record.kind == kind], own, taken, count)
        spare, room = left, room - (own - left)
    return [taken[one.record.id] for one in chosen if one.record.id in taken]


def _filled_kind(
    chosen: Sequence[RankedMemory], room: int, taken: dict[str, RankedMemory], count: Callable[[str], int]
) -> int:
    """Takes what fits, and gives the room that is left."""
    for one in chosen:
        if one.record.id in taken:
            continue
        left = _take(one, room, taken, count)
        if left == room:
            left = _take(replace(one, shown=one.line), room, taken, count)
        if left == room:
            break
        room = left
    return room


def _take(one: RankedMemory, room: int, taken: dict[str, RankedMemory], count: Callable[[str], int]) -> int:
    tokens = count(one.shown)
    if tokens > room:
        return room
    taken[one.record.id] = replace(one, tokens=tokens)
    return room - tokens


def _content(text: str) -> frozenset[str]:
    """The words of a text that say something, stemmed."""
    return frozenset(stem(word) for word in words(text) if word not in STOP_WORDS)


def referenced(shown: str, answer: str) -> bool:
    """Whether an answer uses a memory: the word sets of it and of the best passage of the answer, at most twice its length,
    have a Jaccard index of 0.15 or more. Words of fewer than three letters do not count."""
    mine = [word for word in words(shown) if len(word) >= LEAST_LETTERS]
    theirs = [word for word in words(answer) if len(word) >= LEAST_LETTERS]
    if not mine:
        return False
    item, length = frozenset(mine), 2 * len(mine)
    starts = range(0, max(1, len(theirs) - length + 1), max(1, len(mine) // 2))
    passages = (frozenset(theirs[start : start + length]) for start in starts)
    return any(len(item & passage) / len(item | passage) >= REFERENCED for passage in passages)


def kinds_of(plan: MemoryPlan) -> dict[str, int]:
    """How many candidates of each kind are searched for; those that the plan skips are not."""
    return {kind: plan.candidates[kind] for kind in plan.kinds}
