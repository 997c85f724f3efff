"""Conversations are kept, whole and apart from each other."""

import os
import signal
import sqlite3
import subprocess
import sys
from array import array
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.word_encoder import WordEncoder

from formatters.blocks import Role
from formatters.calls import PLAIN_CALLS
from formatters.context import CallView, GistView, StateView, TurnView
from orchestrator.answering import sessions as sessions_module
from orchestrator.answering.conversations import Conversation, Conversations, key_of, state_of_messages
from orchestrator.answering.sessions import SCHEMA, SessionStore, StoredTurn
from orchestrator.errors import NAMED_AT_MOST, Conflict, InvalidRequest, LoreError, NotFound
from orchestrator.prompt.composing import TokenCache
from orchestrator.service import Message, ToolCall

ALICE, BOB = 1000, 1001


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sessions.sqlite3"


@pytest.fixture
def store(path):
    store = SessionStore(path, Clock())
    yield store
    store.close()


def test_turns_come_back_as_they_were_stored_after_a_restart(store, path):
    session = store.create(ALICE, "demo")
    ids = array("I", [1, 2, 4_000_000_000]).tobytes()
    turns = [
        StoredTurn("user", "how?", evidence="src/a.py:1\nx"),
        StoredTurn("assistant", "so.\0ü", ids),
        StoredTurn("tool", "42"),
    ]
    store.append(session.id, turns[:2])
    store.append(session.id, turns[2:])
    again = SessionStore(path)
    assert [replace(turn, created=0.0) for turn in again.turns(session.id)] == turns
    assert again.get(ALICE, session.name).turns == 3
    again.close()


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(), st.binary())))
def test_any_history_is_kept_in_its_order(tmp_path_factory, history):
    store = SessionStore(tmp_path_factory.mktemp("s") / "s.sqlite3")
    session = store.create(ALICE, None)
    expected = [(role, text.encode("utf-8", "ignore").decode(), ids) for role, text, ids in history]
    for role, text, ids in expected:
        store.append(session.id, [StoredTurn(role, text, ids)])
    assert [(turn.role, turn.text, turn.ids) for turn in store.turns(session.id)] == expected
    store.close()


def test_nobody_sees_another_user_s_sessions(store):
    session = store.create(ALICE, "demo", "secret")
    with pytest.raises(NotFound):
        store.get(BOB, session.name)
    with pytest.raises(NotFound):
        store.drop(BOB, session.name)
    assert store.all_of(BOB) == []
    assert store.last_of(BOB, "demo") is None
    assert store.create(BOB, "demo", "secret").uid == BOB


def test_a_name_is_free_until_a_conversation_begins_under_it(store):
    assert store.named(ALICE, "mine") is None
    begun = store.create(ALICE, "demo", "mine")
    assert store.named(ALICE, "mine") == begun
    assert store.named(BOB, "mine") is None
    with pytest.raises(InvalidRequest):
        store.named(ALICE, "a b")


def test_continue_finds_the_session_used_last_on_that_codex(store):
    first, second = store.create(ALICE, "demo"), store.create(ALICE, "demo")
    bare = store.create(ALICE, None)
    store.append(first.id, [StoredTurn("user", "again")])
    assert store.last_of(ALICE, "demo").name == first.name
    assert store.last_of(ALICE, None).name == bare.name
    assert store.last_of(ALICE, "other") is None
    assert [session.name for session in store.all_of(ALICE)] == [first.name, bare.name, second.name]


def test_the_first_question_becomes_the_title_and_stays_it(store):
    session = store.create(ALICE, "demo")
    store.append(session.id, [StoredTurn("system", "rules"), StoredTurn("user", "  how\ndoes it start? " + "x" * 100)])
    store.append(session.id, [StoredTurn("user", "and then?")])
    title = store.get(ALICE, session.name).title
    assert title.startswith("how does it start? xxx")
    assert len(title) == 80


