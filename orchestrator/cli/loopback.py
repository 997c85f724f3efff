"""HTTP for one person on this machine: GET requests to 127.0.0.1 by who knows a token. Knows no route and no daemon.

    connection ──▶ head, whole within HEAD_S ──▶ Host ──▶ token ──▶ route ──▶ one answer or one stream ──▶ closed

Every user of the machine, and every page that its browser shows, can connect here. Therefore:
one request a connection, and none with a body, so that there is nothing to smuggle;
a Host that is not ours is refused (a foreign name that was made to point here: DNS rebinding);
no header allows other origins, and the token is in no cookie, which a browser would send to every port of this host;
of connections that have not shown the token only so many are open, and the oldest goes first: who sends its request at
once is not kept out by a thousand who send none.

The standard library's HTTP server has a thread for each connection, and no limit for a head that comes a byte at a time.
"""

import asyncio
import hmac
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

HEAD_BYTES = 16 * 1024
HEAD_S = 5.0  # until a head is complete
WRITE_S = 10.0  # until a reader has taken enough that more can be written
MOST_UNKNOWN, MOST_KNOWN = 128, 64  # connections; together far below a process's usual 1,024 files
BACKLOG = 128
AT_ONCE = 256 * 1024  # bytes that are written before the reader is waited for
UNPROVEN = "no valid token: open the address that `lore dash` printed, which ends in /?token=…"
MISPLACED = (
    "the token stands in the wrong place: the address has to end in /?token=… as the one that `lore dash` printed"
)
DELIMITERS = re.compile(r"[/?&=#:;,\s]")
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")  # of a header: a token of RFC 9110
TARGET = re.compile(r"/[!-~]*\Z")
WORDS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}
WORDS |= {431: "Request Header Fields Too Large", 502: "Bad Gateway", 503: "Service Unavailable"}
ALWAYS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
NOTHING = "default-src 'none'; frame-ancestors 'none'"  # for what is no page


@dataclass(frozen=True)
class PageRequest:
    """A request of who knows the token. `parts`: those of its path, not decoded."""

    parts: tuple[str, ...]
    query: Mapping[str, str]


@dataclass(frozen=True)
class PageAnswer:
    """A whole answer."""

    status: int
    body: bytes
    kind: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stream:
    """Server-sent events, until they end or the reader leaves."""

    chunks: AsyncIterator[bytes]


Handler = Callable[[PageRequest], Awaitable[PageAnswer | Stream]]


@dataclass(frozen=True)
class RequestHead:
    """Of a request; the names of headers in small letters."""

    method: str
    target: str
    headers: Mapping[str, str]


