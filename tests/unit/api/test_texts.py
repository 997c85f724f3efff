"""Routes of plain text, in front of the small service: one character is one token there."""

import pytest
from support.served import served

from orchestrator.settings import Settings
from orchestrator.wire.texts import PropsReply


@pytest.mark.parametrize("word", ["content", "prompt"])
def test_a_text_is_counted_by_either_servers_word_for_it(http, word):
    answer = http.post("/tokenize", json={word: "ab", "add_special": True})
    assert answer.json() == {"tokens": [97, 98], "count": 2, "max_model_len": 8192}


def test_no_text_at_all_is_refused_and_an_empty_one_has_no_tokens(http):
    assert http.post("/tokenize", json={}).json()["error"]["message"] == "content: is missing"
    assert http.post("/tokenize", json={"content": ""}).json()["tokens"] == []


def test_tokens_are_a_text_again_under_both_names(http):
    assert http.post("/detokenize", json={"tokens": [97, 98]}).json() == {"content": "ab", "prompt": "ab"}


@pytest.mark.parametrize("tokens", [[-1], [2**32], ["a"], [True], None])
def test_what_no_vocabulary_has_is_no_token(http, tokens):
    assert http.post("/detokenize", json={"tokens": tokens}).json()["error"]["code"] == "invalid_request"


def test_a_model_tells_how_long_a_prompt_may_be_without_what_a_codex_takes_of_it(client):
    lengths = {model.id: (model.context_length, model.max_model_len) for model in client.models.list()}
    assert lengths == {"lore/demo": (8192 - 1300,) * 2, "builtin:quoter": (8192,) * 2}
    assert client.models.retrieve("demo").context_length == 8192 - 1300


def test_the_properties_have_their_shape(http):
    told = http.get("/props").json()
    assert PropsReply.model_validate(told).model_dump(mode="json") == told


@pytest.mark.parametrize("route", ["GET /props", "POST /tokenize", "POST /detokenize"])
def test_who_may_not_ask_is_told_nothing_of_the_model(folder, route):
    from support.openai_client import openai_client

    settings = Settings.model_validate({"sigils": {"guest": {"users": [0], "scopes": ["search"]}}})
    method, path = route.split()
    with served(folder, owner=1, settings=settings) as running, openai_client(running.socket) as client:
        answer = client._client.request(method, f"http://localhost{path}", json={"content": "a", "tokens": []})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_permitted")