def test_a_renamed_session_keeps_its_turns(store):
    session = store.create(ALICE, "demo", "old")
    store.append(session.id, [StoredTurn("user", "a")])
    store.rename(ALICE, "old", "new")
    assert store.export(ALICE, "new").turns[0].text == "a"
    with pytest.raises(NotFound, match="no session old"):
        store.get(ALICE, "old")


def test_a_taken_name_is_a_conflict_and_changes_nothing(store):
    store.create(ALICE, "demo", "one")
    store.create(ALICE, "demo", "two")
    with pytest.raises(Conflict):
        store.create(ALICE, "demo", "one")
    with pytest.raises(Conflict):
        store.rename(ALICE, "two", "one")
    assert {session.name for session in store.all_of(ALICE)} == {"one", "two"}


@pytest.mark.parametrize("name", ["", " ", "-x", "a b", "a/b", "x" * 65, "a\n"])
def test_a_name_that_cannot_be_typed_is_refused(store, name):
    store.create(ALICE, "demo", "one")
    with pytest.raises(InvalidRequest):
        store.rename(ALICE, "one", name)


def test_a_dropped_session_takes_its_turns_with_it(store, path):
    session = store.create(ALICE, "demo")
    store.append(session.id, [StoredTurn("user", "a")])
    store.drop(ALICE, session.name)
    assert store.turns(session.id) == []
    assert store.count(ALICE) == 0


def test_what_a_dropped_session_was_still_to_get_goes_to_no_other(store):
    dropped = store.create(ALICE, "demo")
    store.drop(ALICE, dropped.name)
    assert store.create(BOB, "demo", "another").id != dropped.id
    with pytest.raises(NotFound, match="dropped meanwhile"):
        store.append(dropped.id, [StoredTurn("user", "Alice's own")])
    assert store.export(BOB, "another").turns == ()


def test_the_nearest_name_is_told(store):
    store.create(ALICE, "demo", "brave-otter")
    with pytest.raises(NotFound) as caught:
        store.get(ALICE, "brave-oter")
    assert "brave-otter" in caught.value.hint


def test_turns_cannot_be_changed(store):
    session = store.create(ALICE, "demo")
    store.append(session.id, [StoredTurn("user", "a")])
    with pytest.raises(sqlite3.IntegrityError, match="never changed"):
        store.connection.execute("UPDATE turns SET text = 'b'")


def test_an_append_is_whole_or_not_at_all(store):
    session = store.create(ALICE, "demo")
    with pytest.raises(LoreError):
        store.append(session.id, [StoredTurn("user", "a"), StoredTurn("user", object())])
    assert store.turns(session.id) == []


def test_the_file_is_its_owner_s_alone(store, path):
    store.create(ALICE, "demo")
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}


