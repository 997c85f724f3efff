"""Codices that follow the disk: a watcher each, and what its batches lead to.

watcher's thread ─ batch ─▶ event loop ─▶ library.follow in a thread ─▶ the shelf takes the new log
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from codex.errors import CodexError
from codex.gathering import Batch
from codex.library import Library
from codex.settings import WatchSettings
from codex.watch import Watcher
from orchestrator.errors import LoreError

log = logging.getLogger("lorekeep.watch")

Changed = Callable[[str], Awaitable[None]]


class Watching:
    """`changed` is awaited with the name of a codex whose files may have changed, one call at a time for each."""

    def __init__(self, library: Library, settings: WatchSettings, changed: Changed, *, on: bool) -> None:
        self._library = library
        self._settings = settings
        self._changed = changed
        self._on = on
        self._watchers: dict[str, Watcher] = {}
        self._notices: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._dirty: set[str] = set()

    def follow(self, name: str, wanted: bool | None = None) -> None:
        """Starts to follow a codex, anew if need be; with `wanted` False it is no longer followed."""
        self.forget(name)
        if not (self._on if wanted is None else wanted):
            return
        loop = asyncio.get_running_loop()
        try:
            watcher = Watcher(
                self._library.tree(name),
                self._settings,
                lambda batch: self._from_thread(loop, name, batch),
                lambda notice: self._notices.__setitem__(name, notice),
            )
            watcher.start()
        except (CodexError, OSError) as error:
            log.warning("codex %s cannot be followed: %s", name, error)
            self._notices[name] = str(error)
            return
        self._watchers[name] = watcher
        self._note(name)  # what changed before anybody looked is found by comparing once

    def forget(self, name: str) -> None:
        watcher = self._watchers.pop(name, None)
        self._notices.pop(name, None)
        if watcher is not None:
            watcher.stop()

    def state(self, name: str) -> str:
        """Freshness in words."""
        if name in self._notices:
            return self._notices[name]
        if name not in self._watchers:
            return "not watched"
        running = self._tasks.get(name)
        if running is not None and not running.done():
            return "changes are being taken in"
        return "polled" if self._watchers[name].is_polling else "watched"

    async def stop(self) -> None:
        for name in list(self._watchers):
            await asyncio.to_thread(self.forget, name)
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _from_thread(self, loop: asyncio.AbstractEventLoop, name: str, batch: Batch) -> None:
        del batch  # what changed is found by comparing, not believed
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._note, name)

    def _note(self, name: str) -> None:
        self._dirty.add(name)
        running = self._tasks.get(name)
        if running is None or running.done():
            self._tasks[name] = asyncio.create_task(self._take_in(name), name=f"changes of {name}")

    async def _take_in(self, name: str) -> None:
        while name in self._dirty:
            self._dirty.discard(name)
            try:
                await self._changed(name)
            except (CodexError, LoreError) as error:
                log.warning("changes of codex %s were not taken in: %s", name, error)
