"""Waiting with a deadline, waiting for the engine, and events that come from a task of their own.

Deadlines are moments of the event loop's clock, in seconds; None is no deadline.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TypeVar, cast

from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import ChildState
from orchestrator.errors import NotReady
from orchestrator.machine.yielding import Yielding
from orchestrator.model.chat_model import WHOLE, arriving, paused, why_waiting
from orchestrator.service import Ask, TextAsk
from orchestrator.wire.answers import Waiting

T = TypeVar("T")
COMING = (ChildState.PAUSED, ChildState.STARTING, ChildState.BACKOFF)  # there is no engine, but there will be


def deadline_of(ask: Ask | TextAsk) -> float | None:
    """Of a question that arrives now."""
    return None if ask.timeout_s is None else asyncio.get_running_loop().time() + ask.timeout_s


async def within(deadline: float | None, work: Awaitable[T], why: Callable[[], str]) -> T:
    """The result of some work. Raises NotReady when the deadline comes first; `why` says then what is missing."""
    try:
        async with asyncio.timeout_at(deadline):
            return await asyncio.shield(work) if isinstance(work, asyncio.Future) else await work
    except TimeoutError:
        raise NotReady(why(), "allow more time with --timeout", retry_after=2.0) from None


async def until_first(
    events: AsyncIterator[T], deadline: float | None, begun: Callable[[], bool], reason: Callable[[], str]
) -> AsyncIterator[T]:
    """The events; until an answer has begun each must come before the deadline. `reason`: of the engine, if it has one."""
    with suppress(StopAsyncIteration):
        while True:
            yield await within(
                None if begun() else deadline,
                anext(events),
                lambda: ": ".join(filter(None, ("no answer began in time", reason()))),
            )


async def own_task(source: AsyncIterator[T]) -> AsyncGenerator[T]:
    """The items of `source`, which runs in a task of its own; closing this cancels it and waits until it has ended."""
    queue: asyncio.Queue[tuple[T] | BaseException | None] = asyncio.Queue()

    async def run() -> None:
        try:
            async with aclosing(cast(AsyncGenerator[T], source)) as items:
                async for item in items:
                    queue.put_nowait((item,))
            queue.put_nowait(None)
        except asyncio.CancelledError:
            raise
        except Exception as fault:  # noqa: BLE001 - it is raised again in the reader
            queue.put_nowait(fault)

    task = asyncio.create_task(run(), name="answer")
    try:
        while (got := await queue.get()) is not None:
            if isinstance(got, BaseException):
                raise got
            yield got[0]
    finally:
        task.cancel()
        await asyncio.wait([task])


@dataclass(frozen=True)
class EngineWait:
    """The engine as somebody meets it who asks: it may be loading, or its memory given away, at any moment."""

    client: EngineClient
    yielding: Yielding

    async def with_waiting(
        self, events: AsyncGenerator[T], *, wait: bool, told: Callable[[Waiting | None], None] = lambda _: None
    ) -> AsyncGenerator[T | Waiting]:
        """The events, and until the answer begins also that it waits for the engine; `told` hears of each such moment.
        Raises NotReady and Paused for who would not `wait`."""
        async with aclosing(events):
            begun = False
            while not begun:
                coming = asyncio.ensure_future(anext(events, None))
                try:
                    async for percent in arriving(coming, self.client):
                        waiting = self.lacked(percent, wait=wait)
                        told(waiting)
                        if waiting is not None:
                            yield waiting
                    event = await coming
                finally:
                    coming.cancel()
                    await asyncio.wait([coming])
                if event is None:
                    return
                begun = not isinstance(event, Waiting)
                yield event
            async for event in events:
                yield event

    def lacked(self, percent: int, *, wait: bool) -> Waiting | None:
        """What is waited for while there is no engine; None while there is one. Raises NotReady and Paused."""
        if (away := self.yielding.paused) is not None:
            if not wait:
                raise paused(away)
            left = None if away.until is None else max(0.0, away.until - time.time())
            return Waiting("pause", 0, 0, left_s=left, detail=away.words())
        if self.client.state not in COMING:
            return None
        if not wait:
            raise NotReady(why_waiting(self.client), "ask without --no-wait to wait for it", retry_after=2.0)
        return Waiting("model", percent, WHOLE)
