"""Serves the application on open sockets until it is told to stop. Signals are the daemon's business.

Accepting is our own: asyncio's retries at once where no descriptor is left, with a traceback each time, and knows no cap.
Every listener has a cap of its own, so that clients of TCP, who need no token to connect, cannot keep the owner out of
the Unix socket. At its cap a listener accepts no more until a connection ends; others wait in the kernel's queue.

Once it is told to stop it accepts nobody on a socket that is systemd's: who has connected there waits for the next daemon.
On a socket of our own nobody comes next, so who connects until it is closed is told that the daemon stops.
"""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import time
from collections.abc import Generator, Sequence
from typing import Any

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from orchestrator.api.app import EVENTS
from orchestrator.api.http import error_reply, packed
from orchestrator.api.sigils import STATE_KEY, peer_of
from orchestrator.api.sockets import Listener

KEEP_ALIVE_S = 75
HEAD_S = 10.0  # from a connection's begin, or a request's first byte, until its head is complete
HEAD_BYTES = 64 * 1024
ENOUGH_DESCRIPTORS = 65_536
FEW_DESCRIPTORS = 256  # a daemon with one codex has 50 open, and each further one five more
MOST_UNIX, MOST_TCP = 1024, 256  # connections of one listener, where descriptors suffice
RETRY_S = 0.5  # until accepting is tried again where no descriptor is left
SAID_EVERY_S = 60.0
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger("lorekeep.api")


async def serve(server: "OwnServer") -> None:
    """Returns after `server.stop` is set and running answers have ended, or its grace later. Closes its listeners."""
    serving = asyncio.ensure_future(server.serve(sockets=[listener.socket for listener in server.listeners]))
    stopping = asyncio.ensure_future(server.stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
    finally:
        stopping.cancel()
        for listener in server.listeners:
            listener.close()


def config(app: ASGIApp, grace_s: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=PeerProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(grace_s)),
        timeout_keep_alive=KEEP_ALIVE_S,
    )


