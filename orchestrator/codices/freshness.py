"""How true a codex is to its files: the watchers that follow the disk, and what everybody says of it.

    watcher's thread ─ batch ─▶ event loop ─▶ `changed`: library.follow in a thread, the codex gets the new log
                                    ▲                     │ fails: the folder is gone, another process loads it
                                    └── again, later ─────┘ and is followed anew when it works

`Freshness` is made of what load, archive and watcher report, and is the same for all who ask. `word` is for a column,
`notice` says what should be known of it, `unseen` what a search may not see at this moment. Of a codex that nobody follows,
the files that are shown are compared with the disk at once, all others behind the answer.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from codex.errors import CodexError
from codex.following import comparing
from codex.following.comparing import Comparing
from codex.following.gathering import ChangeBatch, Pace
from codex.following.watch import Watcher
from codex.library import Library
from codex.settings import WatchSettings
from codex.trees.walk import DiskTree
from orchestrator.codices.archive import ArchiveUpkeep
from orchestrator.codices.lifecycle import CodexLifecycle
from orchestrator.codices.state_store import CodexStateStore
from orchestrator.errors import LoreError

log = logging.getLogger("lorekeep.watch")

Changed = Callable[[str], Awaitable[None]]
COMPARED = "being compared with the disk"
NAMED = 3  # files that a notice names


@dataclass(frozen=True)
class WatchStatus:
    """How a codex is followed now. `still`: it is a commit, which does not change. `compared`: with the disk, once at least
    since it is followed, and its path still leads to what was compared. `pending` files have changed and are being applied
    (0: how many is not known). `notice`: why it is polled, or why changes cannot be applied."""

    watched: bool = False
    still: bool = False
    compared: bool = True
    polled: bool = False
    applying: bool = False
    pending: int = 0
    failing: bool = False
    notice: str = ""


@dataclass(frozen=True)
class Freshness:
    """`loading`, `indexing`: what a search may not see because of them, '' when they are not under way.

    `loaded`: to the end, once. `failed`: why its last load ended early. `since`: when the files were
    compared last, in seconds since 1970, where nobody follows them. `outside`: how they differ from the disk, as far as
    somebody looked since. `lost`: why nothing of it is kept.
    """

    name: str
    followed: WatchStatus = field(default_factory=WatchStatus)
    loading: str = ""
    indexing: str = ""
    archive: str = ""
    failed: str = ""
    rebasing: bool = False
    loaded: bool = True
    since: float | None = None
    outside: str = ""
    lost: str = ""

    @property
    def word(self) -> str:
        """First match: being loaded · never loaded to the end · cannot be followed · being compared · taking in · polled ·
        watched."""
        if self.loading:
            return "being loaded"
        if not self.loaded:
            return "not loaded to the end"
        found = self._followed()
        return f"{found}, a new generation is on its way" if self.rebasing else found

    @property
    def notice(self) -> str:
        begun = f"its load ended early: {self.failed}" if self.failed else ""
        rest = "" if self.loaded or self.loading else load_or_drop(self.name)
        parts = (self.lost, begun, rest, self.followed.notice, self._left(), self.archive)
        return "; ".join(part for part in parts if part)

    @property
    def unseen(self) -> str:
        """'' when a search sees what is on disk, as far as anybody knows."""
        return "; ".join(part for part in (self.lost, self.loading, self.indexing, self._behind_disk()) if part)

    @property
    def is_behind(self) -> bool:
        """Whether something is being taken in, so that the same search may see more in a moment."""
        followed = self.followed
        applying = followed.watched and not followed.failing and (followed.applying or not followed.compared)
        return bool(self.loading or self.indexing or applying)

    def _followed(self) -> str:
        followed = self.followed
        if not followed.watched:
            return "not watched"
        if followed.failing:
            return "changes cannot be taken in"
        if not followed.compared:
            return COMPARED
        if followed.applying:
            many = {0: "changes are", 1: "1 changed file is"}.get(followed.pending)
            return f"{many or f'{followed.pending:,} changed files are'} being taken in"
        return "polled" if followed.polled else "watched"

    def _left(self) -> str:
        """Said of files that nobody follows, while they are not being loaded."""
        if self.followed.watched or self.followed.still or self.loading or not self.loaded:
            return ""
        when = "" if self.since is None else time.strftime(" since %Y-%m-%d %H:%M", time.localtime(self.since))
        found = f" ({self.outside})" if self.outside else ""
        return f"not followed{when}: what changed on disk is not in it{found}"

    def _behind_disk(self) -> str:
        if self.followed.failing:
            return f"changes of {self.name} cannot be taken in: {self.followed.notice}"
        if left := self._left():
            return f"{self.name}: {left}"
        behind = self.followed.applying or not self.followed.compared
        return f"{self.name}: {self._followed()}" if behind else ""


def load_or_drop(name: str) -> str:
    """What to do about a codex that is not loaded to the end."""
    return f"load again: it continues; or take it out: lore codex drop {name}"


class FreshnessGauge:
    """Reads it off. Waits for nothing. `loading` says what a search may not see because of a load, `failed` why the last
    one ended early; '' otherwise."""

    def __init__(
        self,
        library: Library,
        lifecycle: CodexLifecycle,
        store: CodexStateStore,
        upkeep: ArchiveUpkeep,
        watching: "CodexWatchers",
        loading: Callable[[str], str],
        failed: Callable[[str], str],
    ) -> None:
        self._library = library
        self._lifecycle = lifecycle
        self._store = store
        self._upkeep = upkeep
        self._watching = watching
        self._loading = loading
        self._failed = failed
        self.comparing = Comparing(library.outside)

    def of(self, name: str, *, loaded: bool = True) -> Freshness:
        followed = self._watching.status(name)
        since = None if followed.watched or followed.still else self._store.compared_at(name)
        return Freshness(
            name=name,
            followed=followed,
            loading=self._loading(name),
            indexing=self._upkeep.unseen(name),
            archive=self._upkeep.notice(name),
            failed=self._failed(name),
            rebasing=self._lifecycle.rebasing(name),
            loaded=loaded,
            since=since,
            outside=self.comparing.latest(name, since).in_words(),
            lost=self._library.catalog.misplaced(),
        )

    def unseen(self, name: str) -> str:
        return self.of(name).unseen

    def outdated(self, name: str, paths: Iterable[str]) -> str:
        """What of these files, which are shown, is otherwise on disk, or that the revision that was loaded means another
        commit by now; '' where it is the same, and of a codex that is followed. Has the other files compared, for whoever
        asks next. For a worker thread."""
        if self._watching.follows(name):
            return ""
        try:
            if comparing.is_folders(self._library, name):
                self.comparing.want(name, self._store.compared_at(name))
            return comparing.moved(self._library, name) or differing(comparing.differing(self._library, name, paths))
        except CodexError as fault:
            return f"what is on disk cannot be compared: {fault}"


def differing(paths: tuple[str, ...]) -> str:
    """In words, with the first of them by name."""
    if not paths:
        return ""
    more = f" and {len(paths) - NAMED:,} more" if len(paths) > NAMED else ""
    what = "1 file that is shown differs" if len(paths) == 1 else f"{len(paths):,} files that are shown differ"
    return f"{what} on disk: {', '.join(paths[:NAMED])}{more}"


# -- following the disk


@dataclass
class _Followed:
    """A codex that is followed. `dirty`: it may differ from the disk; `paths`: what has changed, to be counted alone."""

    watcher: Watcher | None = None
    still: bool = False
    compared: bool = False
    polled: str = ""
    fault: str = ""
    astray: bool = False  # and its watcher was asked to look again
    paths: set[str] = field(default_factory=set)
    dirty: bool = False
    task: "asyncio.Task[None] | None" = None
    again: asyncio.TimerHandle | None = None
    pace: Pace = field(default_factory=Pace)


class CodexWatchers:
    """`changed` is awaited with the name of a codex whose files may have changed, one call at a time for each."""

    def __init__(self, library: Library, settings: WatchSettings, changed: Changed, *, on: bool) -> None:
        self._library = library
        self._settings = settings
        self._changed = changed
        self._on = on
        self._states: dict[str, _Followed] = {}

    def follow(self, name: str, wanted: bool | None = None) -> None:
        """Starts to follow a codex, anew if need be; with `wanted` False it is no longer followed."""
        self.forget(name)
        if self._on if wanted is None else wanted:
            state = self._states[name] = _Followed()
            self._note(name, state)  # what changed before anybody looked is found by comparing once

    def forget(self, name: str) -> None:
        state = self._states.pop(name, None)
        if state is not None:
            state.dirty = False
            if state.again is not None:
                state.again.cancel()
            _unwatch(state)

    def follows(self, name: str) -> bool:
        """Whether its files are followed, or are about to be. Asks nothing of the disk."""
        state = self._states.get(name)
        return state is not None and not state.still

    def status(self, name: str) -> WatchStatus:
        state = self._states.get(name)
        if state is None or state.still:
            return WatchStatus(still=state is not None)
        running = state.task is not None and not state.task.done()
        astray = _is_astray(state)
        return WatchStatus(
            watched=True,
            compared=state.compared and not astray,
            polled=bool(state.polled),
            applying=running,
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

    def _note(self, name: str, state: _Followed, paths: frozenset[str] = frozenset()) -> None:
        """What changed is found by comparing, not believed; the paths are only counted."""
        if self._states.get(name) is not state:
            return
        state.dirty = True
        state.paths |= paths
        if state.task is None or state.task.done():
            state.task = asyncio.create_task(self._apply(name, state), name=f"changes of {name}")

    async def _apply(self, name: str, state: _Followed) -> None:
        while await self._may_begin(state):
            state.dirty, began = False, time.monotonic()
            coming, state.paths = state.paths, set(state.paths)
            try:
                await asyncio.to_thread(_unwatch_astray, state)
                await self._watched(name, state)
                await self._changed(name)
            except (CodexError, LoreError, OSError) as error:
                await self._failed(name, state, str(error))
                return
            finally:
                state.pace.ended(began, time.monotonic())
            state.paths -= coming
            state.compared = True
            if state.fault:
                state.fault = ""
                log.info("codex %s is followed again", name)

    async def _may_begin(self, state: _Followed) -> bool:
        """Whether there is something to take in, once it has rested from the last time."""
        if state.dirty and (left := state.pace.left(time.monotonic())):
            await asyncio.sleep(left)
        return state.dirty

    async def _failed(self, name: str, state: _Followed, why: str) -> None:
        """A folder that is gone has no watches that could tell of its return: it is looked for, and watched anew."""
        if why != state.fault and self._states.get(name) is state:  # one that was dropped meanwhile is gone for good
            log.warning("changes of codex %s were not taken in: %s", name, why)
        state.fault = why
        state.paths.clear()
        await asyncio.to_thread(_unwatch, state)
        if self._states.get(name) is state:
            state.again = asyncio.get_running_loop().call_later(self._settings.poll_s, self._note, name, state)

    # -- the watcher

    async def _watched(self, name: str, state: _Followed) -> None:
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

    def _watch(self, name: str, state: _Followed, loop: asyncio.AbstractEventLoop) -> None:
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

    def _from_thread(self, loop: asyncio.AbstractEventLoop, name: str, state: _Followed, batch: ChangeBatch) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._note, name, state, batch.paths)


def _is_astray(state: _Followed) -> bool:
    """Whether other folders are watched than the codex is loaded from by now; asked before anything is reported."""
    watcher = state.watcher
    astray = watcher is not None and watcher.is_astray()
    if watcher is not None and astray and not state.astray:
        state.astray = True
        watcher.look_again()
    return astray


def _unwatch_astray(state: _Followed) -> None:
    if state.watcher is not None and state.watcher.is_astray():
        state.compared = False
        _unwatch(state)


def _unwatch(state: _Followed) -> None:
    watcher, state.watcher = state.watcher, None
    state.astray = False
    if watcher is not None:
        watcher.stop()
