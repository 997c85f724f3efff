"""Memories that stand whatever is asked: each at its node, within its room, pinned with the block."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from orchestrator.karma.recall import (
    PinnedKarma,
    Recall,
    Recalled,
    RecallQuestion,
    karma_from_json,
    karma_to_json,
)
from orchestrator.karma.records import Kind, MemoryRecord, NewMemory
from orchestrator.karma.sizes import tokens_of
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.standing import STANDING, in_domain, standing
from orchestrator.karma.store import MemoryStore
from orchestrator.prompt.prefetch import ContextUse, prefetch_for

ME, OTHER = 1000, 1001


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    opened = MemoryStore(tmp_path / "memories.sqlite3")
    yield opened
    opened.close()


def remember(store: MemoryStore, text: str, kind: Kind = Kind.FACT, **more: object) -> MemoryRecord:
    return store.add(replace(NewMemory(ME, kind, text), **more))  # type: ignore[arg-type]


def chosen(
    store: MemoryStore, codex: str | None = "demo", room: int = 4_000, uid: int = ME, without: str = ""
) -> list[tuple[str, str]]:
    found, _ = standing(store, uid, codex, room, lambda node: node != without, tokens_of)
    return [(node, text) for node, _, text in found]


def block(
    store: MemoryStore, pinned: PinnedKarma | None = None, text: str = "hey", turns: Sequence[str] = ()
) -> PinnedKarma:
    return recalled(store, pinned, text, turns).karma


def recalled(
    store: MemoryStore, pinned: PinnedKarma | None = None, text: str = "hey", turns: Sequence[str] = ()
) -> Recalled:
    question = RecallQuestion(ME, "demo", text, turns, 4_000, prefetch_for("", ContextUse(0, 8_000)))
    recall = Recall(store, Staleness(store, lambda codex, path: None))
    return anyio.run(recall.recall, question, pinned)


def furnish(store: MemoryStore) -> None:
    remember(store, "Never push to main.", Kind.CENSOR)
    remember(store, "Mend the clock.", subject="list:tasks")
    remember(store, "Paint the door.", subject="list:tasks")
    remember(store, "Writes Rust at work.", subject="user", attribute="trait:work")
    remember(store, "Wants short answers.", subject="user", attribute="style:length")
    remember(store, "To release: tag, build, push.", Kind.PROCEDURE, codex="demo")
    remember(store, "To make tea: boil water.", Kind.PROCEDURE)
    remember(store, "The cache is Redis.")


def test_constraints_lists_traits_style_and_skills_stand_and_nothing_else(store: MemoryStore) -> None:
    furnish(store)
    assert chosen(store) == [
        ("censors", "Never push to main."),
        ("active_lists", "tasks: Mend the clock."),
        ("active_lists", "tasks: Paint the door."),
        ("user_traits", "Writes Rust at work."),
        ("communication_style", "Wants short answers."),
        ("available_skills", "To release: tag, build, push."),
    ]


def test_another_user_and_another_codex_see_none_of_theirs(store: MemoryStore) -> None:
    furnish(store)
    assert chosen(store, uid=OTHER) == []
    assert "available_skills" not in dict(chosen(store, codex="other"))


@pytest.mark.parametrize("node", [one.name for one in STANDING])
def test_a_node_that_the_gate_excludes_is_not_queried(
    store: MemoryStore, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(store)
    asked: list[str] = []
    read = store.read
    monkeypatch.setattr(store, "read", lambda query, *values: asked.append(query) or read(query, *values))
    found = chosen(store, without=node)
    condition = next(one.condition for one in STANDING if one.name == node)
    assert node not in dict(found)
    assert not [query for query in asked if condition in query]


def test_without_room_only_constraints_stand(store: MemoryStore) -> None:
    furnish(store)
    assert [node for node, _ in chosen(store, room=0)] == ["censors"]


def test_a_long_constraint_stands_in_one_line_beside_the_others(store: MemoryStore) -> None:
    short = [f"Never touch part {number}." for number in range(5)]
    for text in short:
        remember(store, text, Kind.CENSOR)
    long = remember(store, "Never do this: " + "not even once, " * 400, Kind.CENSOR)
    texts = [text for _, text in chosen(store)]
    assert texts[0] in (long.summary, long.micro)
    assert texts[1:] == short[::-1]


def test_constraints_without_room_are_told_and_take_no_others_with_them(store: MemoryStore) -> None:
    for number in range(400):
        remember(store, f"Never touch part {number} of the house.", Kind.CENSOR)
    found = recalled(store)
    stand = found.karma.entries
    assert found.notice.startswith(f"constraints that have no room in the prompt: {400 - len(stand)};")
    assert len(stand) > 100


def test_entries_of_a_list_without_room_are_told_and_the_first_ones_stand(store: MemoryStore) -> None:
    for number in range(100):
        remember(store, f"Paint door {number} of the house.", subject="list:tasks")
    found = recalled(store)
    texts = [one.text for one in found.karma.entries]
    assert texts[:2] == ["tasks: Paint door 0 of the house.", "tasks: Paint door 1 of the house."]
    assert found.notice.startswith(f"entries of lists that have no room in the prompt: {100 - len(texts)}; shorten")


def test_what_is_verbatim_stands_whole_beside_the_others_whatever_room_there_is(store: MemoryStore) -> None:
    long = "Never do this: " + "not even once, " * 400
    for more in ({"kind": Kind.CENSOR}, {"subject": "list:tasks"}):
        remember(store, long, verbatim=True, **more)
        remember(store, "A short one.", **more)
    remember(store, long, verbatim=True, subject="user", attribute="trait:work")
    texts = [text for _, text in chosen(store, room=100)]
    assert texts == ["A short one.", long, f"tasks: {long}", "tasks: A short one.", long]


def test_constraints_of_other_domains_leave_the_room_to_those_that_hold(store: MemoryStore) -> None:
    remember(store, "Never push to main.", Kind.CENSOR)
    for number in range(60):
        remember(store, f"Never touch part {number}.", Kind.CENSOR, domain=f"src/part{number}")
    assert [one.text for one in block(store).entries] == ["Never push to main."]


def test_what_is_known_of_the_user_is_for_the_environment_and_a_list_for_the_block(store: MemoryStore) -> None:
    furnish(store)
    karma = block(store)
    assert [one.heading for one in karma.view.entries] == ["Active Constraints", "Current Focus", "Current Focus"]
    assert [one.node for one in karma.around] == ["user_traits", "communication_style", "available_skills"]


@pytest.mark.parametrize(
    ("domain", "path", "holds"),
    [
        ("src/api", "src/api/users.py", True),
        ("src/api/", "./src/api/users.py", True),
        ("src/api", "src/apis/users.py", False),
        ("users.py", "src/api/users.py", True),
        ("src/api/users.py", "/home/me/demo/src/api/users.py", True),
        ("debug", "src/debug.py", False),
    ],
)
def test_a_domain_is_a_file_or_a_folder_that_holds_it(domain: str, path: str, holds: bool) -> None:
    assert in_domain(domain, ("question",), (path,)) is holds
    assert in_domain(domain, (domain,), ())


def test_a_constraint_with_a_domain_stands_where_the_question_is_in_it_and_stays_while_it_is_spoken_of(
    store: MemoryStore,
) -> None:
    remember(store, "Never change the wire format.", Kind.CENSOR, domain="src/api")
    remember(store, "Never guess at a cause.", Kind.CENSOR, domain="debug")
    first = block(store, text="what is the cache?")
    assert first.entries == ()
    api = block(store, first, "what does src/api/users.py return?")
    assert [one.text for one in api.entries] == ["Never change the wire format."]
    assert api.why.endswith("holds now")
    said = ("what does src/api/users.py return?", "A list.")
    assert [one.text for one in block(store, api, "why does that raise an exception?", said).entries] == [
        "Never guess at a cause.",
        "Never change the wire format.",
    ]


def test_a_constraint_that_comes_in_holds_from_the_next_question_on(store: MemoryStore) -> None:
    remember(store, "The cache is Redis.")
    first = block(store, text="what is the cache?")
    remember(store, "Never push to main.", Kind.CENSOR)
    second = block(store, first, "and why?")
    assert [one.text for one in second.entries] == ["Never push to main.", "The cache is Redis."]


def test_it_is_pinned_over_a_restart_and_a_forgotten_trait_leaves(store: MemoryStore) -> None:
    furnish(store)
    first = block(store)
    trait = remember(store, "Likes tea.", subject="user", attribute="trait:drink")
    assert karma_from_json(karma_to_json(first)) == replace(first, why="")
    assert block(store, first).entries == first.entries
    known = block(store)
    store.forget(ME, trait.id)
    assert trait.id not in {one.id for one in block(store, known).entries}


def test_a_trait_that_stands_is_not_told_again_as_a_fact(store: MemoryStore) -> None:
    furnish(store)
    texts = [one.text for one in block(store, text="who writes Rust at work?").entries]
    assert texts.count("Writes Rust at work.") == 1


def test_a_procedure_that_stands_by_its_name_is_told_with_its_steps_where_a_question_asks_for_it(
    store: MemoryStore,
) -> None:
    steps = (
        "To release: tag the commit, wait for the image, migrate the database, then roll the service. Read the logs."
    )
    remember(store, steps, Kind.PROCEDURE, codex="demo")
    asked = [(one.node, one.text) for one in block(store, text="how do I release?").entries]
    assert [node for node, _ in asked] == ["available_skills", ""]
    assert asked[0][1].endswith("…")
    assert asked[1][1] == steps


def test_a_procedure_that_stands_whole_is_not_told_again(store: MemoryStore) -> None:
    remember(store, "To release: tag, build, push.", Kind.PROCEDURE, codex="demo")
    assert [one.node for one in block(store, text="how do I release?").entries] == ["available_skills"]


def test_what_stands_is_no_sign_of_use(store: MemoryStore) -> None:
    furnish(store)
    found = recalled(store)
    anyio.run(Recall(store, Staleness(store, lambda codex, path: None)).used, ME, found, "no word of it")
    assert store.usage(ME, [one.id for one in found.karma.entries]) == {}
