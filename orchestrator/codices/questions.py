"""Whether anybody asks: what runs in the background waits for a quiet moment, and gives way to a question."""

import asyncio
from collections.abc import Callable


class Questions:
    """Counts those that run. `clock` gives seconds. One event loop calls all of it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._running = 0
        self._last = clock()
        self._busy = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def count(self, more: int) -> None:
        """So many more run now, or, below zero, so many have ended."""
        if not more:
            return
        self._running += more
        if self._running:
            self._busy.set()
            self._quiet.clear()
        else:
            self._last = self._clock()
            self._busy.clear()
            self._quiet.set()

    async def asked(self) -> None:
        """Returns as soon as a question runs."""
        await self._busy.wait()

    async def idle(self, seconds: float) -> None:
        """Returns when no question has run for so long."""
        while True:
            await self._quiet.wait()
            left = self._last + seconds - self._clock()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(left):
                    await self._busy.wait()
            except TimeoutError:
                continue
