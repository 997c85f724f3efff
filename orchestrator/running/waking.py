"""How far a start is with raising what was loaded before, for whoever wants to see its end."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Waking:
    """Codices raised of all. One writer, the start; ended once, also by a start that found no model."""

    done: int = 0
    total: int = 0
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def at(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def end(self) -> None:
        self._ended.set()
        self.at(self.done, self.total)

    async def follow(self, told: Callable[[int, int], None]) -> None:
        """Tells how far it is, now and whenever that changes, until its end."""
        while True:
            told(self.done, self.total)
            if self._ended.is_set():
                return
            await self._moved.wait()
