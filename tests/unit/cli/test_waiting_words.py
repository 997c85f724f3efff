"""What `lore ask` says where no terminal watches: an empty answer, and a wait of minutes."""

import json

from orchestrator.cli.ask import waiting


def test_an_empty_answer_prints_nothing_and_says_so(lore, lorekeep):
    done = lore("ask", "mute")
    assert (done.returncode, done.stdout) == (0, "")
    assert "the model answered nothing" in done.stderr
    assert json.loads(lore("ask", "mute", "--json").stdout)["answer"] == ""


def test_a_wait_of_minutes_is_told_once_and_a_short_one_not(lore, lorekeep):
    told = lore("ask", "patience")
    assert told.stdout == "patience \n"
    assert told.stderr.startswith("waiting for the floor of demo: about 4 min, 512 of 1,024 tokens stand\n")
    assert "waiting" not in lore("ask", "hello").stderr
    assert lore("ask", "patience", "--json").stderr == ""


def test_a_model_that_is_loading_is_told_by_its_percent():
    assert waiting({"phase": "model", "done": 43, "total": 100}) == "waiting for the model, 43 %"
    assert waiting({"phase": "model", "done": 0, "total": 100}) == "waiting for the model"
    assert waiting({"phase": "prompt", "done": 512, "total": 1024}) == "waiting for prompt 512/1,024"
