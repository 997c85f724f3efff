"""What editors and other clients send is taken as they send it, whatever of it means nothing here."""

import json

import pytest
from support.client_requests import CLIENTS, TALK, TYPED
from support.served import served

from orchestrator.settings import Settings

QUESTION = "what does step_1 do?"
INTENDED = {"frequency_penalty", "prompt_cache_key", "reasoning_effort", "logit_bias"}


def streamed(http, route, body):
    """The events of a stream, as every client of server-sent events reads them."""
    with http.stream("POST", route, json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    assert (response.status_code, lines[-1]) == (200, "[DONE]"), lines
    return [json.loads(line) for line in lines[:-1]]


@pytest.fixture(scope="module")
def anyone(tmp_path_factory):
    """A daemon that answers also models that it does not have."""
    import tempfile
    from pathlib import Path

    settings = Settings.model_validate({"clients": {"unknown_model": "lore/demo"}})
    with tempfile.TemporaryDirectory(prefix="lore-") as name, served(Path(name), settings=settings) as running:
        yield running


@pytest.fixture
def anyones(anyone):
    import httpx2

    anyone.renew()
    transport = httpx2.HTTPTransport(uds=str(anyone.socket), verify=False)
    with httpx2.Client(transport=transport, base_url="http://localhost") as http:
        yield http


@pytest.mark.parametrize("model", ["lore/demo", "demo", "Demo:latest", "gpt-4o"])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda one: one.__name__)
def test_a_client_is_answered_with_a_long_talk_and_a_large_system_prompt(anyones, anyone, client, model):
    body = client(model, QUESTION, TALK)
    events = streamed(anyones, "/v1/chat/completions", body)
    (ask,) = anyone.service.asked
    assert ask.codex.casefold() == "demo"
    said = [one for one in ask.messages if one.role != "system"]
    assert said[-1].content.endswith(QUESTION)
    assert len(said) >= 2 * len(TALK) + 1
    assert max(len(one.content) for one in ask.messages if one.role == "system") > 10_000
    assert events[-1]["usage"]["total_tokens"] == 105
    told = ", ".join(one for one in ask.notices if one.startswith("ignored"))
    assert all((name in told) == bool(body.get(name)) for name in INTENDED), told


@pytest.mark.parametrize("client", CLIENTS, ids=lambda one: one.__name__)
def test_the_same_without_a_stream(anyones, client):
    body = {key: value for key, value in client("lore/demo", QUESTION, ()).items() if not key.startswith("stream")}
    answer = anyones.post("/v1/chat/completions", json=body).json()
    assert (answer["choices"][0]["finish_reason"], answer["usage"]["total_tokens"]) == ("stop", 105)


def test_autocompletion_comes_as_text_with_the_tokens_in_it(anyones, anyone):
    events = streamed(anyones, "/v1/completions", {"model": "demo", **TYPED})
    (ask,) = anyone.service.texts_asked
    assert (ask.prompt, ask.stop) == (TYPED["prompt"], tuple(TYPED["stop"]))
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
