"""How a question gets at what its floor does not hold, and how many tokens that may take.

    #  floor          when                                                  strategy          confidence
    0  any            forced by the caller                                  that              1.00
    1  full           task rag_critical                                     HYBRID (verify)   0.85
    2  full           content <= 32,000                                     CAG               0.95
    3  full           task stuff_friendly                                   CAG               0.85
    4  full           otherwise                                             CAG               0.75
    5  other          content > 1,000,000                                   RAG+GRAPH         0.70
    6  skeleton+hot   content <= 128,000, task hybrid or stuff_friendly     HYBRID (search)   0.75
    7  skeleton+hot   otherwise                                             HYBRID (search)   0.65
    8  map, none      otherwise                                             RAG               0.80

Content is the whole codex's tokens, whatever the coverage of the floor is. A question never changes the floor: where a
forced strategy needs another one, the decision says which and what it costs. Without a codex there is nothing to decide
(`NONE`). The task is found by phrases of the question (`phrases`). For thanks and greetings nothing is retrieved, but where
a strategy is forced.
"""

from collections.abc import Set
from dataclasses import dataclass, replace
from enum import StrEnum

from governor.settings import size
from orchestrator.errors import InvalidRequest
from orchestrator.prompt.coverage import (
    DEFAULT_COVERAGE,
    EVIDENCE,
    Coverage,
    CoverageDecision,
    CoverageSizes,
    FloorRoom,
    decide_coverage,
    share,
)
from orchestrator.prompt.phrases import NO_MORE, MorePhrases, Task, classify

SEARCH_TOOL = "search_archive"
# Tokens fetched before the model has asked for anything. The strategy's budget is what may be fetched in all: a prompt that
# begins with all of it costs its prefill with every question, and the model has a tool to look further.
PREFETCH = EVIDENCE
CHARS_PER_TOKEN = 4  # of text that nobody has counted
UNKNOWN_SIZE = 64_000  # tokens of content of which nothing is said


class Retrieval(StrEnum):
    NONE = "none"
    VERIFY = "verify"
    SEARCH = "search"
    GRAPH = "graph"


class Strategy(StrEnum):
    CAG = "CAG"
    HYBRID = "HYBRID"
    RAG = "RAG"
    RAG_GRAPH = "RAG+GRAPH"
    NONE = "NONE"  # the bare model: no codex at all


@dataclass(frozen=True)
class StrategyParameters:
    """Sizes in tokens; shares are of what the window has left. `phrases`: the user's own, that tell a task."""

    small_content: int = 32_000
    medium_content: int = 128_000
    graph_content: int = 1_000_000
    verify_budget: int = 512
    least_budget: int = 4_000
    hybrid_share: float = 0.30
    rag_share: float = 0.70
    phrases: MorePhrases = NO_MORE


@dataclass(frozen=True)
class FloorCoverage:
    """The floor that the question meets: `content` tokens of the codex as a whole, `tokens` of it in the prefix."""

    coverage: Coverage
    content: int
    tokens: int


@dataclass(frozen=True)
class QuestionFigures:
    """The numbers of one question. `used`: tokens of the window that floor, conversation, question and answer take;
    `because`: the phrase that decided the task; `asks`: false where it asks nothing, as thanks and greetings do."""

    task: Task
    window: int
    used: int
    because: str = ""
    tools: Set[str] = frozenset()
    documents: tuple[str, ...] = ()
    asks: bool = True

    @property
    def left(self) -> int:
        return max(0, self.window - self.used)


@dataclass(frozen=True)
class Decision:
    """`needs_coverage` is set when a forced strategy cannot be had on the present floor; `cost` says what it takes.

    `asked` has the figures on the floor that the strategy needs."""

    strategy: Strategy
    coverage: Coverage
    retrieval: Retrieval
    row: int
    confidence: float
    reason: str
    asked: QuestionFigures
    content_tokens: int = 0
    retrieval_budget: int = 0
    steps: tuple[str, ...] = ()
    needs_coverage: Coverage | None = None
    cost: str = ""


@dataclass(frozen=True)
class _Row:
    number: int
    strategy: Strategy
    retrieval: Retrieval
    confidence: float
    because: str
    coverage: Coverage


DEFAULT_STRATEGY = StrategyParameters()
_SERVING = {
    Strategy.CAG: (Coverage.FULL,),
    Strategy.HYBRID: (Coverage.FULL, Coverage.SKELETON),
    Strategy.RAG: (Coverage.NONE, Coverage.MAP),
    Strategy.RAG_GRAPH: tuple(Coverage),
}


def decide(
    floor: FloorCoverage | None,
    asked: QuestionFigures,
    settings: StrategyParameters = DEFAULT_STRATEGY,
    forced: str | None = None,
    sizes: CoverageSizes | None = None,
    room: FloorRoom | None = None,
) -> Decision:
    """The strategy by the table above; `sizes` and `room` price another floor, which only a forced one may need.

    InvalidRequest: an unknown name, or one that needs a codex where there is none. OverBudget: it cannot fit.
    """
    if floor is None:
        return _bare(asked, forced)
    if forced is None:
        row = _row_of(floor, asked.task, settings)
        if not asked.asks and row.retrieval is not Retrieval.NONE:
            row = replace(row, retrieval=Retrieval.NONE, because=f"{row.because}, but nothing is asked")
        return _decision(row, floor, asked, settings)
    return _as_forced(strategy_named(forced), floor, asked, settings, sizes, room)


