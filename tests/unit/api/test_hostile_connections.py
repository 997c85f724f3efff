"""Connections that say nothing, too much or nonsense cost nobody else his answer."""

import contextlib
import json
import logging
import os
import resource
import socket
import threading
from http.client import HTTPResponse
from pathlib import Path

import httpx2
import pytest
from support.served import served
from support.waiting import SOON

from orchestrator.api import http
from orchestrator.api import server as serving
from orchestrator.api.server import Complaint, most_connections

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def raw(address, sent, wait_s=20.0):
    """All that is answered until the connection ends."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as connection:
        connection.settimeout(wait_s)
        connection.connect(address)
        with contextlib.suppress(OSError):  # refused before all of it was sent
            connection.sendall(sent)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65_536):
                answer += part
        return answer


def refused(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert set(error) == {"type", "code", "message", "hint"}
    return int(head.split()[1]), error["code"]


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"GET /healthz NONSENSE\r\n\r\n", 400, "invalid_request"),
        (b"FOO /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 405, "wrong_method"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nLong: " + b"a" * 100_000 + b"\r\n\r\n", 431, "too_large"),
        (b"GET /" + b"a" * 300_000, 431, "too_large"),
        (b"GET /healthz HTTP/1.1\r\n" + b"A: b\r\n" * 100_000, 431, "too_large"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 16_400 + b"\r\n", 431, "too_large"),
        (b"CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n", 405, "wrong_method"),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400, "invalid_request"),
        (POST + b"zz\r\nno size\r\n0\r\n\r\n", 400, "invalid_request"),
        (POST + b"2\r\n{}\r\nzz\r\n", 400, "invalid_request"),
        (POST + b"2\r\n{}\r\n0\r\n" + b"a: b\r\n" * 30_000, 431, "too_large"),
        (POST + b"2;" + b"a" * 140_000, 431, "too_large"),
        (POST.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n", 400, "invalid_request"),
    ],
    ids=[
        "nonsense",
        "method",
        "header",
        "path",
        "headers",
        "short headers",
        "connect",
        "byte",
        "chunk",
        "next chunk",
        "trailers",
        "extension",
        "coding",
    ],
)
def test_what_is_no_request_is_refused_in_the_shape_of_every_refusal(lorekeep, sent, status, code):
    assert refused(raw(str(lorekeep.socket), sent)) == (status, code)


def test_a_head_right_behind_another_request_ends_the_connection_before_it_is_twice_the_limit(lorekeep):
    asked = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    last = asked[:-2] + b"Connection: close\r\n\r\n"
    assert raw(str(lorekeep.socket), asked + last).count(b"200 OK") == 2
    assert b"200 OK" not in raw(str(lorekeep.socket), asked + last[:-2] + b"Long: " + b"a" * 132_000 + b"\r\n\r\n")


def test_a_head_that_does_not_come_to_its_end_is_given_up(folder, monkeypatch):
    monkeypatch.setattr(serving, "HEAD_S", 0.3)
    with served(folder) as running:
        assert raw(str(running.socket), b"") == b""
        assert refused(raw(str(running.socket), b"GET /healthz HTTP/1.1\r\nHos")) == (408, "invalid_request")


def test_a_connection_that_is_kept_has_the_deadline_for_each_head_and_not_between_them(folder, monkeypatch):
    monkeypatch.setattr(serving, "HEAD_S", 0.3)
    asked = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with served(folder) as running, socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(running.socket))
        for _ in range(2):
            connection.sendall(asked)
            answer = b""
            while not answer.endswith(b"}"):
                part = connection.recv(65_536)
                assert part, "the connection was closed"
                answer += part
            assert raw(str(running.socket), b"") == b""  # one that came later has met its deadline


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/floors"])
def test_a_body_that_pauses_for_ever_is_refused_and_its_connection_ends(folder, monkeypatch, path):
    monkeypatch.setattr(http, "SILENT_S", 0.2)
    with served(folder) as running:
        answer = raw(str(running.socket), f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{{".encode())
    assert refused(answer) == (400, "invalid_request")
    assert b"no more of the body came" in answer


def test_a_body_that_does_not_end_is_given_up_once_its_request_is_answered(folder, monkeypatch):
    monkeypatch.setattr(serving, "HEAD_S", 0.3)
    asked = b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with served(folder) as running:
        for rest in (b"", b"0\r\na: b\r\n", b"2\r\n{}\r\n"):
            assert raw(str(running.socket), asked + rest).endswith(b'{"ok":true}')


def test_half_open_connections_over_tcp_do_not_keep_the_owner_out_of_his_socket(folder, monkeypatch, caplog):
    monkeypatch.setattr(serving, "MOST_TCP", 8)
    with caplog.at_level(logging.WARNING), served(folder, tcp=True) as running, contextlib.ExitStack() as undo:
        host, port = running.tcp.split(":")
        for _ in range(40):
            undo.enter_context(socket.create_connection((host, int(port)), timeout=SOON))
        with httpx2.Client(
            transport=httpx2.HTTPTransport(uds=str(running.socket), verify=False), timeout=SOON
        ) as owner:
            assert owner.get("http://localhost/healthz").json() == {"ok": True}
        undo.close()
        assert b"HTTP/1.1 40" in raw((host, int(port)), b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert len([one for one in caplog.records if "connections are open" in one.message]) == 1
    assert not [one for one in caplog.records if one.exc_info]


def test_without_descriptors_accepting_waits_quietly_and_goes_on(folder, caplog, monkeypatch):
    tried, say = threading.Semaphore(0), Complaint.say
    monkeypatch.setattr(serving, "RETRY_S", 0.01)
    monkeypatch.setattr(Complaint, "say", lambda self, *words: (say(self, *words), tried.release()))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with caplog.at_level(logging.WARNING), served(folder) as running, socket.socket(socket.AF_UNIX) as first:
        raw(str(running.socket), b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (max(int(one.name) for one in Path("/proc/self/fd").iterdir()) + 1, limits[1])
        )
        filled = []
        try:
            with contextlib.suppress(OSError):
                while True:
                    filled.append(os.dup(0))
            first.connect(str(running.socket))
            assert all(tried.acquire(timeout=SOON) for _ in range(3))
        finally:
            for one in filled:
                os.close(one)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        first.settimeout(SOON)
        first.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert first.recv(65_536).startswith(b"HTTP/1.1 200")
    assert len([one for one in caplog.records if "can be accepted" in one.message]) == 1
    assert not [one for one in caplog.records if one.exc_info]


@pytest.mark.parametrize("descriptors", [256, 1024, 65_536])
def test_all_listeners_together_leave_descriptors_for_files(descriptors):
    unix, tcp = most_connections(socket.AF_UNIX, descriptors), most_connections(socket.AF_INET, descriptors)
    assert 0 < tcp < unix
    assert unix + tcp <= descriptors * 3 / 4


def test_a_complaint_is_said_once_in_a_while(caplog):
    complaint = Complaint()
    for _ in range(1000):
        complaint.say("again")
    assert len(caplog.records) == 1


NEXT = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
BODY = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
AMBIGUOUS = {
    "two lengths": b"Content-Length: 2\r\nContent-Length: 70\r\n\r\n{}",
    "one length twice": b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a list of lengths": b"Content-Length: 2, 2\r\n\r\n{}",
    "a length with a sign": b"Content-Length: +2\r\n\r\n{}",
    "a length below 0": b"Content-Length: -1\r\n\r\n{}",
    "a length in hex": b"Content-Length: 0x2\r\n\r\n{}",
    "a length past 64 bits": b"Content-Length: 18446744073709551618\r\n\r\n{}",
    "a length, then chunks": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks, then a length": b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked before another": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "an unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a blank before the colon": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded line": b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a control character": b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "a chunk below 0": b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
    "a chunk of 0x2": b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
    "a chunk past 64 bits": b"Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n",
    "chunks with bare line feeds": b"Transfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n",
}


def test_a_request_behind_one_with_a_clear_length_is_answered(lorekeep):
    assert raw(str(lorekeep.socket), BODY + b"Content-Length: 2\r\n\r\n{}" + NEXT).endswith(b'{"ok":true}')


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_where_two_readers_may_see_two_ends_of_a_request_nothing_behind_it_is_believed(lorekeep, name):
    answer = raw(str(lorekeep.socket), BODY + AMBIGUOUS[name] + NEXT)
    assert (refused(answer), answer.count(b"HTTP/1.1 ")) == ((400, "invalid_request"), 1)


CROWD = 1_000
NEEDED = 2 * (serving.MOST_UNIX + 64) + 512  # both ends of each are this process's, and what else it has open


@pytest.fixture
def descriptors():
    """Enough of them for both ends of a crowd."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < NEEDED:
        pytest.skip(f"ulimit -Hn is {hard}: {NEEDED} descriptors are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, NEEDED), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_clients_are_connected_at_once_and_whoever_is_too_many_waits_for_one_to_leave(
    folder, monkeypatch, descriptors
):
    monkeypatch.setattr(serving, "HEAD_S", 600.0)
    monkeypatch.setattr(serving, "KEEP_ALIVE_S", 600)
    asked = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with served(folder) as running, contextlib.ExitStack() as undo:
        crowd = [undo.enter_context(connected(running.socket)) for _ in range(CROWD)]
        for one in crowd:
            one.sendall(asked)
        assert all(status_of(one) == 200 for one in crowd)
        assert b"HTTP/1.1 200" in raw(str(running.socket), NEXT), "number 1,001"
        full = [undo.enter_context(connected(running.socket)) for _ in range(serving.MOST_UNIX - CROWD)]
        full[-1].sendall(asked)
        assert status_of(full[-1]) == 200
        late = undo.enter_context(connected(running.socket))
        late.sendall(asked)
        crowd[0].sendall(asked)
        assert status_of(crowd[0]) == 200, "those inside are served"
        late.setblocking(False)
        with pytest.raises(BlockingIOError):
            late.recv(1)
        late.settimeout(SOON)
        crowd[1].close()
        assert status_of(late) == 200


