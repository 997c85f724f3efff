"""Follows the disk: reports in batches that a codex may have changed. A comparison finds the changes, not the events.

    events ─▶ drop ignored ones ─▶ gather until quiet ─▶ changed(ChangeBatch)
    no watches left ─▶ polling, with a notice that names the limit        queue overflowed ─▶ compare everything

A watch stays on its folder when the folder is moved: `is_astray` tells that the path now leads to another folder, or to
none. Events can be lost in many ways, so everything is compared at intervals. Each codex has its own thread; `changed` is
called in it, so batches never overlap.

`Gathering` decides when a batch is complete. It is pure: the time is passed in.

    state      leaves it by
    quiet      note → gathering
    gathering  due → quiet (the batch is taken) · hold → held
    held       release → gathering · too long → gathering

An editor's save is several events; a checkout is thousands, during which git holds `index.lock`: both are one batch.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codex.following.inotify import FolderWatches, Happened, WatchLimit
from codex.following.watched import (
    Folder,
    by_folder,
    entries,
    exclude_files,
    folder_at,
    folders,
    is_rule_file,
    leads_there,
    relevant,
    version_control,
)
from codex.settings import WatchSettings
from codex.trees.opening import MultiRootTree
from codex.trees.walk import DiskTree

_GIT_FILES = {"HEAD", "index"}  # replaced by checkout and commit
_GIT_RULES = {"config", "info"}  # the file that may name other rules; the folder of `exclude`, made late
_TOO_MANY = 2_000  # paths of one batch; beyond it a comparison of the whole tree is cheaper


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """What may have changed. `everything`: compare all, `paths` are then not complete.

    `commit`: version control moved on, so branch, revision or number of changed files may differ, whatever the files do.
    """

    paths: frozenset[str] = frozenset()
    everything: bool = False
    commit: bool = False


@dataclass(frozen=True, slots=True)
class _Watched:
    """One root: its tree, the label of its names, and what is watched of git's rules outside the tree.

    `folder`: the root's folder when the watches were made.
    """

    label: str
    tree: DiskTree
    folder: Folder | None
    git_folder: Path | None  # git's own
    excludes: set[str] = field(default_factory=set)
    way: set[str] = field(default_factory=set)  # entries that decide where the path leads


class Watcher:
    """Watches one codex. `changed` receives batches, `notice` messages for the user; neither may raise."""

    def __init__(
        self,
        forest: MultiRootTree,
        settings: WatchSettings,
        changed: Callable[[ChangeBatch], None],
        notice: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._roots = [
            _Watched(label, tree, folder_at(tree), version_control(tree))
            for label, tree in forest.trees
            if isinstance(tree, DiskTree)
        ]
        self._settings = settings
        self._changed = changed
        self._notice = notice
        self._clock = clock
        self._gathering = Gathering(settings)
        self._news = threading.Condition()
        self._events: list[Happened] = []
        self._stopping = False
        self._stale = False  # the rules changed, or events were lost: all watches anew with the next batch
        self._watches: FolderWatches | None = None
        self._polling = False
        self._next_compare = clock() + settings.reconcile_s
        self._thread = threading.Thread(target=self._run, name="codex-watch", daemon=True)

    @property
    def is_polling(self) -> bool:
        """Whether there are no watches and the tree is compared every few seconds instead."""
        return self._polling

    def is_astray(self) -> bool:
        """Whether the path leads to another folder than the watched one; this watcher must then be replaced.

        Costs a few system calls for each root. While it polls, folders are not compared by number: without a watch that
        holds the folder, a file system may change its number.
        """
        if self._polling:
            return not all(leads_there(root.tree) for root in self._roots)
        return any(not leads_there(root.tree) or folder_at(root.tree) != root.folder for root in self._roots)

    def look_again(self) -> None:
        """Watch and compare everything again; from any thread."""
        self.happened(Happened("", overflow=True))

    def start(self) -> None:
        """Begin. Earlier changes are not reported: compare once after this returns. Does nothing for a commit's tree."""
        if self._roots:
            self._watch_all()
            self._thread.start()

    def stop(self) -> None:
        """End; no batch is reported after this returns."""
        with self._news:
            self._stopping = True
            self._news.notify()
        if self._thread.is_alive():
            self._thread.join()
        self._drop_watches()

    def happened(self, event: Happened) -> None:
        """Queue one event; called by the reader of events, which must not wait."""
        with self._news:
            self._events.append(event)
            self._news.notify()

    def step(self) -> ChangeBatch | None:
        """Sort what happened; then the batch that is due, without what is ignored, or None."""
        now = self._clock()
        with self._news:
            events, self._events = self._events, []
        self._sort(now, events)
        if now >= self._next_compare:
            self._gathering.note(now, everything=True)
            self._next_compare = now + (self._settings.poll_s if self.is_polling else self._settings.reconcile_s)
        batch = self._gathering.take(now)
        if batch is None:
            return None
        if self._stale:
            self._watch_all()
        return self._without_ignored(batch)

    def _run(self) -> None:
        while self._wait():
            batch = self.step()
            if batch is not None:
                self._changed(batch)

    def _wait(self) -> bool:
        """Until there is something to do; False: to stop."""
        with self._news:
            due = self._gathering.due()
            until = self._next_compare if due is None else min(due, self._next_compare)
            self._news.wait_for(lambda: self._stopping or bool(self._events), max(0.0, until - self._clock()))
            return not self._stopping

    def _sort(self, now: float, events: Sequence[Happened]) -> None:
        appeared: dict[int, list[str]] = {}
        for event in events:
            if event.overflow:
                self._stale = True
                self._gathering.note(now, everything=True)
            for number, root in enumerate(self._roots):
                self._sort_one(now, event, root, appeared.setdefault(number, []))
        for number, paths in appeared.items():
            if paths and self._watch(self._roots[number], paths):
                self._gathering.note(now, everything=True)  # what was in them already had no event

    def _sort_one(self, now: float, event: Happened, root: _Watched, appeared: list[str]) -> None:
        folder, _, name = event.path.rpartition("/")
        top = str(root.tree.root)
        if event.path in root.way and (event.appeared or event.gone):
            self._stale = True
            self._gathering.note(now, everything=True)
        elif event.path in root.excludes:
            self._rules_changed(now)
        elif root.git_folder is not None and folder == str(root.git_folder):
            self._sort_git(now, event, name)
        elif event.path == top and event.gone:
            self._stale = True
            self._gathering.note(now, everything=True)
        elif not event.path.startswith(f"{top}/"):
            return
        elif event.is_folder and event.appeared:
            appeared.append(event.path[len(top) + 1 :])
        elif event.is_folder and event.gone:
            self._gathering.note(now, everything=True)
        elif not event.is_folder:
            self._sort_file(now, root, event.path[len(top) + 1 :])

    def _sort_git(self, now: float, event: Happened, name: str) -> None:
        if name == "index.lock" and event.appeared:
            self._gathering.hold(now)
        elif name == "index.lock" and event.gone:
            self._gathering.release(now)
        elif name in _GIT_RULES and (event.appeared or not event.is_folder):
            self._rules_changed(now)
        elif name in _GIT_FILES and event.appeared:
            self._gathering.note(now, everything=name == "HEAD", commit=True)

    def _rules_changed(self, now: float) -> None:
        self._stale = True
        self._gathering.note(now, everything=True)

    def _sort_file(self, now: float, root: _Watched, path: str) -> None:
        self._stale = self._stale or is_rule_file(path)
        self._gathering.note(now, f"{root.label}/{path}" if root.label else path, everything=is_rule_file(path))

    def _without_ignored(self, batch: ChangeBatch) -> ChangeBatch | None:
        kept: set[str] = set()
        for root in self._roots:
            lead = f"{root.label}/" if root.label else ""
            own = {path.removeprefix(lead) for path in batch.paths if path.startswith(lead)}
            kept |= {lead + path for path in relevant(root.tree, own)}
        if kept or batch.everything or batch.commit:
            return ChangeBatch(frozenset(kept), batch.everything, batch.commit)
        return None

    def _watch_all(self) -> None:
        """All watches anew: rules and folders as they are now."""
        self._stale = False
        self._drop_watches()
        self._polling = False
        try:
            self._watches = FolderWatches(self.happened)
            for root in self._roots:
                self._watch_way(root, self._watches)
                root.tree.forget_rules()
                if root.git_folder is not None:
                    self._watches.add(root.git_folder)
                    self._watch_excludes(root, self._watches)
        except WatchLimit as limit:
            self._poll(limit)
        for root in self._roots:
            self._watch(root, [""])

    def _watch_way(self, root: _Watched, watches: FolderWatches) -> None:
        root.way.clear()
        root.way.update(entries(root.tree))
        for folder, names in by_folder(root.way).items():
            watches.add(Path(folder), names)

    def _watch_excludes(self, root: _Watched, watches: FolderWatches) -> None:
        """By their folders: editors replace files."""
        root.excludes.clear()
        root.excludes.update(exclude_files(root.tree))
        for folder in {Path(path).parent for path in root.excludes}:
            watches.add(folder)

    def _watch(self, root: _Watched, below: Sequence[str]) -> bool:
        """Whether there was any folder to watch."""
        found = False
        try:
            for folder in folders(root.tree, below):
                found = True
                if self._watches is not None:
                    self._watches.add(folder)
        except WatchLimit as limit:
            self._poll(limit)
        return found

    def _poll(self, limit: WatchLimit) -> None:
        names = ", ".join(str(root.tree.root) for root in self._roots)
        had = 0 if self._watches is None else len(self._watches)
        self._drop_watches()
        self._polling = True
        self._next_compare = self._clock() + self._settings.poll_s
        self._notice(
            f"{names}: the kernel has no file watches left after {had}, so the disk is compared every "
            f"{self._settings.poll_s:g} s; raise {limit.sysctl} (sysctl -w {limit.sysctl}=N) and load again"
        )

    def _drop_watches(self) -> None:
        watches, self._watches = self._watches, None
        if watches is not None:
            watches.close()


