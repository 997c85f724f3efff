"""Which texts trigger a censor, and what is kept of that."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from orchestrator.errors import LoreError
from orchestrator.karma.censors import MOST_PASSAGE, trigger_of, triggered_by
from orchestrator.karma.memories import Memories
from orchestrator.karma.records import Kind, MemoryRecord, MemoryState, WatchedText
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore
from orchestrator.wire.memories import MemoryBody

ME = 1000


@pytest.fixture
def memories(tmp_path: Path) -> Iterator[Memories]:
    store = MemoryStore(tmp_path / "memories.sqlite3")
    yield Memories(store, Staleness(store, lambda codex, path: "", lambda codex: ()))
    store.close()


def censor(trigger: str, watches: WatchedText = WatchedText.ANSWER) -> MemoryRecord:
    text = f"Never {trigger}."
    return MemoryRecord(
        "ab" * 5, Kind.CENSOR, MemoryState.CREATED, ME, text, text, text, trigger=trigger, watches=watches
    )


def passage(trigger: str, answer: str) -> str | None:
    found = triggered_by([censor(trigger)], "", answer)
    return found[0].passage if found else None


@pytest.mark.parametrize(
    ("trigger", "answer", "told"),
    [
        ("push to main", "First commit. Then push to main.", "Then push to main."),
        ("push to main", "```\ngit add .\ngit push origin main\n```", "git push origin main"),
        ("push to main", "Pushing to `main` is next.", "Pushing to `main` is next."),
        ("log passwords", "  logger.log(user.password)", "logger.log(user.password)"),
        ("push to main", "You should never push to main.", None),
        ("push to main", "Don't push to main.", None),
        ("push to main", "Open a pull request instead of pushing to main.", None),
        ("push to main", "Push your branch. The main point is another.", None),
        ("push to main", "", None),
        ("", "push to main", None),
    ],
)
def test_a_sentence_with_all_words_of_the_trigger_that_does_not_forbid_it(
    trigger: str, answer: str, told: str | None
) -> None:
    assert passage(trigger, answer) == told


def test_a_censor_reads_only_what_it_watches() -> None:
    asks = censor("delete backups", WatchedText.QUESTION)
    assert triggered_by([asks], "", "Delete the backups.") == []
    assert [one.passage for one in triggered_by([asks], "How do I delete backups?", "")] == ["How do I delete backups?"]


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("Never push to main.", "push to main"),
        ("You must not edit generated files.", "edit generated files"),
        ("Be brief.", ""),
    ],
)
def test_what_a_censor_forbids_is_read_off_its_words(text: str, trigger: str) -> None:
    assert trigger_of(text) == trigger


@given(some.text(max_size=300), some.text(max_size=300))
def test_any_text_triggers_a_censor_once_at_most_and_with_a_passage_of_its_own(trigger: str, answer: str) -> None:
    found = triggered_by([censor(trigger)], answer, answer)
    assert len(found) <= 1
    for one in found:
        assert 0 < len(one.passage) <= MOST_PASSAGE
        assert one.passage in " ".join(answer.split())


def add(memories: Memories, text: str, codex: str | None = None, **more: str) -> str:
    return memories.add(ME, "owner", codex, MemoryBody(kind="censor", text=text, **more)).id  # type: ignore[arg-type]


def test_a_triggered_censor_is_told_with_its_passage_and_counted(memories: Memories) -> None:
    made = add(memories, "Never push to main.")
    (mark,) = memories.watch(ME, None, "how do I release?", "Push to main.")
    assert mark.model_dump() == {
        "id": made,
        "severity": "warn",
        "watches": "answer",
        "text": "Never push to main.",
        "passage": "Push to main.",
    }
    one = memories.get(ME, made)
    assert (one.state, one.activations) == ("active", 1)


def test_a_private_question_is_warned_of_and_not_counted(memories: Memories) -> None:
    made = add(memories, "Never push to main.")
    assert len(memories.watch(ME, None, "", "Push to main.", counted=False)) == 1
    assert memories.get(ME, made).activations == 0


def test_a_censor_of_another_user_another_codex_or_a_retired_one_watches_nothing(memories: Memories) -> None:
    add(memories, "Never push to main.", "demo")
    assert memories.watch(ME, "other", "", "Push to main.") == ()
    assert memories.watch(ME + 1, "demo", "", "Push to main.") == ()
    assert len(memories.watch(ME, "demo", "", "Push to main.")) == 1
    memories.store.retire(ME, memories.store.all_of(ME)[0].id)
    assert memories.watch(ME, "demo", "", "Push to main.") == ()


def test_a_censor_of_a_domain_watches_where_it_was_shown(memories: Memories) -> None:
    made = add(memories, "Never push to main.", domain="debug")
    assert memories.watch(ME, None, "", "Push to main.") == ()
    assert len(memories.watch(ME, None, "", "Push to main.", {made})) == 1


def test_the_blocks_that_hold_a_censor_stay_when_it_is_triggered(memories: Memories) -> None:
    made = add(memories, "Never push to main.")
    before = memories.get(ME, made).updated
    memories.watch(ME, None, "", "Push to main.")
    assert memories.get(ME, made).updated == before


def test_a_person_names_trigger_and_text_and_only_an_import_brings_a_severity(memories: Memories) -> None:
    named = add(memories, "Be careful.", trigger="drop table", watches="question", severity="block")
    one = memories.get(ME, named)
    assert (one.trigger, one.watches, one.severity) == ("drop table", "question", "warn")
    body = MemoryBody(
        kind="censor", text="Never x y.", imported=True, state="escalated", severity="block", trigger="x y"
    )
    assert memories.add(ME, "owner", None, body).severity == "block"


def test_false_alarms_retire_a_censor(memories: Memories) -> None:
    made = add(memories, "Never push to main.")
    for _ in range(5):
        memories.store.judge(ME, made, right=False)
    assert memories.watch(ME, None, "", "Push to main.") == ()
    with pytest.raises(LoreError):
        memories.store.retire(ME, made)
