"""Which memories are shown: found by words, scored, not said twice, and filled into their budget."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from orchestrator.karma.ranking import RankedMemory, boost, filled, kinds_of, ranked, recency, referenced, score
from orchestrator.karma.records import DecisionOutcome, Kind, MemoryRecord, MemoryState, NewMemory
from orchestrator.karma.search import FLOOR, FoundMemory, MemorySearch
from orchestrator.karma.store import MemoryStore, MemoryUsage
from orchestrator.relevance.intent import frame_of, intent_of, memory_plan

ME, NOW, DAY = 1000, 1_000_000_000.0, 86_400.0
FRAME = frame_of("", "question")
ALL = dict.fromkeys((Kind.DECISION, Kind.FACT, Kind.PROCEDURE, Kind.EPISODE), 20)


def record(text: str = "The cache is Redis.", **more: object) -> MemoryRecord:
    made = MemoryRecord("a" * 10, Kind.FACT, MemoryState.NEW, ME, text, text, text, created=NOW, trust=0.5)
    return replace(made, **more)  # type: ignore[arg-type]


def plan(question: str):
    return memory_plan(intent_of(question), FRAME, len(question.split()))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    opened = MemoryStore(tmp_path / "memories.sqlite3", lambda: NOW)
    yield opened
    opened.close()


def remember(store: MemoryStore, text: str, kind: Kind = Kind.FACT, **more: object) -> MemoryRecord:
    return store.add(replace(NewMemory(ME, kind, text), **more))  # type: ignore[arg-type]


def found(store: MemoryStore, question: str, codex: str | None = None) -> list[str]:
    return [one.record.text for one in MemorySearch(store).find(ME, codex, question, ALL) if one.similarity >= FLOOR]


def test_a_memory_is_found_by_words_of_the_question_in_any_form(store: MemoryStore) -> None:
    remember(store, "Deploys run from the release branch.")
    remember(store, "The parser is hand written.")
    assert found(store, "how are we deploying releases?") == ["Deploys run from the release branch."]


def test_a_question_about_what_no_memory_knows_finds_nothing(store: MemoryStore) -> None:
    remember(store, "The cache of sessions is Redis.")
    assert found(store, "which cache has the zeppelin scheduler?") == []


def test_memories_of_another_codex_of_another_user_and_hidden_ones_are_not_found(store: MemoryStore) -> None:
    remember(store, "The cache is Redis.", codex="other")
    store.add(NewMemory(ME + 1, Kind.FACT, "The cache is memcached."))
    remember(store, "The cache is a file.", state=MemoryState.PROPOSED)
    assert found(store, "what is the cache?", "mine") == []
    assert found(store, "what is the cache?", "other") == ["The cache is Redis."]


def test_a_superseded_fact_is_never_above_its_successor(store: MemoryStore) -> None:
    old = remember(
        store, "Storage engine storage engine is Postgres", subject="storage", attribute="engine", created=NOW - 1
    )
    new = remember(store, "It is SQLite now", subject="storage", attribute="engine")
    question = "which storage engine is Postgres"
    hits = MemorySearch(store).find(ME, None, question, ALL)
    shown = [one.record.id for one in ranked(hits, plan(question), FRAME, {}, (), NOW)]
    assert old.id in shown
    assert new.id not in shown or shown.index(new.id) < shown.index(old.id)


def test_a_questions_words_cannot_be_syntax_of_the_index(store: MemoryStore) -> None:
    remember(store, "The cache is Redis.")
    for question in ('cache" OR text:*', "cache AND (", "NEAR(cache redis)", '"', "*", "text : cache -redis"):
        found(store, question)


def test_the_boost_of_an_unknown_memory_is_1_and_of_one_never_referenced_in_many_showings_a_half() -> None:
    assert boost(None) == 1.0
    assert boost(MemoryUsage(1, 1.0, 0.0)) == 1.0
    assert boost(MemoryUsage(20, 9.0, 0.0)) == 0.5
    assert boost(MemoryUsage(20, 9.0, 9.0)) == 1.5


def test_a_memory_of_30_days_has_half_the_recency() -> None:
    assert recency(record(created=NOW - 30 * DAY), NOW) == pytest.approx(0.5)
    assert recency(record(created=NOW + DAY), NOW) == 1.0


def test_success_ranks_above_failure_and_a_core_fact_above_a_new_one() -> None:
    def value(**more: object) -> float:
        return score(FoundMemory(record(**more), 0.8, 0.8), FRAME, None, NOW)

    assert value(outcome=DecisionOutcome.SUCCESS) > value(outcome=DecisionOutcome.FAILURE)
    assert value(state=MemoryState.CORE) > value() > value(state=MemoryState.SUPERSEDED)


def test_a_memory_that_repeats_a_turn_is_left_out_and_an_unrelated_one_kept() -> None:
    said = "Remember that the cache is Redis, on port 6379."
    hits = [
        FoundMemory(record(), 0.9, 0.9),
        FoundMemory(record("Sessions expire after a week.", id="b" * 10), 0.9, 0.9),
    ]
    assert [one.record.id for one in ranked(hits, plan("what is it"), FRAME, {}, (said,), NOW)] == ["b" * 10]


def test_what_is_below_the_floor_of_relevance_or_of_trust_is_left_out_however_much_room_there_is() -> None:
    hits = [FoundMemory(record(), FLOOR - 0.01, 1.0), FoundMemory(record(id="b" * 10, trust=0.1), 0.9, 0.9)]
    assert ranked(hits, plan("what is it"), FRAME, {}, (), NOW, min_trust=0.3) == []


def test_what_is_less_than_half_as_similar_as_the_best_is_left_out_unless_it_is_of_the_past_that_is_asked_for() -> None:
    hits = [FoundMemory(record(id=one * 10), held, 0.9) for one, held in (("a", 0.9), ("b", 0.46), ("c", 0.44))]
    old = FoundMemory(record(id="d" * 10, state=MemoryState.SUPERSEDED), 0.4, 0.9)
    assert {one.record.id[0] for one in ranked([*hits, old], plan("what was it"), FRAME, {}, (), NOW)} == {
        "a",
        "b",
        "d",
    }
    assert [one.record.id[0] for one in ranked(hits[2:], plan("what is it"), FRAME, {}, (), NOW)] == ["c"]


def test_a_kind_without_room_for_a_summary_gets_one_line_and_then_nothing() -> None:
    long = RankedMemory(record(summary="s" * 100), 0.9, 0.9, "s" * 100, "m" * 10)
    assert [one.shown for one in filled([long], {"fact": 50}, 50, len)] == ["m" * 10]
    assert filled([long], {"fact": 5}, 5, len) == []


def test_what_one_kind_leaves_flows_to_the_next() -> None:
    one = RankedMemory(record(summary="f" * 40), 0.9, 0.9, "f" * 40, "f")
    assert [each.tokens for each in filled([one], {"decision": 40, "fact": 0}, 40, len)] == [40]


def test_a_verbatim_memory_is_never_shortened_and_stays_where_it_is_more_than_the_room() -> None:
    exact = RankedMemory(record("v" * 60, verbatim=True, micro="v", summary="v"), 0.9, 0.9, "v" * 60, "v")
    other = RankedMemory(record(id="b" * 10), 0.9, 0.8, "s" * 10, "s")
    assert [one.shown for one in filled([exact, other], {"fact": 10}, 60, len)] == ["v" * 60]
    assert [one.tokens for one in filled([exact, other], {"fact": 10}, 70, len)] == [60, 10]
    assert [one.shown for one in filled([other, exact], {"fact": 10}, 5, len)] == ["v" * 60]


@given(
    some.lists(
        some.tuples(some.sampled_from(["decision", "fact", "procedure", "episode"]), some.integers(1, 50)), max_size=12
    ),
    some.integers(0, 60),
    some.integers(0, 200),
)
def test_filling_never_takes_more_than_there_is(sizes: list[tuple[str, int]], each: int, total: int) -> None:
    chosen = [
        RankedMemory(record(id=f"{at:010d}", kind=Kind(kind), micro="m"), 0.9, 1 - at / 100, "s" * size, "m")
        for at, (kind, size) in enumerate(sizes)
    ]
    taken = filled(chosen, dict.fromkeys(("decision", "fact", "procedure", "episode"), each), total, len)
    assert sum(one.tokens for one in taken) <= min(total, 4 * each)
    assert [one.record.id for one in taken] == [
        one.record.id for one in chosen if one.record.id in {t.record.id for t in taken}
    ]


def test_an_answer_references_a_memory_by_its_best_passage() -> None:
    answer = "Much was said before. " * 40 + "The cache we use is Redis as always. " + "And more came after. " * 40
    assert referenced("The cache is Redis.", answer)
    assert not referenced("Sessions expire after a week.", answer)
    assert not referenced("", answer)


def test_a_plan_that_skips_a_kind_searches_nothing_of_it() -> None:
    conversation = memory_plan(intent_of("what is new"), frame_of("", "conversation"), 20)
    assert set(kinds_of(conversation)) == {Kind.DECISION, Kind.FACT}