def consulted(
    query: str,
    content: int,
    window: int,
    used: int,
    tools: Set[str] = frozenset(),
    settings: StrategyParameters = DEFAULT_STRATEGY,
) -> Decision:
    """Whether so many tokens of any content should be put into a prompt whole, for this question, or searched: the table
    above, as if the content were a codex. Whole, where it fits what the window has left, kept short as a floor is."""
    task, because = classify(query, "", settings.phrases)
    left = max(0, window - used)
    most = min(share(window, DEFAULT_COVERAGE.window_share), left - share(window, DEFAULT_COVERAGE.overhead_share))
    whole = content <= most
    floor = FloorCoverage(Coverage.FULL if whole else Coverage.NONE, content, content if whole else 0)
    figures = QuestionFigures(task, window, min(window, used + floor.tokens), because, tools)
    return decide(floor, figures, settings)


def size_of_text(characters: int) -> int:
    """Tokens of a text that nobody has counted; 0: nothing is said of it."""
    return characters // CHARS_PER_TOKEN if characters > 0 else UNKNOWN_SIZE


def advice(decision: Decision, content: int) -> str:
    """What `consulted` says, in words."""
    whole = decision.coverage is Coverage.FULL
    fits = "fits whole: read it" if whole else "does not fit: search it, or read parts of it"
    return f"a text of {content:,} tokens {fits}; task {decision.asked.task}"


def strategy_named(name: str) -> Strategy:
    """The strategy that a person names, in any case. InvalidRequest lists the names."""
    said = name.strip().upper().replace("_", "+").replace("-", "+").replace(" ", "+")
    forceable = [strategy for strategy in Strategy if strategy is not Strategy.NONE]
    for strategy in forceable:
        if said == strategy:
            return strategy
    raise InvalidRequest(f"{name!r} is no strategy", f"one of: {', '.join(forceable)}")


def retrieval_budget(
    strategy: Strategy, retrieval: Retrieval, left: int, settings: StrategyParameters = DEFAULT_STRATEGY
) -> int:
    """Tokens that retrieved text may take of the `left` ones; never more than there are."""
    if retrieval is Retrieval.NONE or left <= 0:
        return 0
    if retrieval is Retrieval.VERIFY:
        return min(settings.verify_budget, left)
    fraction = settings.hybrid_share if strategy is Strategy.HYBRID else settings.rag_share
    return min(left, max(settings.least_budget, share(left, fraction)))


def _row_of(floor: FloorCoverage, task: Task, settings: StrategyParameters) -> _Row:
    content, coverage = floor.content, floor.coverage
    amount = f"{content:,} tokens"
    if coverage is Coverage.FULL:
        whole = f"all {amount} of the codex are in the prefix"
        if task is Task.RAG_CRITICAL:
            return _Row(1, Strategy.HYBRID, Retrieval.VERIFY, 0.85, f"{whole} and the facts are checked", coverage)
        if content <= settings.small_content:
            because = f"{whole}, and a codex of up to {settings.small_content:,} is small"
            return _Row(2, Strategy.CAG, Retrieval.NONE, 0.95, because, coverage)
        confidence = 0.85 if task is Task.STUFF_FRIENDLY else 0.75
        return _Row(3 if task is Task.STUFF_FRIENDLY else 4, Strategy.CAG, Retrieval.NONE, confidence, whole, coverage)
    if content > settings.graph_content:
        because = f"{amount} of codex are more than {settings.graph_content:,}"
        return _Row(5, Strategy.RAG_GRAPH, Retrieval.GRAPH, 0.70, because, coverage)
    if coverage is Coverage.SKELETON:
        near = content <= settings.medium_content and task in (Task.HYBRID, Task.STUFF_FRIENDLY)
        because = f"{floor.tokens:,} of {amount} are in the prefix, the rest is searched"
        return _Row(6 if near else 7, Strategy.HYBRID, Retrieval.SEARCH, 0.75 if near else 0.65, because, coverage)
    because = f"{floor.tokens:,} of {amount} are in the prefix (coverage {coverage}), so the answer is searched for"
    return _Row(8, Strategy.RAG, Retrieval.SEARCH, 0.80, because, coverage)


