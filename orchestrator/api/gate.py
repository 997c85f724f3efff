"""Holds requests while nobody can answer them, and knows how many are inside. For changing what stands behind the routes.

open ──▶ closed to questions (running ones end) ──▶ closed to all ──▶ open
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from typing import TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.api.streams import closing
from orchestrator.errors import Full, NotReady
from orchestrator.racing import unless
from orchestrator.service import AskEvent, Waiting

FREE = frozenset({"/healthz", "/readyz", "/v1/model", "/v1/events"})  # neither held nor counted
QUESTIONS = ("/v1/chat/completions", "/v1/plan", "/v1/codices", "/v1/search")


class Gate:
    """One writer closes and opens it."""

    def __init__(self) -> None:
        self._questions, self._all, self._empty = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._inside = 0
        self._empty.set()
        self.open()

    def open(self) -> None:
        self._questions.set()
        self._all.set()

    def close_to_questions(self) -> None:
        self._questions.clear()

    def close(self) -> None:
        self._questions.clear()
        self._all.clear()

    async def opened(self) -> None:
        """Waits until it is open to all."""
        await self._all.wait()

    @property
    def inside(self) -> int:
        """Requests that have come in and not left."""
        return self._inside

    async def empty(self, seconds: float) -> bool:
        """Waits until nobody is inside, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        return self._inside == 0

    async def passed(self, path: str, *, asks: bool) -> None:
        """Returns when such a request may come in; whoever has come in must `leave`."""
        await self._all.wait()
        if asks and path.startswith(QUESTIONS):
            await self._questions.wait()
        self._inside += 1
        self._empty.clear()

    def leave(self) -> None:
        self._inside -= 1
        if self._inside == 0:
            self._empty.set()


class Gated:
    """ASGI middleware: the application's own gate."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self.app = app
        self.gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in FREE:
            await self.app(scope, receive, send)
            return
        await self.gate.passed(scope["path"], asks=scope["method"] == "POST")
        try:
            await self.app(scope, receive, send)
        finally:
            self.gate.leave()


T = TypeVar("T")
COMPUTED = ("floor", "prompt")  # phases in which the engine has taken an ask in


class Line:
    """`most` asks may wait; `stopping` is set when the daemon ends."""

    def __init__(self, most: int, stopping: asyncio.Event) -> None:
        self.waiting = 0
        self._most = most
        self._stopping = stopping

    async def through(self, events: AsyncIterator[AskEvent]) -> AsyncIterator[AskEvent]:
        """The events of an ask. Raises Full before the first one, NotReady when the daemon stops before it has begun.

        Closing this closes `events`.
        """
        async with closing(events):
            if self.waiting >= self._most:
                raise Full(f"{self.waiting} questions wait already", "ask again later, or raise serve.queue")
            begun = False
            async with closing(self._turn(events)) as turn:
                async for event in turn:
                    begun = not isinstance(event, Waiting)
                    yield event
            if begun:
                async for event in events:
                    yield event

    async def _turn(self, events: AsyncIterator[AskEvent]) -> AsyncIterator[AskEvent]:
        """Events until the answer begins, which is the last of them."""
        waits = True
        self.waiting += 1
        try:
            while (event := await while_running(self._stopping, anext(events, None))) is not None:
                if waits and not (isinstance(event, Waiting) and event.phase not in COMPUTED):
                    waits = False
                    self.waiting -= 1
                yield event
                if not isinstance(event, Waiting):
                    return
        finally:
            self.waiting -= waits


async def while_serving(
    events: AsyncIterator[T], stopping: asyncio.Event, *, silently: bool = False
) -> AsyncIterator[T]:
    """The events; when the daemon stops they end, `silently` or with NotReady."""
    async with closing(events):
        try:
            while (event := await while_running(stopping, anext(events, None))) is not None:
                yield event
        except NotReady:
            if not silently or not stopping.is_set():
                raise


async def while_running(stopping: asyncio.Event, work: Awaitable[T]) -> T:
    """The work's result. Cancels it and raises NotReady when the daemon stops first."""
    return await unless(stopping.wait(), work, NotReady("the daemon is stopping", "ask again when it runs"))
