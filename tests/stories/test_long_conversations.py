"""A conversation that outgrows its window goes on: its oldest turns in short, what must stay to the letter, all on disk."""

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from support.house import engine_child, living, reply, until

CONTEXT = 4_096
WORDS = ("amber", "birch", "coral", "delta", "ember", "frost", "grove", "haven")
KEPT = "never  touch   main.c\n\n\n====\nbut for line 7"
ENDING = (
    "without a heading and without a greeting."  # of what the model is asked for: it quotes what followed these words
)
GIST = "The user wants no heading and no greeting."
READ = re.compile(r"the model read ([\d,]+) tokens for it, ([\d,]+) of them cached")


@pytest.fixture(scope="module")
def house(models):
    with living(models, f"[model]\ncontext = {CONTEXT}\n[governor]\ngist_time = 100\n") as daemon:
        yield daemon


def long(topic, lines=80):
    """About 14 tokens a line, no line twice, and nothing in them that must survive."""
    named = (f"{WORDS[line % 8]} {WORDS[line // 8 % 8]} {WORDS[line // 64]}" for line in range(lines))
    return "\n".join(f"{topic} {name} and so on it goes" for name in named)


def asked(daemon, *messages, tokens=8, **lore):
    """The answer to the last of these messages, which are the user's and the model's by turns."""
    spoken = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(messages)]
    body = {"model": "lore", "messages": spoken, "max_completion_tokens": tokens, "lore": {"codex": "none", **lore}}
    answer = reply(daemon, "/v1/chat/completions", body)
    return answer["choices"][0]["message"]["content"], answer["lore"]["governor"]


def condensing(daemon):
    """Whether the engine computes a gist, which may be longer than an answer that was `asked` for."""
    return any(one["done"] and one["most"] > 8 for one in reply(daemon, "/v1/engine")["tickets"])


def test_the_model_condenses_what_falls_on_the_prompt_that_is_cached(house):
    talk = [f"{long('first', 160)}\nWrite plain sentences, {ENDING}", GIST, long("second")]
    answer, governor = asked(house, *talk)
    assert governor["actions"] == []
    _, governor = asked(house, *talk, answer, long("third"))
    (action,) = governor["actions"]
    assert action.startswith("turn 1 condensed into a gist of ")
    read, cached = (int(number.replace(",", "")) for number in READ.search(action).groups())
    assert cached >= 0.95 * read
    assert governor["left_out"] == "left out: 1 turn (condensed); lore plan shows which"


def test_an_engine_that_is_killed_while_it_condenses_condenses_again_and_the_question_is_answered(house):
    before = reply(house, "/v1/status")["engine"]["restarts"]
    talk = [f"{long('killed', 160)}\nWrite plain sentences, {ENDING}", GIST, long("second"), "so it is"]
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(asked, house, *talk, long("third"))
        until(lambda: condensing(house))
        os.kill(engine_child(house), signal.SIGKILL)
        _, governor = asking.result()
    assert reply(house, "/v1/status")["engine"]["restarts"] == before + 1
    (action,) = governor["actions"]
    assert action.startswith("turn 1 condensed into a gist of ")
    assert governor["left_out"] == "left out: 1 turn (condensed); lore plan shows which"


def test_a_daemon_that_is_killed_while_it_condenses_loses_no_turn_and_condenses_again(house):
    asked(house, f"{long('rite', 160)}\nWrite plain sentences, {ENDING} {GIST}", tokens=40, session="rite")
    asked(house, long("second"), session="rite")
    before = reply(house, "/v1/sessions/rite")["session"]
    house.kill()
    house.start()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(asked, house, long("third"), session="rite")
        until(lambda: condensing(house))
        house.kill()
        with pytest.raises(httpx2.TransportError):
            asking.result()
    house.start()
    kept = reply(house, "/v1/sessions/rite")["session"]
    assert (kept["turns"], kept["gists"]) == (before["turns"], [])
    _, governor = asked(house, long("third"), session="rite")
    (action,) = governor["actions"]
    assert action.startswith("turn 1 condensed into a gist of ")
    kept = reply(house, "/v1/sessions/rite")["session"]
    assert (kept["turns"][:4], len(kept["turns"])) == (before["turns"], 6)
    (gist,) = kept["gists"]
    assert gist["text"].startswith("The user wants no heading and no greet")


def test_a_session_keeps_all_its_turns_and_goes_on_after_a_kill_with_the_same_prompt(house):
    asked(house, f"Why is src/reader.py slow? {long('first')}", session="long", verbatim=[KEPT])
    asked(house, f"Do not change part_2(). {long('second')}", session="long")
    asked(house, long("third"), session="long")
    _, governor = asked(house, long("fourth"), session="long")
    assert "condensed into an extract of " in governor["actions"][0]  # the built-in model writes no gist
    kept = reply(house, "/v1/sessions/long")["session"]
    assert [turn["role"] for turn in kept["turns"]] == ["user", "assistant"] * 4
    (gist,) = kept["gists"]
    assert "src/reader.py" in gist["text"]
    reply(house, "/v1/pause", {})  # returns once all that is cached is on disk
    reply(house, "/v1/resume", {})
    house.kill()
    house.start()
    question = {"model": "lore", "messages": [{"role": "user", "content": "And now?"}], "max_completion_tokens": 8}
    plan = reply(house, "/v1/plan", {**question, "prompt": True, "lore": {"session": "long"}})
    assert gist["text"] in plan["text"]
    assert KEPT in plan["text"]
    assert plan["prompt"]["cached"] >= 0.9 * plan["prompt"]["tokens"]
    turns = f"turns 1 to {gist['last']}" if gist["last"] > 1 else "turn 1"
    assert f"prompts have {turns} in short: " in house.lore("session", "show", "long").stdout
    told = house.lore("ask", "-s", "long", "And now?", "--max-tokens", "8").stderr
    assert plan["governor"]["left_out"] in told
    assert "(condensed, kept in the session); lore plan shows which" in told
