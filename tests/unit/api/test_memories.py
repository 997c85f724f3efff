"""Routes of memories: whose they are, which scopes open them, and what is refused."""

import http.client
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from support.served import Served, served

from orchestrator.settings import Settings

NOBODY = 65534


def client_of(running: Served) -> httpx2.Client:
    transport = httpx2.HTTPTransport(uds=str(running.socket), verify=False)
    return httpx2.Client(transport=transport, base_url="http://localhost")


def add(http: httpx2.Client, text: str, **more: object):
    return http.post("/v1/memories", json={"text": text, "codex": "none", **more})


def test_a_memory_is_kept_listed_found_changed_and_forgotten(http: httpx2.Client) -> None:
    made = add(http, "The cache is Redis.").json()["memory"]
    assert [one["id"] for one in http.get("/v1/memories").json()["memories"]] == [made["id"]]
    found = http.post("/v1/memories/search", json={"query": "which cache?"}).json()
    assert ([one["id"] for one in found["memories"]], found["enough"]) == ([made["id"]], True)
    assert http.patch(f"/v1/memories/{made['id'][:4]}", json={"do": "up"}).json()["memory"]["trust"] == 0.55
    assert http.delete(f"/v1/memories/{made['id']}").json() == {"forgotten": made["id"]}
    assert http.get(f"/v1/memories/{made['id']}").status_code == 404


def test_lists_are_chosen_by_kind_codex_and_state(http: httpx2.Client) -> None:
    add(http, "The cache is Redis.")
    add(http, "We chose Redis.", kind="decision")
    add(http, "The port is 1.", codex="demo")
    add(http, "The port is 2.", proposed=True)

    def texts(**chosen: str) -> list[str]:
        return [one["text"] for one in http.get("/v1/memories", params=chosen).json()["memories"]]

    assert texts(kind="decision") == ["We chose Redis."]
    assert texts(codex="demo") == ["The port is 1."]
    assert texts(codex="none", kind="fact") == ["The port is 2.", "The cache is Redis."]
    assert texts(state="proposed") == texts(review="1") == ["The port is 2."]
    (proposal,) = http.get("/v1/memories", params={"state": "proposed"}).json()["memories"]
    assert proposal["source"] == "agent", "who confirms it sees that no person stated it"


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "/v1/memories", {"text": ""}, "text"),
        ("POST", "/v1/memories", {"text": " \n", "codex": "none"}, "empty"),
        ("POST", "/v1/memories", {"text": "x", "codex": "none", "kind": "dream"}, "dream"),
        ("POST", "/v1/memories", {"text": "x", "confidence": 2}, "confidence"),
        ("POST", "/v1/memories", {"text": "x", "created": 1e18}, "created"),
        ("POST", "/v1/memories", {"text": "x", "subject": "x" * 1_001}, "subject"),
        ("POST", "/v1/memories", {"text": "x", "evidence": [{"path": "a.py", "start": 2**70}]}, "evidence.0.start"),
        ("POST", "/v1/memories", {"text": "x", "evidence": [{"path": "a.py", "end": -1}]}, "evidence.0.end"),
        ("POST", "/v1/memories", {"text": "x", "uid": 0}, "uid"),
        ("GET", "/v1/memories?state=asleep", None, "asleep"),
        ("POST", "/v1/memories/search", {"query": "x", "n": 0}, "n"),
    ],
)
def test_what_is_no_request_is_refused_with_its_field(http: httpx2.Client, method, path, body, says) -> None:
    refused = http.request(method, path, json=body) if body is not None else http.request(method, path)
    assert refused.status_code == 400
    assert says in refused.json()["error"]["message"]


@pytest.mark.parametrize("asked", ["a" * 60_000, "%25", "_", "%00"])
def test_what_is_no_id_is_no_memory(http: httpx2.Client, asked: str) -> None:
    add(http, "The cache is Redis.")
    assert http.get(f"/v1/memories/{asked}").status_code == 404


WRITES = (
    ("POST", "/v1/memories", {"text": "x", "codex": "none"}),
    ("POST", "/v1/memories/import", {"memories": []}),
    ("PATCH", "/v1/memories/ab", {"do": "up"}),
    ("DELETE", "/v1/memories/ab", None),
)
READS = (
    ("GET", "/v1/memories", None),
    ("GET", "/v1/memories/ab", None),
    ("GET", "/v1/memories?review=1", None),
    ("POST", "/v1/memories/search", {"query": "x"}),
)


@pytest.mark.parametrize(
    ("scopes", "open_routes", "shut"),
    [(["query"], (), READS + WRITES), (["memory:read"], READS, WRITES), (["memory:write"], WRITES, READS)],
)
def test_without_its_scope_no_route_of_memories_opens(folder: Path, scopes, open_routes, shut) -> None:
    rules = Settings.model_validate({"sigils": {"some": {"users": [os.getuid()], "scopes": scopes}}})
    with served(folder, owner=os.getuid() + 1, settings=rules) as running, client_of(running) as client:
        assert [client.request(verb, path, json=body).status_code for verb, path, body in shut] == [403] * len(shut)
        assert running.service.records.learned.all_of(os.getuid()) == ()
        assert 403 not in [client.request(verb, path, json=body).status_code for verb, path, body in open_routes]


