"""Calls to the child: a message with a number, one answer with the same. Does not know what is asked."""

import asyncio
from collections.abc import Callable
from itertools import count

from orchestrator.engine.client.supervisor import EngineUnavailable, Supervisor


class Calls:
    """Those that wait for their answer."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[object]] = {}

    async def call(self, make: Callable[[int], object]) -> object:
        """Sends what `make` makes of the call's number, and waits for the answer. Raises EngineUnavailable."""
        await self._supervisor.ensure_ready()
        number = next(self._numbers)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            if not self._supervisor.send([make(number)]):
                raise EngineUnavailable(self._supervisor.reason)
            return await future
        finally:
            self._waiting.pop(number, None)

    def answered(self, number: int, answer: object) -> None:
        future = self._waiting.get(number)
        if future and not future.done():
            future.set_result(answer)

    def fail(self, why: str) -> None:
        """All that wait raise EngineUnavailable."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EngineUnavailable(why))
