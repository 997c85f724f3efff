"""Work that is cancelled when something else happens first."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def unless(happened: Awaitable[Any], work: Awaitable[T], fault: Exception) -> T:
    """The work's result. When `happened` ends first, the work is cancelled and `fault` raised; of two at once, work wins.

    Both have ended when this returns or raises, also where it is cancelled itself. The work runs in the task of who waits
    for it: one of its own would cost as much as a short piece of work, and this is around each event of a stream.
    """
    waiting = asyncio.current_task()
    assert waiting is not None
    cancelled, works, came = waiting.cancelling(), True, False

    def end(_: "asyncio.Future[Any]") -> None:
        nonlocal came
        if works:  # one that is due already, as the work ends, cannot be taken back
            came = True
            waiting.cancel()

    rival: asyncio.Future[Any] = asyncio.ensure_future(happened)
    rival.add_done_callback(end)
    try:
        return await work
    except asyncio.CancelledError:
        if came and waiting.cancelling() <= cancelled + 1:  # by `end` alone
            raise fault from None
        raise
    finally:
        works = False
        if came:
            waiting.uncancel()
        rival.cancel()
        await asyncio.gather(rival, return_exceptions=True)
