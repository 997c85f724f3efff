"""What is loaded of a labelled set of memories: floors below what it reaches today, and zero where a law says so."""

from pathlib import Path

import pytest
from cases_remembered import Labelled, Loaded, Parts, Remembered, asked, mean, opened, read, rows, successors

from orchestrator.karma.records import Kind, MemoryState


@pytest.fixture(scope="module")
def given() -> Remembered:
    return read()


@pytest.fixture(scope="module")
def figures(given: Remembered) -> dict[str, float]:
    return {row.figure: row.ours or 0.0 for row in rows("as shipped", asked(given, Parts()), given)}


def test_the_set_is_as_large_as_it_says_and_each_label_names_a_memory_of_its_codex(given: Remembered) -> None:
    assert len(given.memories) >= 200
    assert {one.kind for one in given.memories.values()} == set(Kind)
    assert sum(not one.wanted and not one.turns for one in given.questions) >= 15
    for one in given.questions:
        assert {given.memories[name].codex for name in one.wanted} <= {one.codex}


def test_the_older_of_two_values_of_an_attribute_is_superseded_in_the_store(given: Remembered, tmp_path: Path) -> None:
    store = opened(tmp_path)
    ids = {name: store.add(new).id for name, new in given.memories.items()}
    pairs = {(one.id, one.successor) for one in store.all_of(1000) if one.state is MemoryState.SUPERSEDED}
    store.close()
    assert pairs == {(ids[old], ids[new]) for old, new in successors(given)}
    assert len(pairs) >= 10


def test_a_superseded_fact_is_loaded_where_it_is_asked_for_alone_and_never_above_its_successor(
    figures: dict[str, float],
) -> None:
    assert figures["superseded above its successor"] == figures["superseded loaded unasked"] == 0


def test_where_nothing_answers_mostly_nothing_is_loaded(figures: dict[str, float]) -> None:
    assert figures["nothing loaded where nothing answers"] >= 0.6


def test_most_of_what_answers_is_loaded_and_not_much_else(figures: dict[str, float]) -> None:
    assert figures["recall"] >= 0.8
    assert figures["precision where something answers"] >= 0.4


def test_the_floor_and_what_the_conversation_says_keep_out_what_is_not_wanted(given: Remembered) -> None:
    of_one = {name: new for name, new in given.memories.items() if new.codex == "harbor"}
    some = Remembered(of_one, [one for one in given.questions if one.codex == "harbor"])
    kept, all_in = (sum(len(one.names) for one in asked(some, Parts(floor=floor))) for floor in (True, False))
    said = [one for one in asked(some, Parts(dedup=False)) if one.question.turns]
    assert kept < all_in / 2
    assert mean(not one.names for one in said) == 0.0


def test_precision_and_recall_count_what_was_loaded_and_what_was_wanted() -> None:
    first, second = Labelled("c", "?", frozenset({"a", "b"})), Labelled("c", "?", frozenset())
    found = [Loaded(first, ("x", "a"), 1.5), Loaded(second, ("y", "z"), 0.9)]
    got = {row.figure: row.ours for row in rows("case", found, Remembered({}, ()))}
    assert (got["precision of what is loaded"], got["recall"], got["best first"]) == (1 / 4, 1 / 2, 0.0)
    assert got["mean similarity of what is loaded"] == 0.6
    assert (got["precision where something answers"], got["nothing loaded where nothing answers"]) == (1 / 2, 0.0)
