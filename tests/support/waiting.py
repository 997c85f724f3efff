"""How long a test waits for what happens by itself, and what wakes it.

The wait is long, so that a crowded machine fails nothing; what never comes is named all the same.
"""

import asyncio
from collections.abc import Callable

SOON = 60.0


class Told:
    """Something has happened: whoever waits looks again. Of one event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        self._event.set()

    async def until(self, true: Callable[[], object]) -> None:
        """Returns when it is so. Looked at now, and each time something has happened."""
        async with asyncio.timeout(SOON):
            while not true():
                self._event.clear()
                await self._event.wait()
