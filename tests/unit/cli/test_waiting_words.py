"""What `lore ask` says where no terminal watches: an empty answer, and a wait of minutes."""

import json

from orchestrator.cli.ask import Wait


def test_an_empty_answer_prints_nothing_and_says_so(lore, lorekeep):
    done = lore("ask", "mute")
    assert (done.returncode, done.stdout) == (0, "")
    assert "the model answered nothing" in done.stderr
    assert json.loads(lore("ask", "mute", "--json").stdout)["answer"] == ""


def test_a_wait_of_minutes_is_told_once_and_a_short_one_not(lore, lorekeep):
    told = lore("ask", "patience")
    assert told.stdout == "patience \n"
    assert told.stderr.startswith("computing the codex, 50 %, ")
    assert "left\n" in told.stderr.splitlines(keepends=True)[0]
    assert "computing" not in lore("ask", "hello").stderr
    assert lore("ask", "patience", "--json").stderr == ""


def test_a_wait_has_its_share_its_rate_and_the_time_that_is_left():
    wait = Wait()
    assert wait.line({"phase": "floor", "done": 0, "total": 20_000}, 0.0) == "computing the codex"
    at = {"phase": "floor", "done": 8_600, "total": 20_000, "left_s": 12.0}
    assert wait.line(at, 5.0) == "computing the codex, 43 %, 1,720 tokens/s, 12 s left"
    assert wait.line({"phase": "prompt", "done": 500, "total": 1_000}, 6.0) == "computing the prompt, 50 %"
    assert wait.line({"phase": "queue"}, 6.0) == "waiting in the queue"


def test_before_a_rate_is_measured_it_is_what_the_daemon_predicts():
    at = {"phase": "floor", "done": 4_000, "total": 10_000, "left_s": 6.0}
    assert Wait().line(at, 9.0) == "computing the codex, 40 %, 1,000 tokens/s, 6 s left"


def test_a_model_that_is_loading_has_its_percent_and_the_time_that_is_left():
    wait = Wait()
    assert wait.line({"phase": "model", "done": 0, "total": 100}, 0.0) == "loading the model"
    assert wait.line({"phase": "model", "done": 25, "total": 100}, 5.0) == "loading the model, 25 %, 15 s left"
