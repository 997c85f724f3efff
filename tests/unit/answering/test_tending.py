"""What time does to memories: conversations become episodes, episodes age, and what a setting says goes."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from formatters.context import GistView
from orchestrator.answering.sessions import SessionStore, StoredTurn
from orchestrator.answering.tending import Tending
from orchestrator.karma.episodes import (
    ARCHIVED_S,
    QUIET_S,
    SUMMARIZED_S,
    PastConversation,
    aged,
    episode_of,
    source_of,
)
from orchestrator.karma.records import KINDS, Kind, MemoryRecord, MemoryState, NewMemory
from orchestrator.karma.search import MemorySearch
from orchestrator.karma.store import MemoryStore

ME, DAY = 1000, 86_400.0
NOON = time.mktime((2026, 3, 1, 12, 0, 0, 0, 0, -1))
S = MemoryState
FIRST, SECOND = "Where is the configuration read?", "We decided to use TOML for settings."


@dataclass
class House:
    """Sessions and memories under one clock."""

    folder: Path
    now: float = NOON
    sessions: SessionStore = field(init=False)
    memories: MemoryStore = field(init=False)

    def __post_init__(self) -> None:
        self.sessions = SessionStore(self.folder / "sessions.sqlite3", lambda: self.now)
        self.memories = MemoryStore(self.folder / "memories.sqlite3", lambda: self.now)

    def talk(self, *asked: str, name: str = "talk", told: bool = True) -> int:
        """A session of these questions, each answered."""
        session = self.sessions.named(ME, name) or self.sessions.create(ME, "demo", name)
        turns = [
            each
            for text in asked
            for each in (StoredTurn("user", text), StoredTurn("assistant", "Never push to main."))
        ]
        self.sessions.append(session.id, turns)
        if told:
            self.sessions.may_be_told(session.id)
        return session.id

    def tend(self, after: float = QUIET_S + 1, **settings: float) -> list[MemoryRecord]:
        """The memories, so much later."""
        self.now += after
        Tending(self.sessions, self.memories, clock=lambda: self.now, **settings).tend()  # type: ignore[arg-type]
        return self.memories.all_of(ME)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.sessions.close()
    made.memories.close()


def test_a_conversation_that_is_over_is_an_episode_of_the_user_s_words(house: House) -> None:
    number = house.talk("hello", FIRST, SECOND, "thanks", "Which tests cover the settings module?")
    (one,) = house.tend()
    assert one.text == (
        "2026-03-01, conversation talk: Where is the configuration read?\n"
        "Decided: We decided to use TOML for settings.\n"
        "Asked: Which tests cover the settings module?"
    )
    assert (one.kind, one.state, one.codex, one.source) == (Kind.EPISODE, S.ACTIVE, "demo", source_of(number))
    assert one.created == pytest.approx(NOON, abs=1)


def test_an_episode_is_found_by_what_was_asked_in_it(house: House) -> None:
    house.talk(FIRST, "Which tests cover the settings module?")
    (one,) = house.tend()
    found = MemorySearch(house.memories).find(
        ME, "demo", "what did I ask about the settings module?", {Kind.EPISODE: 5}
    )
    assert [each.record.id for each in found] == [one.id]


@pytest.mark.parametrize(
    "asked",
    [
        (),
        ("hey", "hello", "good morning"),
        (FIRST,),
        (FIRST, "thanks"),
        ("ok", "yes", "go on", "and now?"),
        (FIRST, "```\na log\nof four lines\nand no words\n```"),
    ],
)
def test_greetings_chatter_and_a_single_question_make_no_episode(house: House, asked: tuple[str, ...]) -> None:
    house.talk(*asked)
    assert house.tend() == []
    assert house.sessions.untold(house.now, 10) == []


def test_a_conversation_that_goes_on_waits_and_what_came_after_an_episode_is_another(house: House) -> None:
    house.talk(FIRST, SECOND)
    assert house.tend(QUIET_S - 60) == []
    house.talk("What is left to do here?")
    (first,) = house.tend()
    house.talk("Who wrote the parser of dates?", "Why is the cache so slow?")
    second, again = house.tend()
    assert again.id == first.id
    assert "cache" in second.text
    assert "configuration" not in second.text
    assert len(house.tend()) == 2


def test_who_may_not_write_memories_and_a_setting_make_no_episodes(house: House) -> None:
    house.talk(FIRST, SECOND, told=False)
    house.talk(FIRST, SECOND, name="other")
    assert house.tend(episodes=False) == []
    assert len(house.tend()) == 1


def test_a_tending_that_broke_off_doubles_nothing(house: House) -> None:
    number = house.talk(FIRST, SECOND)
    assert len(house.tend()) == 1
    house.sessions.mark_told(number, 0)
    assert len(house.tend(0)) == 1


def test_the_gists_of_a_long_conversation_are_part_of_its_episode(house: House) -> None:
    number = house.talk(FIRST, SECOND)
    house.sessions.append(number, [], [GistView(first=1, last=1, text="The configuration is TOML.")])
    (one,) = house.tend()
    assert "In short: The configuration is TOML." in one.text


def test_an_episode_loses_its_detail_after_a_month_and_is_archived_after_three(house: House) -> None:
    many = [f"What does part number {number} of the long machine do for the {number}th wheel?" for number in range(20)]
    house.talk(*many)
    (made,) = house.tend()
    assert len(made.text) > len(made.summary)
    assert house.tend(SUMMARIZED_S - QUIET_S - 60)[0] == made
    (later,) = house.tend(120)
    assert (later.state, later.text, later.summary) == (S.SUMMARIZED, made.summary, made.summary)
    assert house.tend(ARCHIVED_S - SUMMARIZED_S)[0].state is S.ARCHIVED
    assert MemorySearch(house.memories).find(ME, "demo", "long machine", {Kind.EPISODE: 5})
    assert (
        not MemorySearch(house.memories)
        .find(ME, "demo", "14th wheel number 14", {Kind.EPISODE: 5})[0]
        .record.text.count("14th")
    )


@given(some.floats(0, 200 * DAY), some.floats(0, 200 * DAY), some.booleans())
def test_ageing_twice_is_ageing_once_and_every_step_follows_the_table(
    first: float, second: float, verbatim: bool
) -> None:
    one = MemoryRecord("ab" * 5, Kind.EPISODE, S.ACTIVE, ME, "a\nb", "a", "a", created=0.0, verbatim=verbatim)
    sooner, later = sorted((first, second))
    assert aged(aged(one, sooner), later) == aged(one, later)
    assert not verbatim or aged(one, later).text == "a\nb"
    reached = [S.ACTIVE, S.SUMMARIZED, S.ARCHIVED]
    assert all(KINDS[Kind.EPISODE].may_become(*pair) for pair in pairwise(reached))
    assert aged(one, later).state in reached


def test_nothing_is_deleted_unless_a_setting_says_so_and_then_only_what_no_model_is_shown(house: House) -> None:
    add = house.memories.add
    fact = add(NewMemory(ME, Kind.FACT, "The cache is Redis."))
    add(NewMemory(ME, Kind.FACT, "The cache is a file.", state=S.PROPOSED))
    decision = add(NewMemory(ME, Kind.DECISION, "Use SQLite.", state=S.PROPOSED))
    kept = add(NewMemory(ME, Kind.FACT, "Be careful.", state=S.PROPOSED, pinned=True))
    house.memories.retire(ME, add(NewMemory(ME, Kind.CENSOR, "Never push.")).id)
    assert len(house.tend(1000 * DAY)) == 5
    assert len(house.tend(0, retention_days=1001)) == 5
    assert {one.id for one in house.tend(0, retention_days=900)} == {fact.id, decision.id, kept.id}


@given(some.lists(some.text(max_size=60), max_size=8))
def test_any_conversation_makes_an_episode_of_whole_lines_or_none(asked: list[str]) -> None:
    made = episode_of(PastConversation(ME, 1, "talk", None, NOON, asked))
    if made is not None:
        lines = made.text.split("\n")
        assert lines[0].startswith("2026-03-01, conversation talk: ")
        assert all(line.startswith(("Decided: ", "Noted: ", "Asked: ", "In short: ")) for line in lines[1:])
