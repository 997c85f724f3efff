"""Work that is cancelled when something else happens first."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def unless(happened: Awaitable[Any], work: Awaitable[T], fault: Exception) -> T:
    """The work's result. When `happened` ends first, the work is cancelled and `fault` raised; of two at once, work wins.

    Both have ended when this returns or raises, also where it is cancelled itself.
    """
    job: asyncio.Future[T] = asyncio.ensure_future(work)
    rival: asyncio.Future[Any] = asyncio.ensure_future(happened)
    both: set[asyncio.Future[Any]] = {job, rival}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise fault
        return job.result()
    finally:
        job.cancel()
        rival.cancel()
        await asyncio.gather(*both, return_exceptions=True)
