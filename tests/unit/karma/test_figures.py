"""The figures of memories: each with its target, none made up where nothing was measured, no user's seen by another."""

from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.small_service import own_folder

from orchestrator.karma.figures import (
    OUTCOME_VALUES,
    Growth,
    JudgedDecision,
    Measured,
    TurnCounts,
    calibration,
    figures_of,
)
from orchestrator.karma.memories import Memories
from orchestrator.karma.recall import PinnedKarma, Recall, Recalled, RecallQuestion
from orchestrator.karma.records import DAY_S, DecisionOutcome, Kind, NewMemory
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore
from orchestrator.prompt.prefetch import ContextUse, prefetch_for

ME, OTHER = 1000, 1001
NOW = 1_700_000_000.0
EMPTY = prefetch_for("", ContextUse(0, 8_000))


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[MemoryStore]:
    opened = MemoryStore(tmp_path / "memories.sqlite3", clock)
    yield opened
    opened.close()


def figures(store: MemoryStore, clock: Clock, uid: int = ME) -> dict[str, float | None]:
    memories = Memories(store, Staleness(store, lambda codex, path: None), clock)
    return {one.name: one.value for one in memories.figures(uid).figures}


def named(counts: TurnCounts = TurnCounts(), decisions: tuple[JudgedDecision, ...] = ()) -> dict[str, Measured]:  # noqa: B008
    return {one.name: one for one in figures_of(counts, 0, 0, Growth(0, 0.0), decisions)}


def remember(store: MemoryStore, text: str, kind: Kind = Kind.FACT, **more: object) -> None:
    store.add(replace(NewMemory(ME, kind, text), **more))  # type: ignore[arg-type]


def turn(store: MemoryStore, question: str, answer: str, pinned: PinnedKarma | None = None) -> Recalled:
    """One answered turn."""
    recall = Recall(store, Staleness(store, lambda codex, path: None))
    found = anyio.run(recall.recall, RecallQuestion(ME, None, question, (), 4_000, EMPTY), pinned)
    anyio.run(recall.used, ME, found, answer)
    return found


def test_before_anything_was_measured_no_figure_has_a_value(store: MemoryStore, clock: Clock) -> None:
    assert set(figures(store, clock).values()) == {None}


def test_a_turn_counts_what_its_block_loaded_and_what_the_answer_used(store: MemoryStore, clock: Clock) -> None:
    remember(store, "The cache is Redis.")
    remember(store, "The cache has its limit of many gigabytes written in the file of settings.")
    remember(store, "Never push to main.", Kind.CENSOR)
    found = turn(store, "what is the cache?", "Redis, of course.")
    assert len(found.karma.entries) == 3
    counted = store.turn_counts(ME)
    assert (counted.turns, counted.cold, counted.refreshes, counted.built, counted.loaded) == (1, 1, 0, 1, 2)
    assert (counted.shown, counted.referenced) == (2, 1)  # the constraint was not recalled
    told = figures(store, clock)
    assert told["precision"] == 0.5
    assert told["refreshes"] == 0.0
    assert 0.35 <= (told["relevance"] or 0) <= 1
    assert 0 < (told["budget_use"] or 0) < 0.1
    assert 0 < (told["cold_build_ms"] or 0) < 60_000


def test_a_block_that_stays_is_shown_again_and_not_built_again(store: MemoryStore) -> None:
    remember(store, "The cache is Redis.")
    first = turn(store, "what is the cache?", "Redis")
    turn(store, "and its limit?", "I do not know.", first.karma)
    counted = store.turn_counts(ME)
    assert (counted.turns, counted.built, counted.cold, counted.refreshes) == (2, 1, 1, 0)
    assert (counted.loaded, counted.shown) == (1, 2)


def test_a_refresh_is_counted_and_is_no_cold_build(store: MemoryStore) -> None:
    remember(store, "The cache is Redis.")
    remember(store, "The parser of conf.toml is hand written.")
    first = turn(store, "what is the cache?", "Redis")
    turn(store, "who wrote the parser of conf.toml?", "a hand", first.karma)
    counted = store.turn_counts(ME)
    assert (counted.turns, counted.built, counted.cold, counted.refreshes) == (2, 2, 1, 1)


def test_the_first_block_with_memories_is_a_cold_build_also_after_a_greeting(store: MemoryStore) -> None:
    remember(store, "The cache is Redis.")
    greeted = turn(store, "hello there", "Hello!")
    turn(store, "what is the cache?", "Redis", greeted.karma)
    counted = store.turn_counts(ME)
    assert (counted.turns, counted.built, counted.cold, counted.refreshes) == (1, 1, 1, 1)


def test_a_conversation_without_memories_counts_nothing(store: MemoryStore) -> None:
    turn(store, "what is the cache?", "Redis")
    assert store.turn_counts(ME) == TurnCounts()


def test_one_user_never_counts_for_another(store: MemoryStore, clock: Clock) -> None:
    remember(store, "The cache is Redis.")
    turn(store, "what is the cache?", "Redis")
    assert figures(store, clock)["precision"] is not None
    assert set(figures(store, clock, OTHER).values()) == {None}


