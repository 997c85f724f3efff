"""The protocol's lines without a process: what is answered, with which error, and what never is."""

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.mcp_wire import STATELESS, Connection, Offer, Refused

HELLO = {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}


class Job:
    """Work that is done when it is released or left; says what became of it."""

    def __init__(self, result: Callable[[], Any] = dict, *, released: bool = True) -> None:
        self.result = result
        self.go = threading.Event()
        self.left = False
        if released:
            self.go.set()

    def run(self) -> Any:
        self.go.wait()
        return self.result()

    def leave(self) -> None:
        self.left = True
        self.go.set()


def said_by(lines: Iterable[bytes], job: Job | None = None) -> list[Any]:
    """All that a server with one tool writes, in order, until its input has ended."""
    written: list[bytes] = []
    works = {"tools/call": lambda _, __: job or Job()}
    offer = Offer("demo", "1", "how to use it", {"tools/list": {"tools": []}}, works)
    Connection(offer, written.append).serve(lines)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in written)
    return [json.loads(line) for line in written]


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def request(number: Any, method: str, **params: Any) -> bytes:
    return line({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


@pytest.mark.parametrize(
    ("said", "code", "number"),
    [
        (b"not json\n", -32700, None),
        (b"\xff\xfe\n", -32700, None),
        (b"9" * 5_000 + b"\n", -32700, None),
        (b"[" * 100_000 + b"\n", -32700, None),
        (line([]), -32600, None),
        (line([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]), -32600, None),
        (line({"jsonrpc": "1.0", "id": 1, "method": "ping"}), -32600, 1),
        (line({"jsonrpc": "2.0", "id": 1}), -32600, 1),
        (line({"jsonrpc": "2.0", "id": 1, "method": 3}), -32600, 1),
        (line({"jsonrpc": "2.0", "id": None, "method": "ping"}), -32600, None),
        (line({"jsonrpc": "2.0", "id": True, "method": "ping"}), -32600, None),
        (line({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}), -32602, 1),
        (request(1, "tools/list"), -32602, 1),
        (request(1, "initialize"), -32602, 1),
        (request("\ud800", "no/such"), -32601, "\ud800"),
        (request(1, "tools/list", _meta=[3]), -32602, 1),
    ],
)
def test_a_line_that_cannot_be_carried_out_has_the_error_that_json_rpc_names(said, code, number):
    (answer,) = said_by([said])
    assert (answer["error"]["code"], answer["id"]) == (code, number)


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "no/such", "params": 3},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1]}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {}},
    ],
)
def test_a_notification_and_an_answer_are_never_answered(message):
    assert said_by([line(message), b"\n"]) == []


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(
    ["initialize", "ping", "tools/list", "tools/call", "server/discover", "notifications/cancelled"]
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | ANY,
        "id": st.integers() | st.text(max_size=3) | ANY,
        "method": NAMES | ANY,
        "params": st.fixed_dictionaries({}, optional={"_meta": ANY, "protocolVersion": ANY, "requestId": ANY}) | ANY,
    },
)


@given(MESSAGES | ANY)
def test_whatever_is_said_a_request_has_one_answer_and_the_next_is_heard(message):
    answers = said_by([line(HELLO), line(message), request("after", "ping")])
    assert answers[0]["id"] == "hello"
    assert all(answer.keys() in ({"jsonrpc", "id", "error"}, {"jsonrpc", "id", "result"}) for answer in answers)
    assert {"jsonrpc": "2.0", "id": "after", "result": {}} in answers
    asked = isinstance(message, dict) and message.get("jsonrpc") == "2.0" and isinstance(message.get("method"), str)
    if asked:
        assert len(answers) == (3 if "id" in message else 2)


STATELESS_META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def test_a_connection_may_mix_requests_with_and_without_a_handshake():
    lines = [request(1, "tools/list", _meta=STATELESS_META), line(HELLO), request(2, "tools/list")]
    lines += [request(3, "server/discover", _meta=STATELESS_META), request(4, "ping", _meta=STATELESS_META)]
    first, hello, second, about, ping = said_by(lines)
    assert [one["result"].get("resultType") for one in (first, hello, second, about)] == [
        "complete",
        None,
        None,
        "complete",
    ]
    assert about["result"]["supportedVersions"] == [STATELESS]
    assert ping["error"]["code"] == -32601


def test_a_refusal_of_work_is_its_error():
    def refuse() -> None:
        raise Refused(-32603, "no daemon", {"tried": 1})

    _, answer = said_by([line(HELLO), request(1, "tools/call")], Job(refuse))
    assert answer["error"] == {"code": -32603, "message": "no daemon", "data": {"tried": 1}}


def test_a_mistake_of_ours_is_answered_too_and_shown(monkeypatch):
    shown = []
    monkeypatch.setattr(threading, "excepthook", lambda said: shown.append(said.exc_type))
    _, answer = said_by([line(HELLO), request(1, "tools/call")], Job(lambda: {}["missing"]))
    assert answer["error"]["code"] == -32603
    assert shown == [KeyError]


def test_an_id_is_that_of_one_request_at_a_time():
    job = Job(released=False)

    def lines() -> Iterable[bytes]:
        yield line(HELLO)
        yield request(1, "tools/call")
        yield request(1, "tools/call")
        job.go.set()

    _, refused, answer = said_by(lines(), job)
    assert refused["error"]["code"] == -32600
    assert answer["result"] == {}


def test_work_that_is_cancelled_is_left_and_not_answered():
    job = Job(released=False)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert len(said_by([line(HELLO), request(1, "tools/call"), line(cancel)], job)) == 1
    assert job.left


def test_work_that_outlasts_the_input_is_left(monkeypatch):
    monkeypatch.setattr("orchestrator.cli.mcp_wire.GRACE_S", 0.01)
    job = Job(released=False)
    assert len(said_by([line(HELLO), request(1, "tools/call")], job)) == 1
    assert job.left


def test_a_result_of_the_revision_without_a_handshake_says_who_answers_and_that_it_may_not_be_kept():
    (answer,) = said_by([request(1, "tools/list", _meta=STATELESS_META)])
    assert answer["result"] == {
        "tools": [],
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "demo", "version": "1"}},
    }


def test_a_request_of_the_revision_without_a_handshake_names_what_its_client_can():
    (answer,) = said_by([request(1, "tools/list", _meta={"io.modelcontextprotocol/protocolVersion": STATELESS})])
    assert answer["error"]["code"] == -32602
    assert "clientCapabilities" in answer["error"]["message"]
