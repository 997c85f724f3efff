"""Which memories a question finds, and in which order."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.examples import few

from codex.words import STOP_WORDS
from orchestrator.karma.forms import TABLE, base_of, forms_of
from orchestrator.karma.periods import Period, nearness, periods_of
from orchestrator.karma.records import Kind, MemoryRecord, MemoryState, NewMemory
from orchestrator.karma.search import FLOOR, MemorySearch
from orchestrator.karma.store import MemoryStore

ME, NOW, DAY = 1000, 1_000_000_000.0, 86_400.0
ALL = dict.fromkeys((Kind.DECISION, Kind.FACT, Kind.PROCEDURE, Kind.EPISODE), 10)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    opened = MemoryStore(tmp_path / "memories.sqlite3", lambda: NOW)
    yield opened
    opened.close()


def remember(store: MemoryStore, text: str, kind: Kind = Kind.FACT, **more: object) -> MemoryRecord:
    return store.add(replace(NewMemory(ME, kind, text), **more))  # type: ignore[arg-type]


def told(store: MemoryStore, talk: str, *turns: str, created: float = NOW) -> None:
    for turn in turns:
        remember(store, turn, Kind.EPISODE, source=f"session:{talk}" if talk else "user", created=created)


def found(store: MemoryStore, question: str, most: int = 10, uid: int = ME, codex: str | None = None) -> list[str]:
    asked = dict.fromkeys(ALL, most)
    return [one.record.text for one in MemorySearch(store).find(uid, codex, question, asked) if one.similarity >= FLOOR]


def test_a_reply_is_found_by_the_question_before_it(store: MemoryStore) -> None:
    told(store, "garden", "Ann: Did you plant the tulips?", "Bob: Yes, last week.", "Ann: Good.")
    told(store, "car", "Ann: Is it sold?", "Bob: Yes, in spring.")
    assert found(store, "when did Bob plant tulips?")[:2] == ["Ann: Did you plant the tulips?", "Bob: Yes, last week."]


def test_what_stands_beside_in_another_session_or_in_none_is_no_neighbour(store: MemoryStore) -> None:
    told(store, "one", "The tulips are planted.")
    told(store, "two", "Yes, that is done.")
    told(store, "", "It rained.", "The tulips grow.", "It was cold.")
    assert set(found(store, "tulips planted")) == {"The tulips are planted.", "The tulips grow."}


def test_a_neighbour_that_nobody_may_be_shown_is_read_by_no_question(store: MemoryStore) -> None:
    told(store, "garden", "Did you plant the tulips?")
    remember(store, "Yes, a secret.", Kind.EPISODE, source="session:garden", state=MemoryState.PROPOSED, created=NOW)
    store.add(NewMemory(ME + 1, Kind.EPISODE, "Yes, another's.", source="session:garden", created=NOW))
    remember(store, "Yes, of a codex.", Kind.EPISODE, source="session:garden", codex="mine", created=NOW)
    assert found(store, "plant tulips") == ["Did you plant the tulips?"]
    assert "Yes, of a codex." in found(store, "plant tulips", codex="mine")


def test_neighbours_follow_their_dates_and_not_the_order_in_which_they_came(store: MemoryStore) -> None:
    said = ("What is the port?", "It is 8080.", "And the host?", "A small one.", "Where is it?", "In the cellar.")
    for at in (3, 0, 5, 1, 4, 2):
        told(store, "talk", said[at], created=NOW + at)
    assert found(store, "which port")[:2] == ["What is the port?", "It is 8080."]
    assert "In the cellar." not in found(store, "which port")


def test_of_a_long_memory_the_best_lines_count_and_not_its_length(store: MemoryStore) -> None:
    long = "\n".join(["Ann: The tulips are red.", *(f"Bob: Line {at} is about the weather." for at in range(40))])
    remember(store, long, Kind.EPISODE)
    remember(store, "Tulips were named once, and other things are said of red cars and roads.", Kind.EPISODE)
    assert found(store, "are the tulips red")[0] == long


def test_a_misspelt_word_and_a_longer_form_decide_between_equal_memories(store: MemoryStore) -> None:
    remember(store, "Ann went to the museum.")
    remember(store, "Ann went to the festival.")
    assert next(one.record.text for one in MemorySearch(store).find(ME, None, "Ann fesetival", ALL)).endswith(
        "festival."
    )


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("what did Ann buy", "Ann bought a kettle."),
        ("which kettle was bought by Ann", "Ann buys a kettle each year."),
        ("which children has Ann", "Ann has a child."),
        ("who overrode the timeout", "The timeout is overridden by ops."),
        ("when was the config frozen", "They freeze the config in May."),
    ],
)
def test_a_word_is_found_by_a_form_that_begins_or_ends_otherwise(store: MemoryStore, question: str, said: str) -> None:
    remember(store, said)
    for number in range(5):
        remember(store, f"Bob number {number} likes tea.")
    assert found(store, question) == [said]
    asked = [one.similarity for one in MemorySearch(store).find(ME, None, question, ALL)]
    assert asked[0] > 0.9


def test_each_form_belongs_to_one_word_and_none_is_a_word_that_is_passed_over() -> None:
    listed = [form for base in map(base_of, _every_form()) for form in forms_of(base)]
    assert Counter(_every_form()).most_common(1)[0][1] == 1
    assert set(listed) == set(_every_form())
    assert STOP_WORDS.isdisjoint(_every_form())
    assert forms_of("bought") == forms_of("buy") == ("buy", "bought")
    assert forms_of("kettle") == ("kettle",)


def _every_form() -> list[str]:
    return [form for line in TABLE.split(";") for form in line.split()]


def test_a_question_that_names_a_month_prefers_what_was_made_then(store: MemoryStore) -> None:
    may, june, year_before = (
        datetime(*day, tzinfo=UTC).timestamp() for day in ((2023, 5, 20), (2023, 6, 20), (2022, 5, 20))
    )
    for moment, text in (
        (june, "Deploy failed: disk."),
        (may, "Deploy failed: mail."),
        (year_before, "Deploy failed: port."),
    ):
        remember(store, text, Kind.EPISODE, created=moment)
    assert found(store, "why did the deploy of May 2023 fail?")[0] == "Deploy failed: mail."


def test_may_and_march_are_months_where_they_are_written_so() -> None:
    assert periods_of("it may fail as they march on") == []
    assert periods_of("in May, on 3 march and March 4th, 2024") == [Period(5), Period(3, 3), Period(3, 4, 2024)]
    assert periods_of("since 2024-02-30") == [Period(2, 30, 2024)]
    assert nearness(periods_of("since 2024-02-30"), NOW) == 0


def test_each_kind_has_as_many_as_are_asked_for(store: MemoryStore) -> None:
    for number in range(8):
        remember(store, f"The cache number {number} is here.")
        remember(store, f"We chose cache {number}.", Kind.DECISION)
    asked = {Kind.FACT: 3, Kind.DECISION: 5}
    kinds = [one.record.kind for one in MemorySearch(store).find(ME, None, "which cache", asked)]
    assert (kinds.count(Kind.FACT), kinds.count(Kind.DECISION)) == (3, 5)


@given(
    some.lists(
        some.sampled_from(["storage", "engine", "is", "Postgres", "SQLite", "now", "old", "a", "file", "1", "2", "3"]),
        min_size=1,
        max_size=5,
    )
)
@few(15)
def test_no_superseded_fact_is_found_above_its_successor_nor_above_the_successor_of_that(words: list[str]) -> None:
    with TemporaryDirectory() as folder:
        store = MemoryStore(Path(folder) / "memories.sqlite3", lambda: NOW)
        for at, text in enumerate(("storage engine is Postgres", "storage engine SQLite 1", "now 2 of it", "a file 3")):
            remember(store, text, subject="storage", attribute="engine", created=NOW + at)
        places = {one.record.id: at for at, one in enumerate(MemorySearch(store).find(ME, None, " ".join(words), ALL))}
        later = {one.id: one.successor for one in store.all_of(ME)}
        store.close()
    assert all(places[one] > places[later[one]] for one in places if later[one] in places)


@pytest.mark.parametrize("order", ["change", "Please fix", "add to", "can you rename", "and update", "write"])
def test_the_verb_of_an_order_says_nothing_of_what_a_memory_is_about(store: MemoryStore, order: str) -> None:
    remember(store, "The port is 8080.")
    remember(store, "The garden has a pond.")
    assert found(store, f"{order} the port") == ["The port is 8080."]
    assert found(store, f"{order} the zeppelin") == []


def test_the_same_verb_in_a_question_is_what_it_asks_about(store: MemoryStore) -> None:
    remember(store, "The port is 8080.")
    assert found(store, "how do I rename the port?") == []


def test_in_the_place_of_superseded_facts_stands_the_last_of_their_successors_once_as_near_as_the_nearest(
    store: MemoryStore,
) -> None:
    for at, text in enumerate(("storage engine is Postgres", "storage engine is MySQL", "a file, of SQLite")):
        remember(store, text, subject="storage", attribute="engine", created=NOW + at)
    search = MemorySearch(store)
    hits = search.find(ME, None, "is Postgres the storage engine", ALL)
    (now,) = search.current(hits)
    assert now.record.text == "a file, of SQLite"
    assert (now.similarity, now.relevance) == (max(one.similarity for one in hits), max(one.relevance for one in hits))


def test_a_superseded_fact_whose_successor_was_set_aside_gives_way_to_nothing(store: MemoryStore) -> None:
    remember(store, "storage engine is Postgres", subject="storage", attribute="engine", created=NOW - 1)
    later = remember(store, "storage engine is SQLite", subject="storage", attribute="engine")
    store.retire(ME, later.id)
    search = MemorySearch(store)
    assert search.current(search.find(ME, None, "storage engine Postgres", ALL)) == []
