"""Codices that follow the disk: a watcher each, and what its batches lead to.

watcher's thread ─ batch ─▶ event loop ─▶ library.follow in a thread ─▶ the shelf takes the new log
                                ▲                     │ fails: the folder is gone, another process loads it
                                └── again, later ─────┘ and is followed anew when it works
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from codex.errors import CodexError
from codex.following.watch import ChangeBatch, Watcher
from codex.library import Library
from codex.settings import WatchSettings
from codex.trees.walk import DiskTree
from orchestrator.errors import LoreError

log = logging.getLogger("lorekeep.watch")

Changed = Callable[[str], Awaitable[None]]


@dataclass(frozen=True)
class WatchStatus:
    """How a codex is followed now. `still`: it is a commit, which does not change.
    `compared`: with the disk, once at least since it is followed, and its path still leads to what was compared.
    `pending` files have changed and are being taken in (0: that many are not known).

    `notice`: why it is polled, or why what is on disk cannot be taken in.
    """

    watched: bool = False
    still: bool = False
    compared: bool = True
    polled: bool = False
    taking_in: bool = False
    pending: int = 0
    failing: bool = False
    notice: str = ""


@dataclass
class _State:
    watcher: Watcher | None = None
    still: bool = False
    compared: bool = False
    polled: str = ""
    fault: str = ""
    astray: bool = False  # and its watcher was told to look
    paths: set[str] = field(default_factory=set)
    dirty: bool = False
    task: "asyncio.Task[None] | None" = None
    again: asyncio.TimerHandle | None = None


class CodexWatchers:
    """`changed` is awaited with the name of a codex whose files may have changed, one call at a time for each."""

    def __init__(self, library: Library, settings: WatchSettings, changed: Changed, *, on: bool) -> None:
        self._library = library
        self._settings = settings
        self._changed = changed
        self._on = on
        self._states: dict[str, _State] = {}

    def follow(self, name: str, wanted: bool | None = None) -> None:
        """Starts to follow a codex, anew if need be; with `wanted` False it is no longer followed."""
        self.forget(name)
        if self._on if wanted is None else wanted:
            state = self._states[name] = _State()
            self._note(name, state)  # what changed before anybody looked is found by comparing once

    def forget(self, name: str) -> None:
        state = self._states.pop(name, None)
        if state is not None:
            state.dirty = False
            if state.again is not None:
                state.again.cancel()
            _unwatch(state)

    def state(self, name: str) -> WatchStatus:
        state = self._states.get(name)
        if state is None or state.still:
            return WatchStatus(still=state is not None)
        running = state.task is not None and not state.task.done()
        astray = _is_astray(state)
        return WatchStatus(
            watched=True,
            compared=state.compared and not astray,
            polled=bool(state.polled),
            taking_in=running,
            pending=len(state.paths) if running else 0,
            failing=bool(state.fault),
            notice=state.fault or state.polled,
        )

    async def stop(self) -> None:
        tasks = [state.task for state in self._states.values() if state.task is not None]
        for name in list(self._states):
            await asyncio.to_thread(self.forget, name)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- what changed

    def _note(self, name: str, state: _State, paths: frozenset[str] = frozenset()) -> None:
        """What changed is found by comparing, not believed; the paths are only counted."""
        if self._states.get(name) is not state:
            return
        state.dirty = True
        state.paths |= paths
        if state.task is None or state.task.done():
            state.task = asyncio.create_task(self._take_in(name, state), name=f"changes of {name}")

    async def _take_in(self, name: str, state: _State) -> None:
        while state.dirty:
            state.dirty = False
            coming, state.paths = state.paths, set(state.paths)
            try:
                await asyncio.to_thread(_unwatch_astray, state)
                await self._watched(name, state)
                await self._changed(name)
            except (CodexError, LoreError, OSError) as error:
                await self._failed(name, state, str(error))
                return
            state.paths -= coming
            state.compared = True
            if state.fault:
                state.fault = ""
                log.info("codex %s is followed again", name)

    async def _failed(self, name: str, state: _State, why: str) -> None:
        """A folder that is gone has no watches that could tell of its return: it is looked for, and watched anew."""
        if why != state.fault:
            log.warning("changes of codex %s were not taken in: %s", name, why)
        state.fault = why
        state.paths.clear()
        await asyncio.to_thread(_unwatch, state)
        if self._states.get(name) is state:
            state.again = asyncio.get_running_loop().call_later(self._settings.poll_s, self._note, name, state)

    # -- the watcher

    async def _watched(self, name: str, state: _State) -> None:
        """There is a watcher from now on. Raises CodexError, OSError."""
        if state.watcher is not None or state.still:
            return
        making = asyncio.ensure_future(asyncio.to_thread(self._watch, name, state, asyncio.get_running_loop()))
        try:
            await asyncio.shield(making)
        finally:
            if self._states.get(name) is not state:  # forgotten meanwhile; a thread goes on when its task is cancelled
                await asyncio.wait([making])
                await asyncio.to_thread(_unwatch, state)

    def _watch(self, name: str, state: _State, loop: asyncio.AbstractEventLoop) -> None:
        state.polled = ""
        forest = self._library.tree(name)
        if not any(isinstance(tree, DiskTree) for _, tree in forest.trees):
            forest.close()
            state.still = True  # a commit does not change
            return
        watcher = Watcher(
            forest,
            self._settings,
            lambda batch: self._from_thread(loop, name, state, batch),
            lambda notice: setattr(state, "polled", notice),
        )
        watcher.start()
        state.watcher = watcher

    def _from_thread(self, loop: asyncio.AbstractEventLoop, name: str, state: _State, batch: ChangeBatch) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._note, name, state, batch.paths)


def _is_astray(state: _State) -> bool:
    """Whether other folders are watched than the codex is loaded from by now; asked before anybody is told otherwise."""
    watcher = state.watcher
    astray = watcher is not None and watcher.is_astray()
    if watcher is not None and astray and not state.astray:
        state.astray = True
        watcher.look_again()
    return astray


def _unwatch_astray(state: _State) -> None:
    if state.watcher is not None and state.watcher.is_astray():
        state.compared = False
        _unwatch(state)


def _unwatch(state: _State) -> None:
    watcher, state.watcher = state.watcher, None
    state.astray = False
    if watcher is not None:
        watcher.stop()
