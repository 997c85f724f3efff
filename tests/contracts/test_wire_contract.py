"""The daemon's replies have the shapes that the reference tells of: no field is missing there, and none is made up."""

import json

import pytest
from support.house import codebase, lent, over_socket, question
from support.wire_shapes import unlike

from orchestrator.api.app import routes
from orchestrator.api.http import EVERY, OF_BODIES
from orchestrator.wire.faults import CODES
from orchestrator.wire.replies import ErrorReply

ROUTES = {(one.method, one.path): one for one in routes}
ASK = {
    "model": "lore/vaults",
    "messages": [{"role": "user", "content": question("zebra")}],
    "max_tokens": 5,
    "lore": {"session": "", "mode": "debug"},
}


@pytest.fixture(scope="module")
def http(shared_daemon):
    with (
        lent(shared_daemon) as daemon,
        over_socket(daemon) as client,
    ):
        client.folder = str(codebase(daemon.folder / "vaults"))
        told(client, "POST", "/v1/codices", "/v1/codices", {"path": client.folder, "wait": True})
        assert client.post("/v1/chat/completions", json=ASK).status_code == 200
        yield client


def given(http, method, route, path, body=None):
    """The reply, which has the shape of its route."""
    answer = http.request(method, path, json=body)
    assert answer.status_code == 200, answer.text
    assert unlike(ROUTES[method, route].reply, answer.json()) == []
    return answer.json()


def told(http, method, route, path, body=None):
    """The events of a stream, each of the shape that fits its kind."""
    shapes = ROUTES[method, route].events
    text = http.request(method, path, json=body).text
    assert [line for line in text.splitlines() if line.startswith("data: [")] == [
        f"data: {end}" for end in {shape.ends for shape in shapes} - {""}
    ]
    events = events_of(text)
    assert events
    for event in events:
        assert [] in [unlike(shape, event) for shape in shapes if fits(shape, event)], event
    return events


def fits(shape, event):
    kind = shape.model_fields.get("event")
    return kind is None or event.get("event") in kind.annotation.__args__


def events_of(text):
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_an_answer_a_plan_and_a_search(http):
    given(http, "POST", "/v1/chat/completions", "/v1/chat/completions", ASK)
    given(http, "POST", "/v1/chat/completions", "/v1/chat/completions", {**ASK, "logprobs": True, "model": "lore"})
    given(http, "POST", "/v1/plan", "/v1/plan", {**ASK, "prompt": True})
    given(http, "POST", "/v1/search", "/v1/search", {"query": "vault", "codex": "vaults"})
    told(http, "POST", "/v1/chat/completions", "/v1/chat/completions", {**ASK, "stream": True})
    told(
        http,
        "POST",
        "/v1/chat/completions",
        "/v1/chat/completions",
        {**ASK, "stream": True, "stream_options": {"include_usage": True}},
    )


def test_codices_and_their_loads(http):
    given(http, "GET", "/v1/codices", "/v1/codices")
    given(http, "GET", "/v1/codices/{name}", "/v1/codices/vaults")
    body = {"path": http.folder, "name": "again"}
    assert told(http, "POST", "/v1/codices", "/v1/codices", {**body, "dry_run": True})[-1]["event"] == "loaded"
    told(http, "POST", "/v1/codices", "/v1/codices", body)
    told(http, "POST", "/v1/codices/{name}/reload", "/v1/codices/again/reload")
    given(http, "DELETE", "/v1/codices/{name}", "/v1/codices/again")


def test_models_and_a_change_to_the_one_that_runs(http):
    given(http, "GET", "/v1/models", "/v1/models")
    given(http, "GET", "/v1/models/{name:path}", "/v1/models/lore/vaults")
    for model in given(http, "GET", "/v1/models/local", "/v1/models/local")["models"]:
        given(http, "GET", "/v1/models/local/{name:path}", f"/v1/models/local/{model['id']}")
    given(http, "PUT", "/v1/model", "/v1/model", {"model": "builtin:quoter"})
    told(http, "PUT", "/v1/model", "/v1/model", {"model": "builtin:quoter", "stream": True})


def test_what_the_daemon_tells_of_itself(http):
    for path in ("/v1/status", "/v1/stats/cache", "/healthz", "/readyz"):
        given(http, "GET", path, path)
    with http.stream("GET", "/v1/events") as stream:
        first = next(line for line in stream.iter_lines() if line.startswith("data: "))
    assert unlike(ROUTES["GET", "/v1/events"].events[0], json.loads(first[6:])) == []


def test_conversations(http):
    for session in given(http, "GET", "/v1/sessions", "/v1/sessions")["sessions"]:
        name = session["name"]
        given(http, "GET", "/v1/sessions/{name}", f"/v1/sessions/{name}")
        given(http, "PATCH", "/v1/sessions/{name}", f"/v1/sessions/{name}", {"name": f"{name}-2"})
        given(http, "DELETE", "/v1/sessions/{name}", f"/v1/sessions/{name}-2")


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/v1/chat/completions", {"messages": []}, "invalid_request"),
        ("POST", "/v1/chat/completions", {**ASK, "model": "nope"}, "model_not_found"),
        ("POST", "/v1/chat/completions", {**ASK, "lore": {"identity": "nope"}}, "not_found"),
        ("POST", "/v1/codices/vaults/cancel", None, "not_found"),
        ("POST", "/v1/embeddings", {"input": "x"}, "not_found"),
        ("PUT", "/v1/model", {"model": "nope"}, "not_found"),
        ("GET", "/v1/models/local/nope", None, "not_found"),
    ],
)
def test_refusals_have_their_shape_and_a_code_that_the_route_is_said_to_have(http, method, path, body, code):
    answer = http.request(method, path, json=body)
    assert unlike(ErrorReply, answer.json()) == []
    assert (answer.json()["error"]["code"], answer.status_code) == (code, CODES[code].status)
    route = next(one for one in ROUTES if one[0] == method and same(one[1], path))
    contract = ROUTES[route]
    assert code in (*contract.faults, *EVERY, *(OF_BODIES if contract.body else ()))


def same(route, path):
    parts = route.replace("{name:path}", "{name}").split("/")
    return len(parts) == len(path.split("/")) and all(
        one in ("{name}", other) for one, other in zip(parts, path.split("/"), strict=True)
    )
