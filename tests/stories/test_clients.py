"""Each known client against a real daemon: a large system prompt, a talk of fifty messages, and the next question."""

import json

import pytest
from support.client_requests import CLIENTS, TALK
from support.house import CODES, codebase, lent, over_socket, question


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


def asked(house, body):
    """What was said, and the lore object of the last chunk."""
    said, lore = "", {}
    with over_socket(house) as http, http.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line.removeprefix("data: "))
                said += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
                lore = chunk.get("lore") or lore
    return said, lore


@pytest.mark.parametrize("client", CLIENTS, ids=lambda one: one.__name__)
def test_a_client_is_answered_right_and_its_next_question_computes_its_own_words(house, client):
    body = {**client("lore/vaults", question("zebra"), TALK), "max_tokens": 10, "max_completion_tokens": 10}
    said, first = asked(house, body)
    assert said.strip().startswith(CODES["zebra"])
    assert first["prompt"]["tokens"] > 3000
    talk = (*TALK, (question("zebra"), said))
    said, second = asked(house, {**body, "messages": client("lore/vaults", question("walrus"), talk)["messages"]})
    assert said.strip().startswith(CODES["walrus"])
    assert second["prompt"]["computed"] < second["prompt"]["tokens"] / 4