def test_figures_outlast_the_daemon(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "kept.sqlite3"
    first = MemoryStore(path, clock)
    first.count_shown(ME, {}, counts=TurnCounts(turns=4, refreshes=1))
    first.close()
    again = MemoryStore(path, clock)
    assert figures(again, clock)["refreshes"] == 0.25
    again.close()


def test_what_is_older_than_30_days_counts_no_more_and_is_dropped(store: MemoryStore, clock: Clock) -> None:
    store.count_shown(ME, {}, counts=TurnCounts(turns=1, refreshes=1))
    clock.now += 31 * DAY_S
    assert store.turn_counts(ME) == TurnCounts()
    store.count_shown(ME, {}, counts=TurnCounts(turns=2))
    assert store.read("SELECT count(*) FROM days") == [(1,)]


def test_growth_counts_from_the_oldest_memory_and_an_imported_past_is_none(store: MemoryStore, clock: Clock) -> None:
    for day in range(10):
        remember(store, f"The port {day} is open.", created=NOW - day * DAY_S)
    assert figures(store, clock)["growth"] == pytest.approx(10 / 9, abs=0.001)
    remember(store, "The port 99 is open.", created=NOW - 400 * DAY_S)
    assert figures(store, clock)["growth"] == pytest.approx(10 / 30, abs=0.001)


def test_facts_that_were_superseded_or_set_aside_are_no_facts_that_could_be_confirmed(
    store: MemoryStore, clock: Clock
) -> None:
    for _ in range(3):
        remember(store, "The cache is Redis.")
    remember(store, "Storage is Postgres.", subject="storage", attribute="engine", created=NOW - 60)
    remember(store, "Storage is SQLite.", subject="storage", attribute="engine")
    assert figures(store, clock)["confirmed"] == 0.5


def test_a_decision_that_came_right_scores_by_how_sure_it_was_and_a_pending_one_not_at_all(
    store: MemoryStore, clock: Clock
) -> None:
    remember(store, "We chose SQLite.", Kind.DECISION, confidence=0.9, outcome=DecisionOutcome.SUCCESS)
    remember(store, "We chose Redis.", Kind.DECISION, confidence=0.7, outcome=DecisionOutcome.FAILURE)
    remember(store, "We chose Kafka.", Kind.DECISION, confidence=0.1, outcome=DecisionOutcome.PENDING)
    told = figures(store, clock)
    assert told["brier"] == pytest.approx((0.1**2 + 0.7**2) / 2)
    assert told["overconfidence"] == pytest.approx(0.8 - 0.5)


@pytest.mark.parametrize(
    ("name", "counts", "reached"),
    [
        ("relevance", TurnCounts(loaded=10, similarity=7.0), True),
        ("relevance", TurnCounts(loaded=10, similarity=6.0), False),
        ("budget_use", TurnCounts(built=5, tokens=90, room=100), True),
        ("budget_use", TurnCounts(built=5, tokens=91, room=100), False),
        ("refreshes", TurnCounts(turns=10, refreshes=2), True),
        ("refreshes", TurnCounts(turns=10, refreshes=3), False),
        ("precision", TurnCounts(shown=10, referenced=5), True),
        ("cold_build_ms", TurnCounts(cold=5, cold_ms=2_400.0), True),
        ("cold_build_ms", TurnCounts(cold=5, cold_ms=2_500.0), False),
        ("cold_build_ms", TurnCounts(cold=4, cold_ms=8_000.0), None),
        ("cold_build_ms", TurnCounts(), None),
    ],
)
def test_a_figure_says_whether_its_target_is_reached_once_there_are_five_measurements(
    name: str, counts: TurnCounts, reached: bool | None
) -> None:
    assert named(counts)[name].reached is reached


JUDGED = st.builds(JudgedDecision, st.floats(0, 1), st.sampled_from(list(OUTCOME_VALUES)))


@given(st.lists(JUDGED, min_size=1, max_size=20))
def test_a_brier_score_is_the_bias_squared_or_more_and_nobody_scores_better_than_who_knew(
    judged: list[JudgedDecision],
) -> None:
    found = named(decisions=tuple(judged))
    brier, bias = found["brier"].value, found["overconfidence"].value
    assert brier is not None and bias is not None
    assert bias**2 - 1e-9 <= brier <= 1
    knew = tuple(JudgedDecision(OUTCOME_VALUES[one.outcome], one.outcome) for one in judged)
    assert named(decisions=knew)["brier"].value == 0


COUNTS = st.builds(TurnCounts, *[st.integers(0, 50)] * 4, st.just(0.5), *[st.integers(0, 50)] * 5, st.just(1.5))


@given(st.lists(COUNTS, min_size=1, max_size=5))
def test_the_sum_of_turns_is_what_was_counted_turn_by_turn(turns: list[TurnCounts]) -> None:
    """In whatever days of the last thirty they were."""
    clock = Clock()
    store = MemoryStore(own_folder() / "memories.sqlite3", clock)
    for one in turns:
        store.count_shown(ME, {}, counts=one)
        clock.now += DAY_S
    clock.now -= DAY_S
    assert astuple(store.turn_counts(ME)) == pytest.approx(
        [sum(column) for column in zip(*map(astuple, turns), strict=True)]
    )
    store.close()


@pytest.mark.parametrize(
    ("confidences", "outcomes", "said"),
    [
        ([0.9] * 5, "sffff", "Of 5 past decisions 20% went well, at a confidence of 90%: be less sure."),
        ([0.2] * 5, "sssss", "Of 5 past decisions 100% went well, at a confidence of 20%: be more sure."),
        ([0.8] * 5, "ssssf", ""),
        ([0.9] * 4, "ffff", ""),
        ([0.9] * 8, "ffffpppp", ""),
    ],
)
def test_a_decision_maker_is_told_where_confidence_and_outcomes_are_apart(
    confidences: list[float], outcomes: str, said: str
) -> None:
    names = {"s": DecisionOutcome.SUCCESS, "f": DecisionOutcome.FAILURE, "p": DecisionOutcome.PENDING}
    judged = [JudgedDecision(sure, names[came]) for sure, came in zip(confidences, outcomes, strict=True)]
    assert calibration(judged) == said
