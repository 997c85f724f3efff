"""How long somebody waits for an answer to begin: not at all, until a deadline, or as long as it takes.

Deadlines are moments of `time.monotonic`, in seconds; None is no deadline. What is waited for is not known here.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

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
