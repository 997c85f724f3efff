"""Who may do what: the kernel names the peer, configuration its scopes, everything else is denied."""

import http.client
import json
import os
import socket

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.served import served

from orchestrator.api.sigils import Peer, Rule, Sigils, peer_of, token_hash
from orchestrator.settings import Settings, SettingsError

OWNER, STRANGER = 1000, 1001
TOKEN = "a-long-random-token"


def test_the_kernel_names_the_process_at_the_other_end():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = peer_of(ours)
    assert (peer.pid, peer.uid, peer.gid) == (os.getpid(), os.getuid(), os.getgid())
    assert set(peer.groups) == set(os.getgroups())


def test_tcp_connections_have_no_peer():
    with socket.socket(socket.AF_INET) as tcp:
        assert peer_of(tcp) is None


peers = st.builds(
    Peer, pid=st.just(1), uid=st.integers(0, 5), gid=st.integers(0, 5), groups=st.lists(st.integers(0, 5)).map(tuple)
)
ids = st.frozensets(st.integers(0, 5), max_size=2)
rules = st.lists(
    st.builds(
        Rule,
        sigil=st.text("abc", min_size=1, max_size=3),
        uids=ids,
        gids=ids,
        scopes=st.frozensets(st.sampled_from(["query", "search"])),
    ),
    max_size=4,
).map(tuple)


@given(peers, rules)
def test_a_peer_that_no_rule_names_has_no_scope(peer, rules):
    sigils = Sigils(owner=99, rules=rules)
    if not any(peer.uid in rule.uids or rule.gids & {peer.gid, *peer.groups} for rule in rules):
        assert sigils.principal(peer).scopes == frozenset()


@given(peers, peers, rules)
def test_a_rule_for_one_peer_changes_nothing_for_another(peer, other, rules):
    added = Rule("added", frozenset({other.uid}), frozenset(), frozenset({"admin"}))
    if peer.uid != other.uid:
        before, after = Sigils(99, rules), Sigils(99, (added, *rules))
        assert before.principal(peer) == after.principal(peer)


def test_the_owner_may_everything_and_a_user_s_rule_comes_before_a_group_s():
    group = Rule("team", frozenset(), frozenset({5}), frozenset({"search"}))
    user = Rule("friend", frozenset({STRANGER}), frozenset(), frozenset({"query"}))
    sigils = Sigils(OWNER, (group, user))
    assert sigils.principal(Peer(1, OWNER, 1)).may("codex:write")
    friend = sigils.principal(Peer(1, STRANGER, 5))
    assert (friend.sigil, friend.may("query"), friend.may("search")) == ("friend", True, False)


@pytest.mark.parametrize(
    "settings",
    [
        {"sigils": {"x": {"users": ["no-such-user-here"]}}},
        {"sigils": {"x": {"groups": ["no-such-group-here"]}}},
        {"sigils": {"owner": {"users": [1]}}},
        {"tokens": {"t": {"sha256": "0" * 64, "sigil": "unknown"}}},
    ],
)
def test_a_rule_about_nobody_is_refused_at_start(settings):
    with pytest.raises(SettingsError):
        Sigils.of(Settings.model_validate(settings), OWNER)


def client_of(running, **options):
    transport = httpx2.HTTPTransport(uds=str(running.socket), verify=False)
    return httpx2.Client(transport=transport, base_url="http://localhost", **options)


def test_a_stranger_is_refused_everything_but_the_daemon_s_health(folder):
    with served(folder, owner=os.getuid() + 1) as running, client_of(running) as client:
        assert client.get("/healthz").status_code == 200
        body = {"messages": [{"role": "user", "content": "x"}]}
        for method, route in [("POST", "/v1/chat/completions"), ("POST", "/v1/plan"), ("GET", "/v1/status")]:
            refused = client.request(method, route, json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_permitted")
        assert client.post("/v1/codices", json={"path": "/x"}).status_code == 403
        assert client.get("/v1/sessions").status_code == 403
        assert running.service.asked == []


def test_scopes_open_their_routes_and_no_other(folder):
    rules = Settings.model_validate(
        {"sigils": {"reader": {"users": [os.getuid()], "scopes": ["search", "codex:read"]}}}
    )
    with served(folder, owner=os.getuid() + 1, settings=rules) as running, client_of(running) as client:
        assert client.post("/v1/search", json={"query": "x"}).status_code == 200
        assert client.get("/v1/codices").status_code == 200
        assert client.get("/v1/status").json()["engine"]["reason"] == "reader"
        assert client.delete("/v1/codices/demo").status_code == 403
        assert client.post("/v1/chat/completions", json={}).status_code == 403


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_s_process_is_recognised_as_that_user(folder):
    nobody = 65534
    rules = Settings.model_validate({"sigils": {"guest": {"users": [nobody], "scopes": ["query"]}}})
    with served(folder, settings=rules) as running:
        folder.chmod(0o755)
        running.socket.chmod(0o666)
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        os.seteuid(nobody)  # the kernel notes the effective uid at connect()
        try:
            connection.sock.connect(str(running.socket))
        finally:
            os.seteuid(0)
        connection.request("GET", "/v1/status")
        assert json.loads(connection.getresponse().read())["engine"]["reason"] == "guest"
        connection.close()


def with_token():
    return Settings.model_validate({"tokens": {"t": {"sha256": token_hash(TOKEN), "sigil": "owner"}}})


def test_tcp_needs_a_token_and_the_right_host(folder):
    with served(folder, settings=with_token(), tcp=True) as running:
        url = f"http://{running.tcp}"
        assert httpx2.get(f"{url}/v1/status").status_code == 401
        assert httpx2.get(f"{url}/healthz").status_code == 401
        wrong = {"authorization": "Bearer wrong"}
        assert httpx2.get(f"{url}/v1/status", headers=wrong).status_code == 401
        right = {"authorization": f"Bearer {TOKEN}"}
        assert httpx2.get(f"{url}/v1/status", headers=right).status_code == 200
        assert httpx2.get(f"{url}/v1/status", headers={**right, "host": "evil.example"}).status_code == 403


def test_a_second_host_is_refused_for_a_proxy_may_go_by_it(folder):
    with served(folder, settings=with_token(), tcp=True) as running:
        connection = http.client.HTTPConnection(running.tcp)
        connection.putrequest("GET", "/v1/status")  # which names the right host
        connection.putheader("Host", "evil.example")
        connection.putheader("Authorization", f"Bearer {TOKEN}")
        connection.endheaders()
        assert connection.getresponse().status == 403
        connection.close()


def test_a_token_s_holder_is_no_user_of_this_machine():
    holder = Sigils.of(with_token(), OWNER).bearer(TOKEN)
    assert holder.uid > 0xFFFFFFFF
    assert holder.may("query")
