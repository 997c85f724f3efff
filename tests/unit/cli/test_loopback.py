"""The server of `lore dash`, met by everybody who can connect to 127.0.0.1."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from support.house import until

from orchestrator.cli.loopback import MOST_UNKNOWN, Loopback, PageAnswer, PageRequest, Stream

TOKEN = "the-token"
BEARER = f"Authorization: Bearer {TOKEN}\r\n"
PATIENCE_S = 20


class Running:
    """One that serves in a thread: `/endless` streams, `/large` is 64 MB, all else says what was asked."""

    def __init__(self, **limits: float) -> None:
        self.loopback = Loopback(TOKEN, self.answer, **limits)
        self.loop = asyncio.new_event_loop()
        self.ended = threading.Event()
        self.left = threading.Event()
        started = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(started,))
        self.thread.start()
        assert started.wait(PATIENCE_S)
        self.port = self.loopback.port

    def run(self, started: threading.Event) -> None:
        async def serving() -> None:
            self.stop = asyncio.Event()
            async with await self.loopback.start():
                started.set()
                await self.stop.wait()

        self.loop.run_until_complete(serving())
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    async def answer(self, asked: PageRequest) -> PageAnswer | Stream:
        if asked.parts == ("endless",):
            return Stream(self.endless())
        if asked.parts == ("large",):
            return PageAnswer(200, bytes(64 << 20))
        return PageAnswer(200, repr((asked.parts, dict(asked.query))).encode())

    async def endless(self):
        try:
            while True:
                yield bytes(1 << 20)
        finally:
            self.left.set()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join(PATIENCE_S)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def say(self, text: str) -> bytes:
        """All that comes back until the connection ends."""
        with self.connect() as connection:
            connection.sendall(text.encode("latin-1"))
            return read_all(connection)

    def get(self, target: str = "/", host: str | None = None, headers: str = BEARER, method: str = "GET") -> bytes:
        host = f"127.0.0.1:{self.port}" if host is None else host
        return self.say(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n")


def read_all(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@contextmanager
def serving(**limits: float) -> Iterator[Running]:
    running = Running(**limits)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    with serving() as running:
        yield running


def test_who_knows_the_token_is_answered_in_the_header_or_in_the_address(here):
    said = here.get("/traces/ab?n=3")
    assert status(said) == 200
    assert said.endswith(b"(('traces', 'ab'), {'n': '3'})")
    assert here.get(f"/?token={TOKEN}", headers="").endswith(b"(('',), {})")
    assert status(here.get(host=f"localhost:{here.port}")) == 200


@pytest.mark.parametrize(
    "headers",
    [
        "",
        "Authorization: Bearer \r\n",
        "Authorization: Bearer the-toke\r\n",
        "Authorization: Bearer the-tokens\r\n",
        "Authorization: Basic the-token\r\n",
        "Cookie: token=the-token\r\n",
    ],
)
def test_without_the_token_nothing_is_told(here, headers):
    for target in ("/", "/live", "/traces", "/?token=", "/?token=the-toke", "/?token=%C3%A4", "/nothing"):
        said = here.get(target, headers=headers)
        assert status(said) == 403
        assert b"no valid token" in said


@pytest.mark.parametrize(
    "target",
    [
        "/the-token",
        "/the-token/",
        "/?the-token",
        "/?Token=the-token",
        "/token=the-token",
        "/%3Ftoken=the-token",
        "/traces/the-token?n=3",
    ],
)
def test_a_token_in_the_wrong_place_is_told_where_it_belongs_and_not_shown(here, target):
    said = here.get(target, headers="")
    assert (status(said), b"has to end in /?token=" in said, TOKEN.encode() in said) == (403, True, False)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:PORT", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.nip.io:PORT", ""]
)
def test_a_host_that_is_not_ours_is_refused_also_with_the_token(here, host):
    said = here.get(host=host.replace("PORT", str(here.port)))
    assert (status(said), b"this Host is not served" in said) == (403, True)


@pytest.mark.parametrize(
    "text",
    [
        "GET / HTTP/1.1\r\nHost: HERE\r\nHost: evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : HERE\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HERE\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HERE\nX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HERE\r\nContent-Length: 5\r\n\r\nabcde",
        "GET / HTTP/1.1\r\nHost: HERE\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HERE\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HERE\r\nX: \x00\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HERE\r\nX: \xff\r\n\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nHost: HERE\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: HERE\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: HERE\r\n\r\n",
        "GET /\r\n\r\n",
        "\r\n\r\n",
        "\x16\x03\x01\r\n\r\n",
    ],
)
def test_a_request_that_two_programs_could_read_in_two_ways_is_refused(here, text):
    said = here.say(text.replace("HERE", f"127.0.0.1:{here.port}").replace("\r\n\r\n", f"\r\n{BEARER}\r\n", 1))
    assert status(said) == 400


def test_a_second_request_on_a_connection_is_never_read(here):
    one = f"GET /first HTTP/1.1\r\nHost: 127.0.0.1:{here.port}\r\n{BEARER}\r\n"
    said = here.say(one + one.replace("first", "second"))
    assert said.count(b"HTTP/1.1 ") == 1
    assert b"first" in said
    assert b"second" not in said


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "get", "CONNECT"])
def test_only_get_is_served_so_that_nothing_can_be_changed(here, method):
    assert status(here.get(method=method)) == 405


def test_a_head_that_does_not_end_is_refused_at_its_limit(here):
    assert status(here.say("GET / HTTP/1.1\r\nX: " + "x" * 40_000)) == 431


def test_no_other_origin_may_read_and_no_frame_may_show_an_answer(here):
    for said in (here.get(headers=f"{BEARER}Origin: http://evil.example\r\n"), here.get(headers="")):
        head = said.partition(b"\r\n\r\n")[0].decode().lower()
        assert "access-control" not in head
        for line in ("x-frame-options: deny", "cache-control: no-store", "referrer-policy: no-referrer"):
            assert line in head
        assert "content-security-policy: default-src 'none'" in head
        assert "set-cookie" not in head


def test_a_head_that_comes_a_byte_at_a_time_is_cut_off():
    with serving(head_s=0.2) as running, running.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        assert read_all(connection) == b""


def test_a_crowd_of_silent_connections_keeps_nobody_out(here):
    with ExitStack() as crowd:
        for _ in range(2 * MOST_UNKNOWN):
            crowd.enter_context(here.connect()).sendall(b"GET")
        assert status(here.get()) == 200
        assert len(here.loopback._unknown) <= MOST_UNKNOWN
    assert status(here.get()) == 200


@pytest.mark.parametrize("target", ["/large", "/endless"])
def test_a_reader_that_does_not_read_is_cut_off_and_holds_nothing_up(target):
    with serving(write_s=0.3) as running, running.connect() as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\n{BEARER}\r\n".encode())
        assert status(running.get()) == 200
        until(lambda: not running.loopback._known)
        assert len(read_all(connection)) < 64 << 20


def test_a_reader_that_reads_gets_all_of_a_large_answer():
    with serving() as running:
        assert len(running.get("/large").partition(b"\r\n\r\n")[2]) == 64 << 20


def test_a_stream_ends_when_its_reader_leaves():
    with serving() as running:
        with running.connect() as connection:
            connection.sendall(f"GET /endless HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\n{BEARER}\r\n".encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 200 OK")
        assert running.left.wait(PATIENCE_S)
