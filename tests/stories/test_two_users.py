"""Two users of one daemon: nothing that one of them has is found, read, changed or shown to a model by the other."""

import json
import os
from collections.abc import Mapping
from typing import Any

import pytest
from private_daemon import PrivateDaemon
from support.house import living, reply
from support.users import reply_to

from orchestrator.api.app import routes

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


def theirs(
    daemon: PrivateDaemon, method: str, path: str, body: Mapping[str, Any] | None = None, *, head: bool = False
) -> tuple[int, Any]:
    """The status and the reply that the other user gets; with `head` the first event of an endless one."""
    return reply_to(NOBODY, daemon.socket, method, path, body, head=head)


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
    code = house.folder / f"{SECRET}s"
    code.mkdir()
    (code / f"{SECRET}.py").write_text(f"def fly_{SECRET}():\n    return '{SECRET} answers'\n")
    assert house.lore("load", code, "--wait").returncode == 0
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


CODEX = f"{SECRET}s"
ASKED = {"model": f"lore/{CODEX}", "messages": [{"role": "user", "content": "fly?"}], "max_completion_tokens": 4}
FED = {"model": "lore", "messages": [{"role": "user", "content": "fly?"}], "max_completion_tokens": 4}
FOUND, REFUSED, FORBIDDEN, WRONG = (200,), (404,), (403,), (400,)
EACH_ROUTE = {
    ("POST", "/v1/chat/completions"): (ASKED, REFUSED),
    ("POST", "/v1/plan"): (ASKED, REFUSED),
    ("POST", "/v1/embeddings"): ({"model": "m", "input": ["fly"]}, REFUSED),
    ("GET", "/v1/models"): (None, FOUND),
    ("POST", "/v1/responses"): ({"model": f"lore/{CODEX}", "input": "fly?"}, REFUSED),
    ("POST", "/v1/completions"): ({"model": "lore", "prompt": "fly", "max_tokens": 2}, FOUND),
    ("GET", "/props"): (None, FOUND),
    ("POST", "/tokenize"): ({"content": "fly"}, FOUND),
    ("POST", "/detokenize"): ({"tokens": [1]}, FOUND),
    ("GET", "/v1/identities"): (None, FOUND),
    ("PUT", "/v1/identities"): ({"name": "house", "dry_run": True}, FORBIDDEN),
    ("GET", "/v1/identities/{name}"): (None, (200, 404)),
    ("POST", "/v1/identities/{name}/condense"): (None, FORBIDDEN),
    ("PUT", "/v1/identities/{name}"): ({"text": "x", "dry_run": True}, FORBIDDEN),
    ("GET", "/v1/memories"): (None, FOUND),
    ("POST", "/v1/memories"): ({"text": "It flies.", "codex": CODEX}, REFUSED),
    ("POST", "/v1/memories/import"): ({"memories": []}, FOUND),
    ("POST", "/v1/memories/search"): ({"query": "cache", "codex": CODEX}, REFUSED),
    ("GET", "/v1/memories/{name}"): (None, REFUSED),
    ("PATCH", "/v1/memories/{name}"): ({"do": "retire"}, REFUSED),
    ("DELETE", "/v1/memories/{name}"): (None, REFUSED),
    ("GET", "/v1/stats/memory"): (None, FOUND),
    ("GET", "/v1/traces"): (None, FOUND),
    ("GET", "/v1/traces/{name}"): (None, REFUSED),
    ("GET", "/v1/traces/{name}/diff"): (None, WRONG),
    ("POST", "/v1/traces/{name}/feedback"): ({"vote": "up"}, REFUSED),
    ("GET", "/v1/stats/relevance"): (None, FOUND),
    ("GET", "/v1/models/local"): (None, FOUND),
    ("GET", "/v1/models/local/{name:path}"): (None, REFUSED),
    ("GET", "/v1/models/{name:path}"): (None, REFUSED),
    ("PUT", "/v1/model"): ({"model": "builtin:quoter"}, FORBIDDEN),
    ("POST", "/v1/model/measure"): ({"codex": CODEX}, REFUSED),
    ("GET", "/v1/model/context"): (None, FOUND),
    ("POST", "/v1/model/context"): ({}, FORBIDDEN),
    ("POST", "/v1/codices"): ({"path": "/home", "name": CODEX}, FORBIDDEN),
    ("POST", "/v1/sent"): ({"name": CODEX, "files": []}, FOUND),
    ("POST", "/v1/sent/{name}/files"): ({}, WRONG),
    ("POST", "/v1/sent/{name}/changed"): (None, REFUSED),
    ("GET", "/v1/codices"): (None, FOUND),
    ("GET", "/v1/codices/{name}"): (None, REFUSED),
    ("GET", "/v1/codices/{name}/map"): (None, REFUSED),
    ("POST", "/v1/strategy"): ({"char_count": 10, "query": "fly?"}, FOUND),
    ("POST", "/v1/read"): ({"codex": CODEX, "path": "a.py"}, REFUSED),
    ("DELETE", "/v1/codices/{name}"): (None, REFUSED),
    ("GET", "/v1/codices/{name}/floor"): (None, FORBIDDEN),
    ("POST", "/v1/floors"): ({}, FORBIDDEN),
    ("POST", "/v1/codices/{name}/reload"): (None, REFUSED),
    ("POST", "/v1/codices/{name}/cancel"): (None, REFUSED),
    ("POST", "/v1/search"): ({"query": "fly", "codex": CODEX}, REFUSED),
    ("POST", "/v1/symbols"): ({"codex": CODEX, "name": "fly", "what": "definition"}, REFUSED),
    ("GET", "/v1/sessions"): (None, FOUND),
    ("POST", "/v1/sessions/search"): ({"query": "cache"}, FOUND),
    ("GET", "/v1/sessions/{name}"): (None, REFUSED),
    ("PATCH", "/v1/sessions/{name}"): ({"name": "mine"}, REFUSED),
    ("DELETE", "/v1/sessions/{name}"): (None, REFUSED),
    ("GET", "/v1/kept"): (None, FOUND),
    ("DELETE", "/v1/kept/{name}"): (None, REFUSED),
    ("POST", "/v1/pause"): ({}, FORBIDDEN),
    ("POST", "/v1/resume"): (None, FORBIDDEN),
    ("GET", "/v1/status"): (None, FOUND),
    ("GET", "/v1/stats/cache"): (None, FOUND),
    ("GET", "/v1/engine"): (None, FOUND),
    ("GET", "/v1/codices/{name}/files"): (None, REFUSED),
    ("GET", "/openapi.json"): (None, FOUND),
    ("GET", "/v1/stats/clients"): (None, FOUND),
    ("GET", "/v1/events"): (None, FOUND),
    ("GET", "/metrics"): (None, FOUND),
    ("GET", "/health"): (None, FOUND),
    ("GET", "/healthz"): (None, FOUND),
    ("GET", "/readyz"): (None, FOUND),
}
"""What another user sends to each route, and which status it may have. `{name}` becomes the name of the owner's codex."""


