"""Waiting with a deadline, and events that come from a task of their own.

Deadlines are moments of the event loop's clock, in seconds; None is no deadline.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TypeVar, cast

from orchestrator.errors import NotReady
from orchestrator.service import Ask

T = TypeVar("T")


def deadline_of(ask: Ask) -> float | None:
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
