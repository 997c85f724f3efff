"""The OpenAI client, unmodified, against the real daemon: codices as models, streams, sessions, shared prefixes."""

import json
import re

import openai
import pytest
from support.house import CODES, blocks, cached_whole, codebase, lent, question, reply


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def create(client, *messages, **options):
    return client.chat.completions.create(model="lore/vaults", messages=messages, max_tokens=10, **options)


def said(answer):
    return answer.choices[0].message.content


def test_the_codices_are_models(client):
    assert "lore/vaults" in {model.id for model in client.models.list()}


def test_a_codex_is_asked_by_its_model_id(client):
    answer = create(client, user(question("zebra")))
    assert said(answer).strip().startswith(CODES["zebra"])
    assert answer.lore["citations"][0]["path"] == "zebra.py"
    assert answer.usage.prompt_tokens_details.cached_tokens == answer.lore["prompt"]["cached"]
    assert answer.usage.prompt_tokens == answer.lore["prompt"]["tokens"]


def test_a_stream_says_the_same_and_carries_the_lore_object_in_its_last_chunk(client):
    whole = said(create(client, user(question("zebra"))))
    chunks = list(create(client, user(question("zebra")), stream=True))
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == whole
    assert chunks[-1].lore["codex"]["name"] == "vaults"
    assert chunks[-1].usage.completion_tokens > 0


def test_an_unknown_model_is_not_found_and_the_known_ones_are_named(client):
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="lore/vaulds", messages=[user("hello")])
    assert refused.value.code == "model_not_found"
    assert "vaults" in refused.value.body["hint"]


def test_a_stateless_conversation_finds_its_earlier_turns_in_the_cache(client):
    first = create(client, user(question("zebra")))
    talk = [user(question("zebra")), assistant(said(first)), user(question("walrus"))]
    second = create(client, *talk)
    assert said(second).strip().startswith(CODES["walrus"])
    assert cached_whole(second.lore, "identity", "codex", "environment")
    own = blocks(second.lore)["query"]["tokens"]
    assert second.lore["prompt"]["computed"] <= own + 4, "the last answer's end, and this question"
    assert second.lore["broke_at"] is None
    third = create(client, *talk, assistant(said(second)), user(question("zebra")))
    assert said(third).strip().startswith(CODES["zebra"])
    assert third.lore["prompt"]["computed"] <= own + 4
    assert third.lore["session"] is None


def test_a_session_is_sent_only_the_new_message(client):
    extra = {"lore": {"session": ""}}
    told = create(client, user(f"{question('heron')} 3344556."), extra_body=extra)
    name = told.lore["session"]
    assert name
    asked = create(client, user(question("heron")), extra_body={"lore": {"session": name}})
    assert "3344556" in said(asked)
    assert asked.lore["session"] == name


def test_a_response_goes_on_where_the_one_before_ended(client, house):
    told = client.responses.create(model="lore/vaults", input=f"{question('heron')} 6677881.", max_output_tokens=4)
    asked = client.responses.create(
        model="lore/vaults", input=question("heron"), previous_response_id=told.id, max_output_tokens=10
    )
    assert "6677881" in asked.output_text
    assert reply(house, f"/v1/sessions/{asked.lore['session']}")["session"]["turns"][0]["text"].endswith("6677881.")
    with pytest.raises(openai.BadRequestError, match="its session has 2 answers"):
        client.responses.create(model="lore/vaults", input="again?", previous_response_id=told.id)


def test_a_response_streams_what_it_says_whole(client):
    asked = {"model": "lore/vaults", "input": question("zebra"), "max_output_tokens": 10, "store": False}
    whole = client.responses.create(**asked)
    assert whole.output_text.strip().startswith(CODES["zebra"])
    with client.responses.stream(**asked) as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    assert said == whole.output_text
    assert whole.lore["session"] is None


def test_a_client_s_system_message_stands_behind_the_floor_and_breaks_nobody_s_prefix(client, house):
    create(client, user(question("zebra")))
    system = {"role": "system", "content": f"{question('stoat')} 5512098."}
    answer = create(client, system, user(question("stoat")))
    assert said(answer).strip().startswith("5512098")
    assert cached_whole(answer.lore, "identity", "codex")
    assert blocks(answer.lore)["environment"]["cached"] < blocks(answer.lore)["environment"]["tokens"]
    again = create(client, user(question("walrus")))
    assert cached_whole(again.lore, "identity", "codex", "environment")
    assert "5512098" not in said(create(client, user(question("stoat"))))


def test_a_question_longer_than_the_window_is_refused_with_the_numbers(client):
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, user("word " * 200_000))
    assert refused.value.code == "context_length_exceeded"
    assert re.search(r"needs at least 200,\d{3} tokens and 131,\d{3} can be held", str(refused.value))


def test_a_client_that_goes_away_cancels_what_was_running(client, house):
    with create(client, user("def step_1(value"), stream=True, extra_body={"max_completion_tokens": 4000}) as stream:
        next(iter(stream))
    assert said(create(client, user(question("zebra")))).strip().startswith(CODES["zebra"])
    assert reply(house, "/v1/status")["queue"] == {"running": 0, "waiting": 0}


def test_an_empty_schema_allows_any_json_and_nothing_else(client):
    wanted = {"type": "json_schema", "json_schema": {"name": "any", "schema": {}}}
    answer = client.chat.completions.create(
        model="lore/vaults", messages=[user(question("zebra"))], max_tokens=60, response_format=wanted
    )
    if answer.choices[0].finish_reason == "stop":
        json.loads(said(answer))
    else:
        assert said(answer)[0] in '"[{-0123456789tfn \n', "it was cut off, and began as JSON does"


MANNERS = "Answer in one line, name the file, and quote what it says. " * 12


def lost_in(client, minute, text, agent, *earlier):
    """The answer of a client whose system message begins with the time, and where it says that it left its last prompt."""
    system = {"role": "system", "content": f"Current time: 10:{minute}\n{MANNERS}"}
    answer = create(client, system, *earlier, user(text), extra_headers={"User-Agent": f"{agent}/1.0"})
    return answer, answer.lore["departure"]


def test_a_client_that_writes_the_time_into_its_system_message_is_told_what_that_costs(client, house):
    first, none = lost_in(client, 15, question("zebra"), "Clockwork")
    assert none is None
    history = (user(question("zebra")), assistant(said(first)))
    answer, found = lost_in(client, 16, question("heron"), "Clockwork", *history)
    assert found["why"] == "message 1 (system) is changed"
    assert "10:15" in found["was"]
    assert "10:16" in found["now"]
    assert 0 < found["tokens"] <= answer.lore["prompt"]["computed"]
    assert found["seconds"] > 0
    rows = house.json("stats", "cache", "--clients")["clients"]
    assert [one["seconds"] for one in rows] == sorted((one["seconds"] for one in rows), reverse=True)
    (row,) = [one for one in rows if one["client"] == "Clockwork"]
    assert (row["prompts"], row["departures"], row["tokens"], row["last"]) == (2, 1, found["tokens"], found)
    page = house.lore("stats", "cache", "--clients").stdout
    assert "Clockwork: message 1 (system) is changed, at token" in page
    again, none = lost_in(client, 16, question("heron"), "Clockwork", *history)
    assert none is None, "the same once more is at hand"
    assert again.lore["prompt"]["computed"] < 5


def test_what_one_client_sent_is_not_compared_with_what_another_sent(client):
    lost_in(client, 25, question("zebra"), "One")
    assert lost_in(client, 26, question("zebra"), "Other")[1] is None