def _decision(
    row: _Row,
    floor: FloorCoverage,
    asked: QuestionFigures,
    settings: StrategyParameters,
    needs: Coverage | None = None,
    cost: str = "",
) -> Decision:
    budget = retrieval_budget(row.strategy, row.retrieval, asked.left, settings)
    task = f"task {asked.task}" + (f" ({asked.because!r})" if asked.because else "")
    room = f"{asked.left:,} of {asked.window:,} tokens are left" + (
        f" before retrieval, {budget:,} of them for it" if budget else ""
    )
    return Decision(
        strategy=row.strategy,
        coverage=row.coverage,
        retrieval=row.retrieval,
        row=row.number,
        confidence=row.confidence,
        reason=f"{row.strategy}, because {row.because}; {task}; {room}",
        asked=asked,
        content_tokens=floor.content,
        retrieval_budget=budget,
        steps=_steps(row.retrieval, budget, floor.content, asked),
        needs_coverage=needs,
        cost=cost,
    )


def _bare(asked: QuestionFigures, forced: str | None) -> Decision:
    if forced is not None:
        raise InvalidRequest(
            f"strategy {strategy_named(forced)} needs a codex, and none was chosen", "name one with -c NAME"
        )
    return Decision(
        strategy=Strategy.NONE,
        coverage=Coverage.NONE,
        retrieval=Retrieval.NONE,
        row=0,
        confidence=1.0,
        reason=f"no codex was chosen: the bare model answers; {asked.left:,} of {asked.window:,} tokens are left",
        asked=asked,
    )


# ---- a forced strategy ---------------------------------------------------------------------------------------------


def _as_forced(
    strategy: Strategy,
    floor: FloorCoverage,
    asked: QuestionFigures,
    settings: StrategyParameters,
    sizes: CoverageSizes | None,
    room: FloorRoom | None,
) -> Decision:
    coverage = _coverage_for(strategy, floor.coverage, sizes)
    if coverage is floor.coverage:
        row = _Row(0, strategy, _retrieval_for(strategy, coverage), 1.0, "it was asked for", coverage)
        return _decision(row, floor, asked, settings)
    if sizes is None or room is None:
        raise InvalidRequest(
            f"strategy {strategy} needs the coverage {coverages_of(strategy)}, and {floor.coverage} is in the prefix",
            "load the codex again",
        )
    other = decide_coverage(sizes, room, forced=coverage, why=f"is what the strategy {strategy} needs")
    because = f"it was asked for; it needs the coverage {coverages_of(strategy)}, and {floor.coverage} is in the prefix"
    row = _Row(0, strategy, _retrieval_for(strategy, coverage), 1.0, because, coverage)
    instead = replace(asked, used=asked.used - floor.tokens + other.tokens)
    return _decision(row, floor, instead, settings, coverage, _cost(other, room))


def _coverage_for(strategy: Strategy, resident: Coverage, sizes: CoverageSizes | None) -> Coverage:
    """The coverage that a forced strategy needs: the resident one where it serves."""
    serving = _SERVING[strategy]
    if resident in serving:
        return resident
    skeleton = sizes is not None and sizes.skeleton is not None
    return Coverage.SKELETON if strategy is Strategy.HYBRID and skeleton else serving[0]


def coverages_of(strategy: Strategy) -> str:
    """The coverages that it works on, in words."""
    return " or ".join(_SERVING[strategy])


def _retrieval_for(strategy: Strategy, coverage: Coverage) -> Retrieval:
    if strategy is Strategy.RAG_GRAPH:
        return Retrieval.GRAPH
    if strategy is Strategy.HYBRID and coverage is Coverage.FULL:
        return Retrieval.VERIFY
    return Retrieval.NONE if strategy is Strategy.CAG else Retrieval.SEARCH


def _cost(other: CoverageDecision, room: FloorRoom) -> str:
    tokens = room.identity + other.tokens
    kv = f", {size(tokens * room.kv_bytes_per_token)} of KV" if room.kv_bytes_per_token else ""
    return f"{tokens:,} tokens to compute{kv}"


# -- what to do


def _steps(retrieval: Retrieval, budget: int, content: int, asked: QuestionFigures) -> tuple[str, ...]:
    """The steps in the order in which they are taken."""
    if not asked.asks and retrieval is Retrieval.NONE:
        return ("retrieve nothing: nothing is asked",)
    whole = f"answer from the codex in the prefix ({content:,} tokens)"
    prefetch = f"fetch passages of at most {min(budget, PREFETCH):,} tokens from the archive"
    steps = {
        Retrieval.NONE: [f"{whole}; retrieve nothing"],
        Retrieval.VERIFY: [whole, f"look up at most {budget:,} tokens to check it"],
        Retrieval.SEARCH: [prefetch],
        Retrieval.GRAPH: [f"{prefetch} and its symbols' neighbours"],
    }[retrieval]
    if retrieval is not Retrieval.NONE and SEARCH_TOOL in asked.tools:
        steps.append(f"call {SEARCH_TOOL} where the passages do not answer")
    if asked.documents:
        them = "it" if len(asked.documents) == 1 else "them"
        steps.append(f"look into {', '.join(asked.documents)} first: the question names {them}")
    if asked.task is Task.RAG_CRITICAL:
        steps.append("verify retrieved facts with a second source, and cite path:line for each")
    else:
        steps.append("cite path:line for what is quoted")
    return tuple(steps)
