"""What is told of conversations: an empty answer, and the names instead of one that is not there."""

import pytest

from orchestrator.answering.sessions.records import StoredTurn
from orchestrator.answering.sessions.store import SessionStore
from orchestrator.errors import NotFound
from orchestrator.nearest import NAMED_AT_MOST


@pytest.fixture
def store(tmp_path):
    opened = SessionStore(tmp_path / "sessions.db")
    yield opened
    opened.close()


def test_an_empty_answer_is_exported_as_an_empty_text(store):
    session = store.create(1, None, "quiet")
    store.append(session.id, [StoredTurn("user", "q"), StoredTurn("assistant", "")])
    assert [turn["text"] for turn in store.export(1, "quiet")["turns"]] == ["q", ""]


def test_of_few_conversations_all_are_named_and_of_many_the_nearest(store):
    for number in range(5):
        store.create(1, None, f"talk-{number}")
    with pytest.raises(NotFound) as refused:
        store.drop(1, "grand-isle")
    assert all(f"talk-{number}" in refused.value.hint for number in range(5))
    for number in range(NAMED_AT_MOST):
        store.create(1, None, f"other-{number}")
    with pytest.raises(NotFound) as refused:
        store.drop(1, "talk-33")
    assert refused.value.hint.startswith("the nearest of 15: talk-3")
    assert "lore session list" in refused.value.hint


def test_who_has_no_conversation_is_told_how_one_begins(store):
    with pytest.raises(NotFound) as refused:
        store.get(1, "any")
    assert "a question without -s begins one" in refused.value.hint
