"""What can be wrong with a question, and with the one who asks: each with its message and its exit status."""

import signal

import pytest
from support.house import CODES, ask, begun, codebase, first_words, lent, question, reply, until
from support.refusals import refusal
from support.waiting import SOON

ENDLESS = ("ask", "-c", "none", "tick tock tick tock tick tock tick tock tick")


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


def answers(house):
    return ask(house, "zebra", codex="vaults")["answer"].strip().startswith(CODES["zebra"])


def idle(house):
    return reply(house, "/v1/status")["queue"] == {"running": 0, "waiting": 0}


@pytest.mark.parametrize("empty", ["", "   ", "\n\t"])
def test_an_empty_question_is_refused(house, empty):
    assert "the question is empty" in refusal(house.lore("ask", empty), 2)
    assert "the question is empty" in refusal(house.lore("plan", empty), 2)


def test_a_question_longer_than_the_window_is_refused_with_the_numbers(house):
    done = house.lore("ask", input="word " * 200_000)
    words = refusal(done, 4)
    assert "the prompt needs at least 200," in words
    assert "can be held" in words
    assert answers(house)


def test_a_file_that_is_missing_or_binary_is_named(house):
    assert "none.txt" in refusal(house.lore("ask", "hello", "-f", "none.txt"), 2)
    (house.folder / "picture").write_bytes(b"\0\1\2")
    assert "picture is not text" in refusal(house.lore("ask", "hello", "-f", house.folder / "picture"), 2)


def test_an_unknown_session_strategy_and_identity_are_refused(house):
    assert "no name for a session" in refusal(house.lore("ask", "hello", "-s", "no such"), 2)
    assert "no-such" in refusal(house.lore("session", "show", "no-such"), 5)
    assert "no-such" in refusal(house.lore("session", "drop", "no-such"), 5)
    assert "no-such" in refusal(house.lore("ask", "hello", "--strategy", "no-such"), 2)
    assert "no-such" in refusal(house.lore("ask", "hello", "--identity", "no-such"), 5)


def test_a_conversation_of_a_new_name_begins_and_goes_on_under_it(house):
    begun = house.lore("ask", "hello", "-s", "mine", "-c", "none", "--max-tokens", "4")
    assert (begun.returncode, "new session mine\n" in begun.stderr) == (0, True)
    further = house.json("ask", "again", "-s", "mine", "-c", "none", "--max-tokens", "4")
    assert (further["lore"]["session"], further["lore"]["began"]) == ("mine", False)
    assert house.json("session", "show", "mine")["session"]["title"] == "hello"
    assert house.lore("session", "drop", "mine").returncode == 0
    refusal(house.lore("ask", "hello", "-s", "unborn", "--strategy", "no-such"), 2)
    assert "no session unborn" in refusal(house.lore("session", "show", "unborn"), 5)


def test_a_session_and_continue_exclude_each_other(house):
    refusal(house.lore("ask", "hello", "-s", "x", "--continue"), 2)


def test_nothing_to_continue_is_not_found(house):
    assert "no session" in refusal(house.lore("ask", "hello", "--continue", "-c", "none"), 5)


def test_who_will_not_wait_for_a_floor_is_told_how_far_it_is(house, tmp_path):
    large = codebase(tmp_path / "large", {"badger": "7135508"}, functions=300)
    assert house.lore("load", large, "--no-watch").returncode == 0
    words = refusal(house.lore("ask", question("badger"), "-c", "large", "--no-wait"), 8)
    assert "the prefix of large is not computed yet" in words
    refusal(house.lore("ask", question("badger"), "-c", "large", "--timeout", "0.2"), 8)
    patient = ask(house, "badger", codex="large")
    assert patient["answer"].strip().startswith("7135508")
    assert house.lore("ask", question("badger"), "-c", "large", "--no-wait", "--max-tokens", "9").returncode == 0
    assert house.lore("codex", "drop", "large").returncode == 0


def test_ctrl_c_ends_an_answer_with_130_and_gives_back_what_it_held(house):
    asking = begun(house, *ENDLESS)
    assert first_words(asking)
    asking.send_signal(signal.SIGINT)
    _, words = asking.communicate(timeout=120)
    assert asking.returncode == 130
    assert "Traceback" not in words
    until(lambda: idle(house))
    assert answers(house)


def test_a_client_that_is_killed_cancels_its_answer(house):
    asking = begun(house, *ENDLESS)
    assert first_words(asking)
    asking.kill()
    asking.communicate(timeout=120)
    until(lambda: idle(house))
    assert answers(house)


def test_others_are_answered_while_an_answer_runs(house):
    asking = begun(house, *ENDLESS)
    assert first_words(asking)
    assert answers(house)
    assert house.lore("plan", question("zebra"), "-c", "vaults").returncode == 0
    asking.send_signal(signal.SIGINT)
    asking.communicate(timeout=120)


def test_a_closed_pipe_behind_the_answer_is_no_traceback(house):
    asking = begun(house, *ENDLESS)
    assert first_words(asking)
    asking.stdout.close()
    words = asking.stderr.read()
    asking.wait(SOON)
    assert "Traceback" not in words
    until(lambda: idle(house))
