"""OpenAI's client, unmodified, over the Unix socket and over TCP: every kind of question, streamed and whole."""

import hashlib
import tempfile
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest
from support.openai_client import openai_client
from support.served import served

from orchestrator.settings import Settings

TOKEN = "t" * 43
RULES = {
    "sigils": {"editor": {"scopes": ["query"]}},
    "tokens": {"zed": {"sha256": hashlib.sha256(TOKEN.encode()).hexdigest(), "sigil": "editor"}},
}
SAID = "one two "


@pytest.fixture(scope="module")
def both():
    with (
        tempfile.TemporaryDirectory(prefix="lore-") as name,
        served(Path(name), settings=Settings.model_validate(RULES), tcp=True) as running,
    ):
        yield running


@contextmanager
def client_of(running, transport, token=TOKEN):
    running.renew()
    if transport == "socket":
        with openai_client(running.socket) as client:
            yield client
    else:
        with openai.OpenAI(base_url=f"http://{running.tcp}/v1", api_key=token, max_retries=0) as client:
            yield client


def chat(client):
    messages = [{"role": "user", "content": "one two"}]
    whole = client.chat.completions.create(model="lore/demo", messages=messages).choices[0].message.content
    chunks = client.chat.completions.create(model="lore/demo", messages=messages, stream=True)
    return whole, "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def completions(client):
    whole = client.completions.create(model="lore", prompt="one two").choices[0].text
    chunks = client.completions.create(model="lore", prompt="one two", stream=True)
    return whole.lower(), "".join(chunk.choices[0].text for chunk in chunks).lower()


def responses(client):
    first = client.responses.create(model="lore/demo", input="one two")
    with client.responses.stream(model="lore/demo", input="one two", previous_response_id=first.id) as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert stream.get_final_response().previous_response_id == first.id
    return first.output_text, said


@pytest.mark.parametrize("transport", ["socket", "tcp"])
@pytest.mark.parametrize("asking", [chat, completions, responses], ids=lambda one: one.__name__)
def test_the_client_says_the_same_streamed_and_whole_on_either_way(both, transport, asking):
    with client_of(both, transport) as client:
        assert asking(client) == (SAID, SAID)


@pytest.mark.parametrize("asking", [chat, completions, responses], ids=lambda one: one.__name__)
def test_without_a_token_nothing_is_answered_over_tcp(both, asking):
    with client_of(both, "tcp", token="wrong") as client:
        with pytest.raises(openai.AuthenticationError):
            asking(client)
        assert both.service.asked == []
        assert both.service.texts_asked == []