def test_each_route_there_is_has_its_row() -> None:
    assert set(EACH_ROUTE) == {(one.method, one.path) for one in routes}


@pytest.mark.parametrize(("method", "path"), EACH_ROUTE)
def test_no_route_tells_another_user_what_the_owner_has(house, mine, method, path) -> None:
    """The name is a right guess: the reply may hold it where the request did, and nothing else of the owner's."""
    body, statuses = EACH_ROUTE[method, path]
    place = path.replace("{name:path}", "{name}").format(name=CODEX)
    status, told = theirs(house, method, place, body, head=path == "/v1/events")
    assert status in statuses, told
    sent = f"{place} {json.dumps(body)}"
    assert SECRET not in (told.replace(CODEX, "") if CODEX in sent else told), told
    assert mine["trace"] not in told
    assert mine["memory"] not in told
    assert str(house.folder / CODEX) not in told


def test_a_name_that_is_nearly_right_is_not_helped(house, mine) -> None:
    for path in (f"/v1/codices/{CODEX[:-1]}", f"/v1/models/lore/{CODEX[:-1]}", f"/v1/sessions/{CODEX[:-1]}"):
        status, told = theirs(house, "GET", path)
        assert (status, CODEX in told) == (404, False), told


def test_the_owners_codex_is_not_the_only_one_of_another_user(house, mine) -> None:
    """Neither by being the only one, nor by holding the working directory."""
    asked = {**FED, "lore": {"client": {"cwd": str(house.folder / CODEX)}}, "prompt": True}
    status, told = theirs(house, "POST", "/v1/plan", asked)
    assert (status, SECRET in told.replace(str(house.folder / CODEX), "")) == (200, False), told


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
