"""Holds requests while nobody can answer them, and knows how many are inside. For changing what stands behind the routes.

open ──▶ closed to questions (running ones end) ──▶ closed to all ──▶ open
"""

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Receive, Scope, Send

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
