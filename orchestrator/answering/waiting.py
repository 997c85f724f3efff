"""How long somebody waits for an answer to begin: not at all, until a deadline, or as long as it takes.

Deadlines are moments of `time.monotonic`, in seconds; None is no deadline. What is waited for is not known here.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, TypeVar, cast

from orchestrator.errors import NotReady
from orchestrator.service import Ask


def deadline_of(ask: Ask, arrived: float) -> float | None:
    return None if ask.timeout_s is None else arrived + ask.timeout_s


def refuse_waiting(ask: Ask, what: str) -> None:
    if not ask.wait:
        raise NotReady(what, "ask without --no-wait to wait for it", retry_after=2.0)


async def within(deadline: float | None, work: Any, what: Callable[[], str]) -> Any:
    """The result of some work. Raises NotReady when the deadline comes first, with `what` is waited for then."""
    try:
        async with asyncio.timeout_at(None if deadline is None else loop_time(deadline)):
            return await asyncio.shield(work) if isinstance(work, asyncio.Future) else await work
    except TimeoutError:
        raise NotReady(f"not ready in time: {what()}", "allow more time with --timeout", retry_after=2.0) from None


def loop_time(moment: float) -> float:
    return asyncio.get_running_loop().time() + moment - time.monotonic()


async def until_first(
    events: AsyncIterator[Any], deadline: float | None, begun: Callable[[], bool], what: Callable[[], str]
) -> AsyncIterator[Any]:
    """The events; until an answer has begun each must come before the deadline. `what` is then waited for, if known."""
    while True:
        try:
            async with asyncio.timeout_at(None if deadline is None or begun() else loop_time(deadline)):
                event = await anext(events)
        except StopAsyncIteration:
            return
        except TimeoutError:
            why = ": ".join(filter(None, ("no answer began in time", what())))
            raise NotReady(why, "allow more time with --timeout", retry_after=2.0) from None
        yield event


T = TypeVar("T")


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
