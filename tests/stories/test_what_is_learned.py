"""Memories that nobody asked for: what a user states in a conversation is known in the next one."""

import sqlite3
import time
from contextlib import closing

import pytest
from support.house import living, remembered, reply, revived, until

pytestmark = pytest.mark.usefixtures("nothing_remembered")


@pytest.fixture(scope="module")
def house(models):
    with living(models) as daemon:
        yield daemon


def asked(daemon, question, session="", **more):
    """The lore object of the answer."""
    lore = {"codex": "none", **({} if session is None else {"session": session}), **more}
    body = {"model": "lore", "messages": [{"role": "user", "content": question}], "max_completion_tokens": 4}
    return reply(daemon, "/v1/chat/completions", {**body, "lore": lore})["lore"]


def test_a_fact_that_is_stated_in_the_second_turn_and_confirmed_is_recalled_in_another_conversation(house):
    asked(house, "Where do sessions go?", "first")
    (noted,) = asked(house, "By the way, we use Redis for sessions.", "first")["noted"]
    assert (noted["kind"], noted["state"], noted["made"]) == ("fact", "new", True)
    house.json("memory", "confirm", noted["id"])
    (shown,) = asked(house, "what do we use for sessions?", "second")["memories"]
    assert (shown["id"], shown["text"]) == (noted["id"], "We use Redis for sessions.")
    (one,) = remembered(house)
    assert (one["state"], one["subject"], one["attribute"]) == ("confirmed", "sessions", "use")
    assert one["source"].startswith("trace:")
    assert house.json("trace", "show", one["source"].removeprefix("trace:"))["trace"]["question"].startswith(
        "By the way"
    )


def test_the_same_again_confirms_it_and_another_value_takes_its_place(house):
    (first,) = asked(house, "We use Redis for caching.")["noted"]
    (again,) = asked(house, "we use redis for caching")["noted"]
    assert (again["id"], again["state"], again["made"]) == (first["id"], "confirmed", False)
    (other,) = asked(house, "No, we use memcached for caching.")["noted"]
    states = {one["id"]: (one["state"], one["successor"]) for one in remembered(house)}
    assert states == {first["id"]: ("superseded", other["id"]), other["id"]: ("new", "")}


@pytest.mark.parametrize("said", ["hey", "thanks", "Do we use Redis for caching?", "> We use Redis for caching."])
def test_a_greeting_a_question_and_a_quote_make_nothing(house, said):
    assert "noted" not in asked(house, said)
    assert remembered(house) == []


def test_a_private_question_and_a_client_without_a_session_make_nothing(house):
    assert "noted" not in asked(house, "We use Redis for caching.", None)
    house.lore("ask", "-c", "none", "--private", "--max-tokens", "2", "We use Redis for caching.")
    assert remembered(house) == []


def test_the_answer_says_under_it_what_was_noted_and_how_to_undo_it(house):
    told = house.lore("ask", "-c", "none", "--max-tokens", "2", "Never push to main.").stderr
    (one,) = remembered(house)
    assert f"noted censor: Never push to main. · undo: lore memory forget {one['id']}" in told
    told = house.lore("ask", "-c", "none", "--max-tokens", "2", "I think we use Redis for caching.").stderr
    (proposal,) = remembered(house, "--state", "proposed")
    assert f"proposed fact: We use Redis for caching. · keep it: lore memory confirm {proposal['id']}" in told


def test_where_nothing_can_be_remembered_the_answer_stands_and_says_so(house):
    (path,) = house.folder.rglob("memories.sqlite3")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(
            "CREATE TRIGGER refused BEFORE INSERT ON memories BEGIN SELECT RAISE(ABORT, 'the disk fails'); END"
        )
        lore = asked(house, "We use Redis for sessions.")
        database.execute("DROP TRIGGER refused")
    assert ("noted" in lore, [one for one in lore["notices"] if "the disk fails" in one] != []) == (False, True)
    assert remembered(house) == []
    assert asked(house, "We use Redis for sessions.")["noted"] != []


def test_what_worked_is_suggested_as_the_outcome_of_the_decision_and_a_person_takes_it(house):
    (decision,) = asked(house, "We decided to use SQLite for memories because it is one file.", "chosen")["noted"]
    (told,) = asked(house, "That worked!", "chosen")["noted"]
    assert (told["id"], told["suggested"], told["state"]) == (decision["id"], "success", "recorded")
    assert "its outcome may be success" in house.lore("memory", "review").stdout
    house.json("memory", "confirm", decision["id"])
    (one,) = remembered(house)
    assert (one["state"], one["outcome"], one["suggested"]) == ("reviewed", "success", None)


def test_a_down_vote_proposes_why_the_answer_was_wrong_and_no_model_is_shown_that_before_it_is_confirmed(house):
    trace = asked(house, "what is the cache?")["trace"]
    told = house.lore("feedback", trace, "down", "--note", "the cache is memcached").stderr
    (one,) = remembered(house)
    assert f"proposed {one['id']}: The cache is memcached." in told
    assert f"lore memory confirm {one['id']}" in told
    assert (one["state"], one["source"]) == ("proposed", f"trace:{trace}")
    assert one["text"].startswith("The cache is memcached. It was wrong to answer ")
    assert asked(house, "what is the cache?")["memories"] == []
    house.json("memory", "confirm", one["id"])
    assert [each["id"] for each in asked(house, "what is the cache?")["memories"]] == [one["id"]]


def test_how_a_user_wants_answers_stands_in_every_prompt_from_then_on(house):
    (noted,) = asked(house, "Always answer in German.")["noted"]
    assert [one["id"] for one in asked(house, "what is a semaphore?")["memories"]] == [noted["id"]]


def test_an_answer_that_goes_against_a_censor_is_marked_and_its_text_stays(house):
    asked(house, "Never restart the cache.", "rules")
    (censor,) = remembered(house)
    house.json("memory", "add", "To refresh: restart the cache, then the web server.", "--kind", "procedure")
    run = house.lore("ask", "-c", "none", "--max-tokens", "24", "what do we do to refresh?")
    assert "restart the cache" in run.stdout
    assert "warning: the answer goes against 'Never restart the cache.': " in run.stderr
    assert f"false alarm: lore memory rate {censor['id']} down" in run.stderr
    (now,) = remembered(house, "--kind", "censor")
    assert (now["state"], now["activations"]) == ("active", 1)


def test_a_conversation_that_is_over_is_known_as_an_episode_and_goes_with_its_session(house):
    asked(house, "hello there, how are you today?", "parsing")
    asked(house, "Which module parses the zeppelin format?", "parsing")
    assert remembered(house) == []
    house.stop()
    (database,) = house.folder.rglob("sessions.sqlite3")
    with sqlite3.connect(database) as sessions:  # as if it had been yesterday
        sessions.execute("UPDATE sessions SET used = ? WHERE name = 'parsing'", (time.time() - 86_400,))
    revived(house)
    until(lambda: remembered(house))
    (one,) = remembered(house)
    assert (one["kind"], one["state"]) == ("episode", "active")
    assert one["text"].endswith("Asked: Which module parses the zeppelin format?")
    assert [each["id"] for each in asked(house, "what did I ask about the zeppelin format?")["memories"]] == [one["id"]]
    house.json("session", "drop", "parsing")
    assert remembered(house) == []
