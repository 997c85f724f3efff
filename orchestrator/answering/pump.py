"""One task for a whole stream, whoever reads it and from where.

pydantic-ai's runs enter and leave cancel scopes and context variables, so they must live in one task; a response may be
read by several.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TypeVar, cast

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
