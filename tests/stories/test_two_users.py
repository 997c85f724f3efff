"""Two users of one daemon: nothing that one of them has is found, read, changed or shown to a model by the other."""

import http.client
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import pytest
from private_daemon import PrivateDaemon
from support.house import living, reply

NOBODY = 65534
GUEST = """
[sigils.guest]
users = ["nobody"]
scopes = ["query", "search", "codex:read", "codex:write", "memory:read", "memory:write"]
"""
SECRET = "zeppelin"

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture(scope="module")
def house(models):
    with living(models, GUEST) as daemon:
        for folder in (daemon.folder, daemon.socket.parent):
            folder.chmod(0o711)
        daemon.socket.chmod(0o666)
        yield daemon


@contextmanager
def as_another_user(daemon: PrivateDaemon) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection("localhost", timeout=60)) as connection:
        connection.sock = socket.socket(socket.AF_UNIX)
        os.seteuid(NOBODY)  # the kernel notes the effective uid at connect()
        try:
            connection.sock.connect(str(daemon.socket))
        finally:
            os.seteuid(0)
        yield connection


def theirs(daemon: PrivateDaemon, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
    """The status and the reply that the other user gets."""
    with as_another_user(daemon) as connection:
        sent = {} if body is None else {"content-type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def chat(*said: str, **lore: Any) -> dict[str, Any]:
    """A request: what the user and the model said in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(said)]
    return {"model": "lore", "messages": messages, "max_completion_tokens": 4, "lore": {"codex": "none", **lore}}


@pytest.fixture(scope="module")
def mine(house):
    """What the owner has: memories of each place in a prompt, a session, a trace."""
    for words in (
        (f"The {SECRET} cache is Redis.",),
        (f"Never sell the {SECRET}.", "--kind", "censor"),
        (f"Feed the {SECRET}.", "--list", "tasks"),
        (f"Works at {SECRET} Ltd.", "--about", "me", "--attribute", "trait:work"),
    ):
        house.json("memory", "add", *words)
    lore = reply(house, "/v1/chat/completions", chat(f"what is the {SECRET} cache?", session="talk"))["lore"]
    assert len(lore["memories"]) == 4
    return {"trace": lore["trace"], "memory": lore["memories"][0]["id"]}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/memories"),
        ("GET", "/v1/memories?review=1"),
        ("GET", "/v1/sessions"),
        ("GET", "/v1/traces"),
        ("GET", "/v1/stats/relevance"),
        ("GET", "/v1/status"),
        ("GET", "/metrics"),
    ],
)
def test_no_list_and_no_figure_of_another_user_tells_anything(house, mine, method, path) -> None:
    status, told = theirs(house, method, path)
    assert status == 200
    assert SECRET not in told
    assert mine["trace"] not in told
    assert "lorekeep_memory_relevance" not in told


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/memories/{memory}", None),
        ("PATCH", "/v1/memories/{memory}", {"do": "retire"}),
        ("DELETE", "/v1/memories/{memory}", None),
        ("GET", "/v1/sessions/talk", None),
        ("PATCH", "/v1/sessions/talk", {"name": "taken"}),
        ("DELETE", "/v1/sessions/talk", None),
        ("GET", "/v1/traces/{trace}?prompt=1", None),
        ("GET", "/v1/traces/last", None),
        ("GET", "/v1/traces/{trace}/diff?to={trace}", None),
        ("POST", "/v1/traces/{trace}/feedback", {"vote": "down", "note": "no"}),
    ],
)
def test_what_is_named_rightly_is_not_there_for_another_user(house, mine, method, path, body) -> None:
    status, told = theirs(house, method, path.format(**mine), body)
    assert (status, SECRET in told) == (404, False), told


@pytest.mark.parametrize("path", ["/v1/memories/search", "/v1/sessions/search"])
def test_no_search_of_another_user_finds_it(house, mine, path) -> None:
    status, told = theirs(house, "POST", path, {"query": SECRET})
    assert (status, [] in json.loads(told).values(), SECRET in told) == (200, True, False)


@pytest.mark.parametrize("session", ["talk", ""])
def test_no_prompt_of_another_user_has_it(house, mine, session) -> None:
    """Neither by the name of the session, nor by going on with its messages."""
    before = (f"what is the {SECRET} cache?", "Redis")
    said = ("what is the cache?",) if session else (*before, "what is the cache?")
    status, told = theirs(
        house, "POST", "/v1/plan", {**chat(*said, **({"session": session} if session else {})), "prompt": True}
    )
    assert status == 200, told
    plan = json.loads(told)
    assert plan["memories"] == []
    for memory in (f"Never sell the {SECRET}", f"Feed the {SECRET}", f"{SECRET} Ltd", f"The {SECRET} cache"):
        assert memory not in plan["text"]


def test_what_another_user_purges_and_drops_is_their_own(house, mine) -> None:
    theirs(house, "POST", "/v1/memories", {"text": "Theirs.", "codex": "none"})
    theirs(house, "POST", "/v1/chat/completions", chat("what is theirs?", session="talk"))
    kept = json.loads(theirs(house, "GET", "/v1/kept")[1])["kept"]
    assert {one["name"]: one["count"] for one in kept} == {"traces": 1, "sessions": 1}
    for name in ("traces", "sessions"):
        assert theirs(house, "DELETE", f"/v1/kept/{name}")[0] == 200
    assert theirs(house, "DELETE", "/v1/kept/cache")[0] == 403
    assert len(house.json("memory", "list")["memories"]) == 4
    assert house.json("trace", "show", mine["trace"])["trace"]["session"] == "talk"
    assert [one["name"] for one in house.json("session", "list")["sessions"]] == ["talk"]
