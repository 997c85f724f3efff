"""The engine's child is killed: the daemon stays, says so, restarts it, and the next question finds its floor."""

import os
import signal

import pytest
from support.house import (
    CODES,
    ask,
    begun,
    cached_whole,
    codebase,
    engine_child,
    first_words,
    hits,
    lent,
    question,
    reply,
    until,
)


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


def kill_child(house):
    os.kill(engine_child(house), signal.SIGKILL)


def test_an_answer_that_had_begun_ends_with_a_fault_and_the_next_question_is_answered(house):
    restarts = reply(house, "/v1/status")["engine"]["restarts"]
    asking = begun(house, "ask", "-c", "none", "tick tock tick tock tick tock tick tock tick")
    assert first_words(asking)
    kill_child(house)
    _, words = asking.communicate(timeout=60)
    assert asking.returncode == 1
    assert "Traceback" not in words
    assert "again" in words
    answer = ask(house, "zebra", codex="vaults")
    assert answer["answer"].strip().startswith(CODES["zebra"])
    assert cached_whole(answer["lore"], "identity", "codex"), "the floor was restored, not computed"
    assert reply(house, "/v1/status")["engine"]["restarts"] == restarts + 1


def test_a_question_that_had_sent_nothing_is_asked_again_by_the_daemon_itself(house, tmp_path):
    large = codebase(tmp_path / "large", {"badger": "7135508"}, functions=300)
    assert house.lore("load", large, "--no-watch").returncode == 0
    asking = begun(house, "ask", question("badger"), "-c", "large", "--max-tokens", "10")
    until(lambda: sum(reply(house, "/v1/status")["queue"].values()) >= 2)  # the floor's prefill, and this
    kill_child(house)
    text, words = asking.communicate(timeout=120)
    assert asking.returncode == 0, words
    assert text.strip().startswith("7135508")
    assert house.lore("codex", "drop", "large").returncode == 0


def test_while_the_child_is_stopped_all_that_needs_no_model_is_answered_and_the_question_when_it_goes_on(house):
    child, restarts = engine_child(house), reply(house, "/v1/status")["engine"]["restarts"]
    os.kill(child, signal.SIGSTOP)
    try:
        asking = begun(house, "ask", question("zebra"), "-c", "vaults", "--max-tokens", "10")
        assert hits(house, "walrus", "vaults")[0]["path"] == "walrus.py"
        assert house.lore("status").returncode == 0
        assert house.lore("session", "list").returncode == 0
    finally:
        os.kill(child, signal.SIGCONT)
    text, words = asking.communicate(timeout=120)
    assert asking.returncode == 0, words
    assert text.strip().startswith(CODES["zebra"])
    assert (engine_child(house), reply(house, "/v1/status")["engine"]["restarts"]) == (child, restarts)


def test_plan_and_status_answer_while_the_child_is_away(house):
    kill_child(house)
    assert house.lore("status").returncode == 0
    assert house.lore("plan", question("zebra"), "-c", "vaults").returncode == 0
    assert ask(house, "walrus", codex="vaults")["answer"].strip().startswith(CODES["walrus"])
