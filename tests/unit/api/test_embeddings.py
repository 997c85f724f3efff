"""POST /v1/embeddings, by the unmodified OpenAI client and by hand."""

import openai
import pytest


def test_openais_client_gets_a_vector_for_each_text_in_order(client):
    found = client.embeddings.create(model="any", input=["right", "up"])
    assert [one.embedding for one in found.data] == [[1.0, 0.0], [0.0, 1.0]]
    assert [one.index for one in found.data] == [0, 1]
    assert (found.model, found.usage.prompt_tokens, found.usage.total_tokens) == ("small", 7, 7)


def test_floats_are_what_the_packed_form_says(client):
    packed = client.embeddings.create(model="any", input="up")
    plain = client.embeddings.create(model="any", input="up", encoding_format="float")
    assert packed.data[0].embedding == plain.data[0].embedding == [0.0, 1.0]


def test_what_did_not_fit_is_told_per_text(http):
    body = http.post("/v1/embeddings", json={"input": ["short", "longer than eight"]}).json()
    assert body["lore"] == {"cut": [0, 9]}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"input": ""},
        {"input": []},
        {"input": ["a", ""]},
        {"input": [1, 2]},
        {"input": "a", "encoding_format": "int8"},
        {"input": ["a"] * 2049},
        {"input": "a", "dimensions": 7},
    ],
)
def test_what_cannot_be_embedded_is_refused(http, body):
    reply = http.post("/v1/embeddings", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "input: is empty"),
        ([], "input: is empty"),
        (["a", ""], "input.1: is empty"),
        (["a"] * 2049, "input: too many: 2049 of at most 2048"),
        (["a", 2], "input.1: should be text"),
        ([1, 2], "input.0: should be text"),
        ({}, "input: should be text"),
    ],
)
def test_what_is_wrong_with_the_texts_is_said_as_it_is(http, given, said):
    assert http.post("/v1/embeddings", json={"input": given}).json()["error"]["message"].startswith(said)


def test_without_a_model_the_setting_is_named(client):
    with pytest.raises(openai.NotFoundError, match=r"no embedding model is configured"):
        client.embeddings.create(model="any", input=["none"])