def status_of(connection):
    """Of its next answer, once all of it has come."""
    with HTTPResponse(connection) as reply:
        reply.begin()
        reply.read()
        return reply.status


def connected(path):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SOON)
    connection.connect(str(path))
    return connection


def test_who_reads_a_streamed_answer_slowly_stops_nobody_else_and_gets_all_of_it(folder):
    words = [f"w{number}" for number in range(9_000)]  # 2 MB of events, more than a socket and the server hold
    body = json.dumps({"messages": [{"role": "user", "content": " ".join(words)}], "stream": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    sent = head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with served(folder) as running, connected(running.socket) as slow:
        slow.sendall(sent)
        running.wait_for(running.service.begun)
        quick = json.dumps({"messages": [{"role": "user", "content": "hello there"}]}).encode()
        other = head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(quick) + quick
        for _ in range(3):
            assert b'"content":"hello there ' in raw(str(running.socket), other).replace(b'": "', b'":"')
        assert running.app.state.gate.inside == 1, "the slow one is not through"
        came = b""
        while part := slow.recv(65_536):
            came += part
    told = [json.loads(line[6:]) for line in came.replace(b"\r\n", b"\n").split(b"\n") if line.startswith(b"data: {")]
    said = "".join(one["choices"][0]["delta"].get("content") or "" for one in told if one["choices"])
    assert said.split() == words
