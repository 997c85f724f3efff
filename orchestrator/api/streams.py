"""Answers that take time: bound to the client that waits for them. When it goes, the work is cancelled at once."""

from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from orchestrator.api.problems import body_of, packed
from orchestrator.errors import LoreError
from orchestrator.racing import unless
from orchestrator.wire.shapes import ReplyShape

T = TypeVar("T")
HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


DONE = b"data: [DONE]\n\n"


class ClientGoneError(Exception):
    """The connection closed before the answer was complete. Nobody is left to be told."""


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """The work's result. Cancels it and raises ClientGoneError when the client closes first.

    The request's body must have been read before.
    """
    return await unless(disconnected(receive), work, ClientGoneError())


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events. The first was awaited before the status line, so that a refusal still gets its own status."""

    def __init__(self, first: bytes, rest: AsyncIterator[bytes], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(headers=headers)
        self.first = first
        self.rest = rest
        self.raw_headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"] + HEADERS

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        async with closing(self.rest):
            try:
                await while_connected(receive, self.write(send))
            except ClientGoneError:
                return

    async def write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send(part(self.first))
        try:
            async for chunk in self.rest:
                await send(part(chunk))
        except LoreError as error:
            await send(part(data(body_of(error.code, error.message, error.hint))))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def part(chunk: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": chunk, "more_body": True}


async def started(receive: Receive, chunks: AsyncIterator[bytes]) -> EventStream:
    """Awaits the first chunk. Raises what the work raises before it, so that it becomes a status."""
    try:
        first = await while_connected(receive, following(chunks))
    except BaseException:
        await close(chunks)
        raise
    return EventStream(first, chunks)


async def following(chunks: AsyncIterator[bytes]) -> bytes:
    async for chunk in chunks:
        return chunk
    return b""


async def close(chunks: AsyncIterator[bytes]) -> None:
    async with closing(chunks):
        pass


async def lines(events: AsyncIterator[ReplyShape]) -> AsyncIterator[bytes]:
    """Progress reports, one server-sent event each."""
    async with closing(events):
        async for event in events:
            yield data(event)


def data(value: Any) -> bytes:
    return b"data: " + packed(value) + b"\n\n"


def comment(value: Any) -> bytes:
    """A line that clients of server-sent events ignore by their standard; our command line reads it."""
    return b": " + packed(value) + b"\n\n"


def closing(events: AsyncIterator[Any]) -> Any:
    """Streams of the port are async generators: what runs behind them ends when they are closed."""
    return aclosing(events)
