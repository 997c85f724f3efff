"""The line in front of the engine: how many asks may wait for their turn, and what becomes of them when the daemon stops.

An ask waits until its prompt is being computed or its answer has begun. One that comes to a full line is told to come
again, before anything is done for it. When the daemon stops, those that wait end at once: an answer that has begun may
take the time that the settings give it, one that has not would only begin.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from orchestrator.api.server_sent import closing
from orchestrator.errors import Full, NotReady
from orchestrator.racing import unless
from orchestrator.service import AskEvent, Waiting

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