class Gathering:
    """One codex's gathering; used by one thread at a time. Times are seconds of one monotonic clock."""

    def __init__(self, settings: WatchSettings) -> None:
        self._settings = settings
        self._paths: set[str] = set()
        self._everything = False
        self._commit = False
        self._first: float | None = None
        self._last = 0.0
        self._held_since: float | None = None

    def note(self, now: float, path: str | None = None, *, everything: bool = False, commit: bool = False) -> None:
        """Something happened to `path`, or to more than one could name."""
        self._first = now if self._first is None else self._first
        self._last = now
        self._everything = self._everything or everything
        self._commit = self._commit or commit
        if path is not None:
            self._paths.add(path)
        if len(self._paths) > _TOO_MANY:
            self._everything = True
            self._paths.clear()

    def hold(self, now: float) -> None:
        """Version control is at work: its changes are reported when it has ended."""
        self._held_since = now if self._held_since is None else self._held_since

    def release(self, now: float) -> None:
        """Version control is done."""
        self._held_since = None
        if self._first is not None:
            self._first = self._last = now

    def due(self) -> float | None:
        """When the batch can be taken; None when there is none."""
        if self._first is None:
            return None
        quiet = min(self._last + self._settings.debounce_s, self._first + self._settings.longest_wait_s)
        return quiet if self._held_since is None else max(quiet, self._held_since + self._settings.longest_hold_s)

    def take(self, now: float) -> ChangeBatch | None:
        """The batch if it is due, and a fresh start; else None."""
        due = self.due()
        if due is None or now < due:
            return None
        batch = ChangeBatch(frozenset(self._paths), self._everything, self._commit)
        self._paths = set()
        self._everything = self._commit = False
        self._first = None
        self._held_since = None
        return batch