def raised_descriptors() -> int:
    """Raises the soft limit of open files towards the hard one; the limit that then holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, ENOUGH_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return ENOUGH_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def most_connections(family: int, descriptors: int) -> int:
    """The cap of a listener. A quarter of the descriptors stays for files, whatever all listeners together accept."""
    if family == socket.AF_UNIX:
        return min(MOST_UNIX, descriptors // 2)
    return min(MOST_TCP, descriptors // 4)


class Accepting:
    """Accepts on one listening socket, at most `most` connections at a time. `open`: how many there are."""

    def __init__(self, server: "OwnServer", listener: Listener, most: int) -> None:
        self.open = 0
        self._server = server
        self._listener = listener
        self._socket = listener.socket
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self._closed = False
        self._complaint = Complaint()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._socket.setblocking(False)
        self._resume()

    def left(self) -> None:
        """One of its connections has ended."""
        self.open -= 1
        self._resume()

    def close(self) -> None:
        self._pause()
        self._closed = True

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _resume(self) -> None:
        if not (self._closed or self._reading or self.open >= self._most):
            self._loop.add_reader(self._socket, self._accept)
            self._reading = True

    def _pause(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._socket)
            self._reading = False

    def _accept(self) -> None:
        if self._server.stop.is_set() and self._listener.is_systemds:
            self.close()
            return
        while self.open < self._most:
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                self._complaint.say("no connection can be accepted: %s", error.strerror)
                self._pause()
                self._loop.call_later(RETRY_S, self._resume)
                return
            connection.setblocking(False)
            self.open += 1
            task = self._loop.create_task(self._connect(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._complaint.say("%d connections are open: more are accepted as these end", self.open)
        self._pause()

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._server.protocol(self), connection)
        except OSError:
            connection.close()
            self.left()


class Complaint:
    """Logs a warning at most once in SAID_EVERY_S, with how often it was not said since."""

    def __init__(self) -> None:
        self._said = float("-inf")
        self._silent = 0

    def say(self, message: str, *values: object) -> None:
        now = time.monotonic()
        if now - self._said < SAID_EVERY_S:
            self._silent += 1
            return
        again = f" ({self._silent} more since the last time)" if self._silent else ""
        log.warning(message + again, *values)
        self._said, self._silent = now, 0


class OwnServer(uvicorn.Server):
    """uvicorn's server with our own accepting, and without its signal handlers. It ends once `stop` is set; running answers
    may take `grace_s` more."""

    def __init__(
        self, app: ASGIApp, listeners: Sequence[Listener], stop: asyncio.Event, *, grace_s: float = 10.0
    ) -> None:
        super().__init__(config(app, grace_s))
        self.servers: list[Any] = []
        self.listeners = listeners
        self.stop = stop
        self.malformed = Complaint()
        self._descriptors = raised_descriptors()
        if self._descriptors < FEW_DESCRIPTORS:
            log.warning("only %d files may be open at a time: raise the hard limit (ulimit -Hn)", self._descriptors)

    @property
    def asking(self) -> int:
        """Connections on which somebody asks or may ask next: all but those on which events are followed."""
        following = sum(one.follows for one in self.server_state.connections if isinstance(one, PeerProtocol))
        return sum(int(one.open) for one in self.servers) - following

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - of `listeners`
        await self.lifespan.startup()
        self.servers = [
            Accepting(self, one, most_connections(one.socket.family, self._descriptors)) for one in self.listeners
        ]
        self.started = True

    def protocol(self, accepting: Accepting) -> "PeerProtocol":
        return PeerProtocol(self, accepting)


class PeerProtocol(HttpToolsProtocol):
    """uvicorn's protocol that puts the peer into `scope["state"]`, bounds a request's head in time and size, and refuses
    what is no request in the shape of every other refusal."""

    def __init__(self, server: OwnServer, accepting: Accepting) -> None:
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self._server = server
        self._accepting = accepting
        self._in_head = True
        self._arrived = 0  # bytes of the head, or of chunks' heads and trailers since the last byte of body
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def follows(self) -> bool:
        """Whether events are sent on it now."""
        return self.cycle is not None and not self.cycle.response_complete and self.cycle.scope["path"] == EVENTS

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wrapped = transport.get_extra_info("socket")  # asyncio's TransportSocket: the same methods, not the same class
        self.app_state = {**self.app_state, STATE_KEY: peer_of(wrapped)}
        super().connection_made(transport)  # type: ignore[arg-type]
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)
        self._accepting.left()

    def data_received(self, data: bytes) -> None:
        """Feeds at most what a head may have left, so that the limit holds for a head of any shape. One that begins within
        such a part may be almost twice as long: the parser does not tell where."""
        self._unset_keepalive_if_required()
        while data and not self.transport.is_closing():
            part = data[: HEAD_BYTES - self._arrived]
            data = data[len(part) :]
            self._feed(part)

    def _feed(self, part: bytes) -> None:
        self._arrived += len(part)  # what is body is taken off again by the callbacks
        if self._in_head:
            self._start_clock()
        try:
            self.parser.feed_data(part)
        except httptools.HttpParserUpgrade:
            pass  # answered as the plain request that it is, too
        except httptools.HttpParserError as error:
            self._refuse(error)
            return
        if self._arrived == HEAD_BYTES:
            words = f"the request's head, or what is beside its body, is larger than {HEAD_BYTES:,} bytes"
            self._answer(431, "too_large", words, "send fewer or shorter headers, and long texts in the body")

    # -- the parser's callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # nobody reads trailers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        coding = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
        if coding not in ([], [b"chunked"]):
            raise ValueError("a transfer coding that is not known here")
        super().on_headers_complete()
        self._in_head, self._arrived = False, 0
        self._stop_clock()

    def on_body(self, body: bytes) -> None:
        self._arrived = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._arrived = True, 0
        self._stop_clock()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The rest of a body that nobody reads any more has the deadline of a head."""
        super().on_response_complete()
        if self.cycle.response_complete and not self._in_head and not self.transport.is_closing():
            self._start_clock()

    # -- refusals before there is a request

    def _late(self) -> None:
        self._deadline = None
        if self._arrived:
            self._answer(408, "invalid_request", f"no whole request within {HEAD_S:g} s", "send it at once")
        else:
            self.transport.close()

    def _refuse(self, error: httptools.HttpParserError) -> None:
        if isinstance(error, httptools.HttpParserInvalidMethodError) or self.parser.get_method() == b"CONNECT":
            self._answer(405, "wrong_method", "no method of HTTP that is known here", "routes take GET, POST, PUT, …")
            return
        callback = isinstance(error, httptools.HttpParserCallbackError)
        why = "its path or its transfer coding cannot be read" if callback else str(error)
        self._answer(400, "invalid_request", f"not a request of HTTP/1.1: {why}", "")

    def _answer(self, status: int, code: str, message: str, hint: str) -> None:
        """Where nothing is being answered. A running answer loses its connection without a word between its own."""
        self._stop_clock()
        if self.transport.is_closing():
            return
        self._server.malformed.say("malformed requests: %s", message)
        if self._is_unanswered():
            if self.cycle is not None:
                self.cycle.disconnected = True  # what still reads this body writes nothing behind the refusal
            body = packed(error_reply(code, message, hint, status))
            head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()

    def _is_unanswered(self) -> bool:
        """Whether this is the next answer. A request whose body is not complete gets no other one."""
        if self.cycle is None or self.cycle.response_complete:
            return self._in_head
        return not self.pipeline and not self.cycle.response_started and self.cycle.more_body

    def _start_clock(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_S, self._late)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