def test_a_killed_process_loses_nothing_it_was_told_is_stored(path):
    script = f"""
import os, signal
from pathlib import Path
from orchestrator.answering.sessions import SessionStore, StoredTurn
store = SessionStore(Path({str(path)!r}))
session = store.create({ALICE}, "demo", "kept")
store.append(session.id, [StoredTurn("user", "a"), StoredTurn("assistant", "b")])
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-P", "-c", script], check=False)
    assert done.returncode == -signal.SIGKILL
    store = SessionStore(path)
    assert [turn.text for turn in store.turns(store.get(ALICE, "kept").id)] == ["a", "b"]
    store.close()


def test_a_file_of_a_newer_version_is_refused_untouched(store, path):
    store.connection.execute(f"PRAGMA user_version = {len(SCHEMA) + 1}")
    store.close()
    before = path.read_bytes()
    with pytest.raises(LoreError, match="version"):
        SessionStore(path)
    assert path.read_bytes() == before


def test_a_foreign_file_is_refused_and_left_as_it_is(path):
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE t (x)")
    foreign.close()
    before = path.read_bytes(), path.stat().st_mode
    with pytest.raises(LoreError, match="no database of Lorekeep"):
        SessionStore(path)
    assert (path.read_bytes(), path.stat().st_mode) == before


def test_a_damaged_file_is_refused(path):
    path.write_bytes(os.urandom(8192))
    with pytest.raises(LoreError, match="damaged"):
        SessionStore(path)


def test_the_file_is_copied_before_a_migration(store, path, monkeypatch):
    store.create(ALICE, "demo", "kept")
    store.close()
    monkeypatch.setattr(sessions_module, "SCHEMA", (*SCHEMA, "ALTER TABLE sessions ADD COLUMN pinned INTEGER;"))
    newer = SessionStore(path)
    assert newer.get(ALICE, "kept").name == "kept"
    newer.close()
    copy = sqlite3.connect(path.with_name(f"{path.name}.before-{len(SCHEMA) + 1}"))
    assert copy.execute("SELECT name FROM sessions").fetchall() == [("kept",)]
    assert copy.execute("PRAGMA user_version").fetchone() == (len(SCHEMA),)
    copy.close()


def test_damage_that_sqlite_quotes_byte_for_byte_is_damage(store, path):
    store.close()
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE \x9eABLE"))
    with pytest.raises(LoreError, match="damaged"):
        SessionStore(path)


# ---- A clock that jumps, forward or back, never makes an older conversation the latest


class JumpingClock:
    def __init__(self, moments):
        self.moments = list(moments)

    def __call__(self):
        return self.moments.pop(0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(st.floats(0, 4e9), min_size=7, max_size=7), st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_the_last_one_used_is_the_one_that_is_continued_whatever_the_clock_says(tmp_path, moments, used):
    store = SessionStore(tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite3", JumpingClock(moments))
    made = [store.create(1, "demo") for _ in range(3)]
    for number in used:
        store.append(made[number].id, [StoredTurn("user", "hello")])
        assert store.last_of(1, "demo").name == made[number].name
    assert store.all_of(1)[0].name == made[used[-1]].name
    store.close()


@pytest.mark.parametrize("later", [999.0, 1000.0, 1001.0])
def test_a_new_conversation_is_the_latest_though_the_clock_stands_or_was_set_back(tmp_path, later):
    store = SessionStore(tmp_path / "s.sqlite3", JumpingClock([1000.0, later]))
    store.create(1, "demo", "first")
    store.create(1, "demo", "second")
    assert [one.name for one in store.all_of(1)] == ["second", "first"]
    store.close()


# ---- What is told of conversations: an empty answer, and the names instead of one that is not there


def test_an_empty_answer_is_exported_as_an_empty_text(store):
    session = store.create(1, None, "quiet")
    store.append(session.id, [StoredTurn("user", "q"), StoredTurn("assistant", "")])
    assert [turn.text for turn in store.export(1, "quiet").turns] == ["q", ""]


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


# ---- What stands for earlier turns


def test_gists_are_kept_in_their_order_beside_all_turns_and_go_with_their_conversation(store, path):
    gists = [GistView(first=1, last=2, text="about x"), GistView(first=3, last=3, text="about y")]
    session = store.create(1, None, "long")
    store.append(session.id, [StoredTurn("user", "a"), StoredTurn("assistant", "b")], gists[:1])
    store.append(session.id, [StoredTurn("user", "c")], gists)  # another question at once had made the first one too
    again = SessionStore(path)
    assert again.gists(session.id) == gists
    shown = again.export(1, "long")
    assert [(one.first, one.last, one.text) for one in shown.gists] == [(1, 2, "about x"), (3, 3, "about y")]
    assert [turn.text for turn in shown.turns] == ["a", "b", "c"]
    again.drop(1, "long")
    assert again.gists(session.id) == []
    again.close()


def test_what_was_said_is_found_by_its_words_in_the_users_own_sessions(store):
    for uid in (1, 2):
        store.append(store.create(uid, "demo", f"of-{uid}").id, [StoredTurn("user", f"Where do herons nest, {uid}?")])
    store.append(store.get(1, "of-1").id, [StoredTurn("assistant", "A heron's nest: in trees.")])
    found = store.find(1, 'heron" OR', 10)
    assert {(one.session, one.number, one.role) for one in found} == {("of-1", 0, "user"), ("of-1", 1, "assistant")}
    store.drop(1, "of-1")
    assert store.find(1, "heron", 10) == []
    assert [one.session for one in store.find(2, "heron", 10)] == ["of-2"]
    assert store.read("SELECT count(*) FROM said") == [(1,)]


def test_the_first_variant_of_a_session_stays_over_a_restart(tmp_path):
    path = tmp_path / "sessions.sqlite3"
    store = SessionStore(path)
    session = store.create(1000, None, "talk")
    store.append(session.id, [StoredTurn("user", "one")])
    assert store.get(1000, "talk").variant == ""
    for variant in ("lean", "rich", ""):
        store.append(session.id, [StoredTurn("user", variant)], variant=variant)
    store.close()
    again = SessionStore(path)
    assert again.get(1000, "talk").variant == "lean"
    again.close()


def test_a_user_s_conversations_are_weighed_and_purged_alone(tmp_path):
    store = SessionStore(tmp_path / "sessions.sqlite3")
    for uid in (1, 2):
        store.append(
            store.create(uid, "demo", "talk").id, [StoredTurn("user", "Où?"), StoredTurn("assistant", "x", b"1234")]
        )
    assert store.kept(1) == (1, 9)  # bytes, not letters
    store.purge(1)
    assert (store.kept(1), store.kept(2)) == ((0, 0), (1, 9))
    assert store.read("SELECT count(*) FROM turns") == [(2,)]
    assert store.find(1, "ou", 10) == []
    store.close()


def test_calls_and_results_of_a_session_are_there_when_it_is_read_from_disk(store):
    call = CallView(id="a", name="look", arguments='{"at": "wall"}')
    turns = (
        TurnView(role=Role.USER, text="Where?"),
        TurnView(role=Role.ASSISTANT, text="<tool_call>…", calls=(call,)),
        TurnView(role=Role.TOOL, text="42", answers="a"),
    )
    conversations, session = Conversations(store), store.create(1, None, "talk")
    conversations.close_turn(session, Conversation(StateView(turns=turns)), turns, {"<tool_call>…": b"12345678"})
    tokens = TokenCache(WordEncoder())
    assert Conversations(store).of_session(session, tokens).state.turns == turns
    assert tokens.of_answer("<tool_call>…") == b"12345678"


def test_a_conversation_is_known_again_however_its_client_writes_calls():
    asked, call = Message("user", "Where?"), ToolCall("a", "look", '{"at": "wall", "far": true}')
    again = ToolCall("a", "look", '{"far":true,"at":"wall"}')
    keys = {
        key_of(1, None, [asked, Message("assistant", "I look.", tool_calls=(call,))]),
        key_of(1, None, [asked, Message("assistant", "I look. ", tool_calls=(again,))]),
        key_of(1, None, [asked, Message("assistant", "I look."), Message("assistant", "", tool_calls=(again,))]),
    }
    assert len(keys) == 1
    other = ToolCall("a", "look", '{"at": "door"}')
    assert key_of(1, None, [asked, Message("assistant", "I look.", tool_calls=(other,))]) not in keys


def test_calls_that_only_the_messages_tell_of_are_written_in_the_models_form():
    called = Message("assistant", "I look. ", tool_calls=(ToolCall("a", "look", "{}"),))
    state = state_of_messages([Message("user", "Where?"), called, Message("tool", "42", "a")])
    assert [turn.text for turn in state.turns][1:] == ["I look. " + PLAIN_CALLS.written([("look", "{}")]), "42"]
    assert (state.turns[1].calls[0].id, state.turns[2].answers) == ("a", "a")
