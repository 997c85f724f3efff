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
    cancelled, came = waiting.cancelling(), False

    def end(_: "asyncio.Future[Any]") -> None:
        nonlocal came
        came = True
        waiting.cancel()

    rival: asyncio.Future[Any] = asyncio.ensure_future(happened)
    rival.add_done_callback(end)
    try:
        found = await work
    except asyncio.CancelledError:
        if came and waiting.uncancel() <= cancelled:
            raise fault from None
        raise
    else:
        if came:  # the work ended all the same
            waiting.uncancel()
        return found
    finally:
        rival.remove_done_callback(end)
        rival.cancel()
        await asyncio.gather(rival, return_exceptions=True)
