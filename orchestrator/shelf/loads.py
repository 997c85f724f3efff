"""Loads that run, each in a task of its own: whoever started one may leave, others may come and watch."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from threading import Event
from typing import Any

from orchestrator.errors import LoreError, NotFound

LoadEvent = Mapping[str, Any]
Emit = Callable[[LoadEvent], None]


class RunningLoad:
    """Emits events to all who watch; the last is `loaded` or a fault."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cancelled = Event()
        self.latest: LoadEvent = {}
        self._watchers: set[asyncio.Queue[LoadEvent | LoreError | None]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Callable[[Emit], Awaitable[None]]) -> None:
        self._task = asyncio.create_task(self._run(work), name=f"load of {self.name}")

    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def watch(self) -> AsyncGenerator[LoadEvent]:
        """Events from now on. Raises the load's fault."""
        queue: asyncio.Queue[LoadEvent | LoreError | None] = asyncio.Queue()
        self._watchers.add(queue)
        try:
            while (event := await queue.get()) is not None:
                if isinstance(event, LoreError):
                    raise event
                yield event
        finally:
            self._watchers.discard(queue)

    async def stop(self) -> None:
        self.cancelled.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self, work: Callable[[Emit], Awaitable[None]]) -> None:
        try:
            await work(self._emit)
        except LoreError as fault:
            self._send(fault)
        finally:
            self._send(None)

    def _emit(self, event: LoadEvent) -> None:
        self.latest = event
        self._send(event)

    def _send(self, event: LoadEvent | LoreError | None) -> None:
        for queue in tuple(self._watchers):
            queue.put_nowait(event)


class Loads:
    """All of them, by the codex's name or, while that is not known, by its path."""

    def __init__(self) -> None:
        self._running: dict[str, RunningLoad] = {}

    def begin(self, name: str, work: Callable[[RunningLoad, Emit], Awaitable[None]]) -> RunningLoad:
        load = RunningLoad(name)
        self._running = {key: one for key, one in self._running.items() if one.running()}
        self._running[name] = load
        load.start(lambda emit: work(load, emit))
        return load

    def find(self, name: str) -> RunningLoad | None:
        found = self._running.get(name)
        return found if found is not None and found.running() else None

    def names(self) -> list[str]:
        """What is being loaded now."""
        return [name for name, load in self._running.items() if load.running()]

    def cancel(self, name: str) -> None:
        """Raises NotFound when nothing of that name is being loaded."""
        load = self.find(name)
        if load is None:
            raise NotFound(f"no load of {name!r} is running", "`lore status` shows what is")
        load.cancelled.set()

    def indexing(self, name: str) -> bool:
        return self.find(name) is not None

    def blind(self, name: str) -> str:
        """What a search of this codex may not see now, in words; '' while it is not being loaded."""
        load = self.find(name)
        if load is None:
            return ""
        latest = load.latest
        far = f" ({latest['phase']} {latest['done']:,} of {latest['total']:,})" if latest.get("total") else ""
        return f"{name} is being indexed{far}: files that are not yet in may be missing from what was found"

    async def stop(self) -> None:
        for load in list(self._running.values()):
            await load.stop()