def test_an_identity_is_not_changed_without_admin(folder: Path) -> None:
    rules = Settings.model_validate({"sigils": {"some": {"users": [os.getuid()], "scopes": ["query", "memory:write"]}}})
    with served(folder, owner=os.getuid() + 1, settings=rules) as running, client_of(running) as client:
        before = dict(running.service.texts)
        for body in ({"text": "Obey."}, {"text": "Obey.", "dry_run": True}):
            assert client.put("/v1/identities/lorekeep", json=body).status_code == 403
        assert running.service.texts == before


@contextmanager
def another_user(running: Served) -> Iterator[http.client.HTTPConnection]:
    """A connection that the kernel names another user's."""
    running.socket.parent.chmod(0o755)
    running.socket.chmod(0o666)
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    os.seteuid(NOBODY)  # the kernel notes the effective uid at connect()
    try:
        connection.sock.connect(str(running.socket))
    finally:
        os.seteuid(0)
    try:
        yield connection
    finally:
        connection.close()


def asked(connection: http.client.HTTPConnection, method: str, path: str, body: object = None):
    connection.request(method, path, json.dumps(body) if body is not None else None)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_two_users_at_once_never_see_each_others_memories(folder: Path) -> None:
    rules = Settings.model_validate(
        {"sigils": {"guest": {"users": [NOBODY], "scopes": ["memory:read", "memory:write"]}}}
    )
    with served(folder, settings=rules) as running, client_of(running) as mine, another_user(running) as theirs:
        ids = set()
        for number in range(5):
            ids.add(add(mine, f"My cache {number} is Redis.").json()["memory"]["id"])
            status, reply = asked(theirs, "POST", "/v1/memories", {"text": f"My cache {number} is Redis."})
            assert status == 200
            assert reply["memory"]["id"] not in ids
        _, listed = asked(theirs, "GET", "/v1/memories")
        _, found = asked(theirs, "POST", "/v1/memories/search", {"query": "my cache"})
        assert len(listed["memories"]) == len(found["memories"]) == 5
        assert not ids & {one["id"] for one in (*listed["memories"], *found["memories"])}
        for one in ids:
            for method, body in (("GET", None), ("PATCH", {"do": "retire"}), ("DELETE", None)):
                assert asked(theirs, method, f"/v1/memories/{one}", body)[0] == 404
        assert {one["id"] for one in mine.get("/v1/memories").json()["memories"]} == ids


# -- import


def test_an_import_is_taken_whole_and_tells_what_is_new(http: httpx2.Client) -> None:
    add(http, "The cache is Redis.")
    bodies = [{"text": "the cache is redis"}, {"text": "The port is 1.", "codex": "gone"}]
    assert http.post("/v1/memories/import", json={"memories": bodies}).json() == {"imported": 1, "known": 1}
    assert http.post("/v1/memories/import", json={"memories": bodies}).json() == {"imported": 0, "known": 2}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"text": " "}, "memories.1: the memory is empty"),
        ({"text": "x" * 70_000}, "memories.1: the memory has 70,000 characters"),
        ({"text": "x", "kind": "dream"}, "memories.1: there is no kind 'dream'"),
        ({"text": "x", "state": "core", "kind": "episode"}, "memories.1: a episode is never core"),
        ({"text": "x", "confidence": 3}, "memories.1.confidence"),
    ],
)
def test_of_an_import_with_one_fault_nothing_is_kept_and_its_place_is_named(folder: Path, bad, says) -> None:
    with served(folder, max_body=1 << 20) as running, client_of(running) as client:
        refused = client.post("/v1/memories/import", json={"memories": [{"text": "The cache is Redis."}, bad]})
        assert refused.status_code == 400
        assert says in refused.json()["error"]["message"]
        assert client.get("/v1/memories").json()["memories"] == []


def test_an_import_that_contradicts_what_stands_is_superseded_in_any_order(http: httpx2.Client) -> None:
    about = {"subject": "cache", "attribute": "engine"}
    stands = add(http, "The cache is Redis.", **about).json()["memory"]["id"]
    http.post("/v1/memories/import", json={"memories": [{"text": "The cache is Memcached.", **about}]})
    states = {one["text"]: (one["state"], one["successor"]) for one in http.get("/v1/memories").json()["memories"]}
    assert states == {"The cache is Redis.": ("new", ""), "The cache is Memcached.": ("superseded", stands)}


def test_a_superseded_fact_that_is_read_first_still_finds_its_successor(http: httpx2.Client) -> None:
    about = {"subject": "cache", "attribute": "engine"}
    old = {"text": "The cache is Memcached.", "state": "superseded", **about}
    new = {"text": "The cache is Redis.", "state": "confirmed", **about}
    http.post("/v1/memories/import", json={"memories": [old, new]})
    rows = {one["text"]: one for one in http.get("/v1/memories").json()["memories"]}
    assert rows["The cache is Memcached."]["successor"] == rows["The cache is Redis."]["id"]
