"""Memories on disk: what is added, confirmed, superseded, kept apart by user, and refused."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import Conflict, InvalidRequest, LoreError, NotFound
from orchestrator.karma.changes import MERGED_WITHIN_S, MOST_TEXT
from orchestrator.karma.records import CodeCitation, DecisionOutcome, Kind, MemoryState, NewMemory
from orchestrator.karma.store import MemoryStore

ME, OTHER = 1000, 1001
DAY = 86_400.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

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


def fact(text: str = "The cache is Redis.", **more: object) -> NewMemory:
    return replace(NewMemory(ME, Kind.FACT, text), **more)  # type: ignore[arg-type]


def storage(text: str, **more: object) -> NewMemory:
    return fact(text, subject="storage", attribute="engine", **more)


def test_a_memory_is_read_back_as_it_was_added(store: MemoryStore) -> None:
    cited = (CodeCitation("src/a.py", 1, 9, "ab" * 32, "1a2b3c4"), CodeCitation("src/b.py"))
    new = NewMemory(ME, Kind.DECISION, "Use SQLite.", codex="lore", evidence=cited, outcome=DecisionOutcome.PENDING)
    added = store.add(new)
    assert store.get(ME, added.id) == added
    assert (added.state, added.evidence, added.micro) == (MemoryState.RECORDED, cited, "Use SQLite. [pending]")


def test_a_user_without_memories_is_known_until_something_is_written(store: MemoryStore) -> None:
    assert not store.seen_without(ME)
    assert (store.holds_any(ME), store.holds_any(OTHER)) == (False, False)
    assert store.seen_without(ME)
    added = store.add(fact())
    assert not store.seen_without(OTHER)
    assert (store.holds_any(ME), store.seen_without(ME)) == (True, False)
    store.forget(ME, added.id)
    assert (store.holds_any(ME), store.seen_without(ME)) == (False, True)


def test_a_fact_stated_three_times_more_is_core(store: MemoryStore) -> None:
    states = [
        store.add(fact(text)).state
        for text in ("Tabs, not blanks", "tabs, not blanks.", "Tabs,  not blanks", "TABS, not blanks!")
    ]
    assert states == [MemoryState.NEW, MemoryState.CONFIRMED, MemoryState.CONFIRMED, MemoryState.CORE]
    assert len(store.all_of(ME)) == 1


def test_another_value_of_the_same_attribute_supersedes_and_the_old_one_points_to_it(
    store: MemoryStore, clock: Clock
) -> None:
    old = store.add(storage("Storage is Postgres."))
    clock.now += 1
    new = store.add(storage("Storage is SQLite."))
    assert store.get(ME, old.id).state is MemoryState.SUPERSEDED
    assert store.get(ME, old.id).successor == new.id
    assert store.get(ME, new.id).state is MemoryState.NEW


def test_an_older_value_that_is_imported_later_is_the_superseded_one(store: MemoryStore, clock: Clock) -> None:
    new = store.add(storage("Storage is SQLite."))
    old = store.add(storage("Storage is Postgres.", created=clock.now - DAY))
    assert (old.state, old.successor) == (MemoryState.SUPERSEDED, new.id)
    assert store.get(ME, new.id).state is MemoryState.NEW


def test_a_superseded_value_that_is_imported_again_is_the_one_that_was(store: MemoryStore, clock: Clock) -> None:
    old = store.add(storage("Storage is Postgres.", created=clock.now - DAY))
    store.add(storage("Storage is SQLite."))
    assert store.add(storage("Storage is Postgres.", created=clock.now - DAY)).id == old.id
    assert len(store.all_of(ME)) == 2


def test_entries_of_a_list_stand_beside_each_other(store: MemoryStore) -> None:
    for text in ("write the docs", "run the benchmark"):
        store.add(fact(text, subject="list:tasks", attribute="entry"))
    assert {one.state for one in store.all_of(ME)} == {MemoryState.NEW}


def test_a_proposal_changes_nothing_that_stands_and_is_confirmed_by_being_stated(store: MemoryStore) -> None:
    stands = store.add(storage("Storage is Postgres."))
    proposed = store.add(storage("Storage is SQLite.", state=MemoryState.PROPOSED))
    assert store.get(ME, stands.id).state is MemoryState.NEW
    assert [one.id for one in store.review(ME)] == [proposed.id]
    assert store.add(storage("Storage is SQLite.")).state is MemoryState.NEW
    assert store.review(ME) == []


def test_the_same_episode_within_two_days_is_one(store: MemoryStore, clock: Clock) -> None:
    episode = NewMemory(ME, Kind.EPISODE, "We profiled the loader.")
    first = store.add(episode)
    clock.now += MERGED_WITHIN_S
    assert store.add(episode).id == first.id
    clock.now += 1
    assert store.add(episode).id != first.id


def test_nobody_sees_or_touches_another_users_memories(store: MemoryStore) -> None:
    mine = store.add(fact())
    assert store.all_of(OTHER) == []
    for touch in (store.get, store.forget, store.confirm, store.retire):
        with pytest.raises(NotFound):
            touch(OTHER, mine.id)
    assert store.add(replace(fact(), uid=OTHER)).id != mine.id


def test_what_is_forgotten_is_gone_from_the_index_too(store: MemoryStore) -> None:
    added = store.add(fact("A zebra lives in the scheduler."))
    found = "SELECT count(*) FROM words WHERE words MATCH 'zebras'"
    assert store.read(found) == [(1,)]
    store.forget(ME, added.id)
    assert store.read(found) == [(0,)]
    with pytest.raises(NotFound, match=added.id):
        store.get(ME, added.id)


def test_decisions_are_kept_and_facts_can_be_set_aside(store: MemoryStore) -> None:
    decision, claim = store.add(NewMemory(ME, Kind.DECISION, "Use SQLite.")), store.add(fact())
    with pytest.raises(Conflict, match="kept"):
        store.retire(ME, decision.id)
    assert store.retire(ME, claim.id).state is MemoryState.INACTIVE


def test_an_outcome_reviews_a_decision_and_stands_in_its_line(store: MemoryStore) -> None:
    decision = store.add(NewMemory(ME, Kind.DECISION, "Use SQLite.", confidence=0.8))
    reviewed = store.set_outcome(ME, decision.id, DecisionOutcome.SUCCESS)
    assert (reviewed.state, reviewed.micro) == (MemoryState.REVIEWED, "Use SQLite. [success, 80% sure]")
    with pytest.raises(Conflict, match="no outcome"):
        store.set_outcome(ME, store.add(fact()).id, DecisionOutcome.SUCCESS)


def test_trust_moves_by_ratings_and_stays_between_0_and_1(store: MemoryStore) -> None:
    added = store.add(fact())
    assert store.rate(ME, added.id, up=True).trust == 0.55
    for _ in range(9):
        store.rate(ME, added.id, up=False)
    assert store.get(ME, added.id).trust == 0.0


def test_a_showing_counts_half_after_seven_days(store: MemoryStore, clock: Clock) -> None:
    added = store.add(fact())
    store.count_shown(ME, {added.id: True})
    clock.now += 7 * DAY
    store.count_shown(ME, {added.id: False})
    usage = store.usage(ME, [added.id])[added.id]
    assert (usage.showings, usage.shown, usage.referenced) == (2, 1.5, 0.5)
    assert store.get(ME, added.id).activations == 1


def test_a_memory_is_suspect_once_its_code_changed_until_a_person_confirms_it(store: MemoryStore) -> None:
    added = store.add(fact(codex="lore", evidence=(CodeCitation("src/a.py", 3, 5),)))
    assert store.mark_suspect("lore", {added.id: "src/a.py changed"}) == 1
    assert store.mark_suspect("lore", {added.id: "again"}) == 0
    assert store.review(ME)[0].suspect == "src/a.py changed"
    assert store.confirm(ME, added.id).suspect == ""


def test_a_consecrated_memory_has_one_size(store: MemoryStore) -> None:
    long = "Never push to main without a review. " * 30
    added = store.consecrate(ME, store.add(fact(long)).id)
    assert (added.verbatim, added.pinned, added.summary) == (True, True, long.strip())


@pytest.mark.parametrize("text", ["", " \n", "x" * (MOST_TEXT + 1)])
def test_what_is_no_memory_is_refused_with_what_to_do(store: MemoryStore, text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        store.add(fact(text))
    assert refused.value.hint


def test_an_ambiguous_beginning_of_an_id_is_refused(store: MemoryStore) -> None:
    ids = [store.add(fact(f"fact {number}")).id for number in range(40)]
    first = next(one[0] for one in ids if sum(other[0] == one[0] for other in ids) > 1)
    with pytest.raises(InvalidRequest, match="several"):
        store.get(ME, first)


def test_what_a_memory_says_can_not_be_changed(store: MemoryStore) -> None:
    added = store.add(fact())
    with pytest.raises(sqlite3.IntegrityError, match="never changed"):
        store._connection.execute("UPDATE memories SET text = 'other' WHERE id = ?", (added.id,))


def test_everything_is_there_after_it_was_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "memories.sqlite3"
    before = MemoryStore(path)
    added = before.add(fact())
    before.close()
    after = MemoryStore(path)
    assert after.all_of(ME) == [added]
    after.close()


def test_a_damaged_or_foreign_file_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "memories.sqlite3"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(LoreError, match="memories"):
        MemoryStore(path)
    assert path.read_bytes().startswith(b"no database")


def test_a_file_of_a_newer_version_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "memories.sqlite3"
    MemoryStore(path).close()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(LoreError, match="newer"):
        MemoryStore(path)
    assert path.read_bytes() == before


def test_while_another_program_holds_the_file_a_write_is_refused_and_reading_goes_on(
    store: MemoryStore, tmp_path: Path
) -> None:
    added = store.add(fact())
    store.read("PRAGMA busy_timeout = 20")
    with closing(sqlite3.connect(tmp_path / "memories.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LoreError, match=r"memories\.sqlite3 cannot be used: database is locked") as refused:
            store.add(fact("The port is 1."))
        assert refused.value.hint == "another program writes to it: end that one, and try again"
        assert store.all_of(ME) == [added]
        other.execute("ROLLBACK")
    assert store.add(fact("The port is 1.")).text == "The port is 1."


def test_a_proposal_that_a_person_confirms_replaces_the_value_that_stood(store: MemoryStore) -> None:
    old = store.add(storage("Storage is Postgres."))
    proposed = store.add(storage("Storage is SQLite.", state=MemoryState.PROPOSED))
    store.confirm(ME, proposed.id)
    assert store.get(ME, proposed.id).state is MemoryState.NEW
    assert (store.get(ME, old.id).state, store.get(ME, old.id).successor) == (MemoryState.SUPERSEDED, proposed.id)