class RefusedRequest(Exception):
    """A status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.answer = PageAnswer(status, f"{why}\n".encode())


class Loopback:
    """Serves on 127.0.0.1, on `port` or, for 0, on a free one. Raises OSError from `start` where that is taken."""

    def __init__(self, token: str, handler: Handler, *, head_s: float = HEAD_S, write_s: float = WRITE_S) -> None:
        self._token = token
        self._handler = handler
        self._head_s, self._write_s = head_s, write_s
        self._unknown: dict[asyncio.StreamWriter, None] = {}  # the oldest first
        self._known = 0
        self._hosts: frozenset[str] = frozenset()

    async def start(self, port: int = 0) -> asyncio.Server:
        server = await asyncio.start_server(self._meet, "127.0.0.1", port, limit=HEAD_BYTES, backlog=BACKLOG)
        self.port = int(server.sockets[0].getsockname()[1])
        self._hosts = frozenset(f"{name}:{self.port}" for name in ("127.0.0.1", "localhost"))
        return server

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._unknown[writer] = None
        if len(self._unknown) > MOST_UNKNOWN:
            oldest = next(iter(self._unknown))
            del self._unknown[oldest]
            oldest.transport.abort()
        # The reader left, was cut off, or is too slow to be written to.
        with suppress(ConnectionError, TimeoutError):
            await self._serve(reader, writer)
        self._unknown.pop(writer, None)
        writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await self._head(reader)
            asked = admitted(head, self._hosts, self._token)
            if self._known >= MOST_KNOWN:
                raise RefusedRequest(503, f"{MOST_KNOWN} requests are being answered")
        except RefusedRequest as refused:
            await self._write(writer, whole(refused.answer))
            return await self._end(writer)
        self._unknown.pop(writer, None)
        self._known += 1
        try:
            await self._answer(await self._handler(asked), writer)
        finally:
            self._known -= 1
        return await self._end(writer)

    async def _head(self, reader: asyncio.StreamReader) -> RequestHead:
        try:
            async with asyncio.timeout(self._head_s):
                return head_of(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            raise RefusedRequest(431, f"the head is longer than {HEAD_BYTES:,} bytes") from None
        except asyncio.IncompleteReadError:
            raise ConnectionResetError from None

    async def _answer(self, answer: PageAnswer | Stream, writer: asyncio.StreamWriter) -> None:
        if isinstance(answer, PageAnswer):
            return await self._write(writer, whole(answer))
        async with aclosing(answer.chunks) as chunks:  # type: ignore[type-var]
            await self._write(writer, first_bytes(200, {"Content-Type": "text/event-stream"}))
            async for chunk in chunks:
                await self._write(writer, chunk)
        return None

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        for start in range(0, len(data), AT_ONCE):
            writer.write(data[start : start + AT_ONCE])
            async with asyncio.timeout(self._write_s):
                await writer.drain()

    async def _end(self, writer: asyncio.StreamWriter) -> None:
        """What is in the buffer is sent first."""
        writer.close()
        async with asyncio.timeout(self._write_s):
            await writer.wait_closed()


# ---- pure ------------------------------------------------------------------------------------------------------------


def head_of(raw: bytes) -> RequestHead:
    """Strictly as RFC 9112 has it, without bodies. Raises RefusedRequest."""
    try:
        first, *lines = raw.decode("ascii").removesuffix("\r\n\r\n").split("\r\n")
    except UnicodeDecodeError:
        raise RefusedRequest(400, "the head is not ASCII") from None
    method, _, rest = first.partition(" ")
    target, _, version = rest.partition(" ")
    if version not in ("HTTP/1.1", "HTTP/1.0") or not TARGET.match(target):
        raise RefusedRequest(400, "no request line of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not NAME.match(name) or name.lower() in headers or not value.replace("\t", " ").isprintable():
            raise RefusedRequest(400, "a header is malformed, or stands there twice")
        headers[name.lower()] = value.strip(" \t")
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise RefusedRequest(400, "no body is taken")
    return RequestHead(method, target, headers)


def admitted(head: RequestHead, hosts: frozenset[str], token: str) -> PageRequest:
    """What is asked, if its Host and its token are ours. Raises RefusedRequest.

    The token stands in the query, as in the address that a person opens, or after `Authorization: Bearer`.
    """
    if head.headers.get("host", "").lower() not in hosts:
        raise RefusedRequest(403, "this Host is not served")
    path, _, asked = head.target.partition("?")
    query = dict(parse_qsl(asked))
    given = query.pop("token", None) or head.headers.get("authorization", "").removeprefix("Bearer ")
    if not hmac.compare_digest(given.encode(), token.encode()):
        raise RefusedRequest(403, MISPLACED if stands_elsewhere(token, head) else UNPROVEN)
    if head.method != "GET":
        raise RefusedRequest(405, "only GET is served")
    return PageRequest(tuple(path.split("/")[1:]), query)


def stands_elsewhere(token: str, head: RequestHead) -> bool:
    """In the path, under another name, or without one: it is told that it is in the wrong place, and is not shown."""
    parts = DELIMITERS.split(unquote(head.target))
    return any(hmac.compare_digest(part.encode(), token.encode()) for part in parts)


def whole(answer: PageAnswer) -> bytes:
    headers = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body)), **answer.headers}
    return first_bytes(answer.status, headers) + answer.body


def first_bytes(status: int, headers: Mapping[str, str]) -> bytes:
    lines = {"Content-Security-Policy": NOTHING, **ALWAYS, **headers}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} {WORDS[status]}\r\n{text}\r\n".encode("latin-1")
