"""Follows the disk: reports in batches that a codex may have changed. A comparison finds the changes, not the events.

    events ─▶ drop ignored ones ─▶ gather until quiet ─▶ changed(ChangeBatch)
    no watches left ─▶ polling, with a notice that names the limit        queue overflowed ─▶ compare everything

A watch stays on its folder when the folder is moved: `is_astray` says that the path now leads to another folder, or to
none. Events can be lost in many ways, so everything is compared at intervals. Each codex has its own thread, which reads
events and calls `changed`, so batches never overlap. `gathering` decides when a batch is complete. Once all is to be
compared, further events of files say nothing new: in a stream of thousands they are not looked at.

The path to a root: which entries of which folders decide where it leads, and whether it still leads where it did.

    /srv/app/current ─▶ entries srv · app · current, and current being a link to releases/1: releases · 1

The watches below do not report a folder above that is renamed, or a link that is changed; so these entries are watched too.
"""

import errno
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codex.errors import GitError
from codex.following.gathering import ChangeBatch, Gathering
from codex.following.inotify import Bell, FolderWatches, Happened, WatchLimit
from codex.settings import WatchSettings
from codex.trees.ignore import GIT_IGNORE, LORE_IGNORE
from codex.trees.opening import MultiRootTree
from codex.trees.walk import DiskTree, is_linked_worktree

_GIT_LOCK = "index.lock"
_GIT_FILES = {"HEAD", "index"}  # replaced by checkout and commit
_GIT_RULES = {"config", "info"}  # the file that may name other rules; the folder of `exclude`, made late
_RULE_FILES = frozenset({GIT_IGNORE, LORE_IGNORE})
_MOMENT_S = 0.05  # events that come together are sorted together: each waking takes Python's lock from others
_MOST_LINKS = 40  # as the kernel follows; beyond it the path leads nowhere
Folder = tuple[int, int]
"""Which folder a path means, whatever it is called: its device and its number there."""


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
            _Watched(label, tree, folder_at(tree.root), version_control(tree))
            for label, tree in forest.trees
            if isinstance(tree, DiskTree)
        ]
        self._settings = settings
        self._changed = changed
        self._notice = notice
        self._clock = clock
        self._gathering = Gathering(settings)
        self._bell = Bell()
        self._stopping = threading.Event()
        self._lost = False  # somebody wants all to be watched and compared again
        self._stale = False  # the rules changed, or events were lost: all watches anew with the next batch
        self._watches: FolderWatches | None = None
        self._telling: frozenset[bytes] = frozenset()  # names of files that say more than that they changed
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
        return any(
            folder_at(root.tree.root) != root.folder or not _leads_to(root.folder, root.tree) for root in self._roots
        )

    def look_again(self) -> None:
        """Watch and compare everything again; from any thread."""
        self._lost = True
        self._bell.ring()

    def start(self) -> None:
        """Begin. Earlier changes are not reported: compare once after this returns. Does nothing for a commit's tree.
        Raises OSError, also where there is no thread, and leaves nothing behind then."""
        if not self._roots:
            return
        try:
            self._watch_all()
            self._thread.start()
        except RuntimeError as error:
            self.stop()
            raise BlockingIOError(errno.EAGAIN, "no thread can be started now") from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End; no batch is reported after this returns."""
        self._stopping.set()
        self._bell.ring()
        if self._thread.is_alive():
            self._thread.join()
        self._bell.close()
        self._drop_watches()

    def step(self) -> ChangeBatch | None:
        """Sort what happened; then the batch that is due, without what is ignored, or None."""
        now = self._clock()
        if self._lost:
            self._lost = False
            self._anew(now)
        if self._watches is not None:
            self._sort(now, self._watches.read(self._telling if self._gathering.everything else None))
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
        due = self._gathering.due()
        until = self._next_compare if due is None else min(due, self._next_compare)
        if self._bell.wait(self._watches, max(0.0, until - self._clock())):
            self._stopping.wait(min(_MOMENT_S, self._settings.debounce_s / 4))
        return not self._stopping.is_set()

    def _sort(self, now: float, events: Sequence[Happened]) -> None:
        appeared: dict[int, list[str]] = {}
        for event in events:
            if event.overflow:
                self._anew(now)
            if not event.path:
                self._gathering.note(now)
                continue
            for number, root in enumerate(self._roots):
                self._sort_one(now, event, root, appeared.setdefault(number, []))
        for number, paths in appeared.items():
            if paths and self._watch(self._roots[number], paths):
                self._gathering.note(now, everything=True)  # what was in them already had no event

    def _sort_one(self, now: float, event: Happened, root: _Watched, appeared: list[str]) -> None:
        folder, _, name = event.path.rpartition("/")
        top = str(root.tree.root)
        if event.path in root.excludes or (event.path in root.way and (event.appeared or event.gone)):
            self._anew(now)
        elif root.git_folder is not None and folder == str(root.git_folder):
            self._sort_git(now, event, name)
        elif event.path == top and event.gone:
            self._anew(now)
        elif not event.path.startswith(f"{top}/"):
            return
        elif event.is_folder and event.appeared:
            appeared.append(event.path[len(top) + 1 :])
        elif event.is_folder and event.gone:
            self._gathering.note(now, everything=True)
        elif not event.is_folder:
            self._sort_file(now, root, event.path[len(top) + 1 :])

    def _sort_git(self, now: float, event: Happened, name: str) -> None:
        if name == _GIT_LOCK and event.appeared:
            self._gathering.hold(now)
        elif name == _GIT_LOCK and event.gone:
            self._gathering.release(now)
        elif name in _GIT_RULES and (event.appeared or not event.is_folder):
            self._anew(now)
        elif name in _GIT_FILES and event.appeared:
            self._gathering.note(now, everything=name == "HEAD", commit=True)

    def _anew(self, now: float) -> None:
        """Rules changed, or nobody knows what did."""
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
            self._watches = FolderWatches()
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
        entries = [path.rpartition("/")[2] for root in self._roots for path in (*root.way, *root.excludes)]
        names = (*_RULE_FILES, _GIT_LOCK, *_GIT_FILES, *_GIT_RULES, *entries)
        self._telling = frozenset(map(os.fsencode, names))

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
            f"{names}: no file watches are left after {had}, so the disk is compared every {self._settings.poll_s:g} s; "
            f"raise {limit.name} and load again"
        )

    def _drop_watches(self) -> None:
        watches, self._watches = self._watches, None
        if watches is not None:
            watches.close()


# -- where in a folder tree a change can matter


def folders(tree: DiskTree, below: Sequence[str] = ("",)) -> Iterator[Path]:
    """The root, or `below` (raw and relative), and every folder in it; what is ignored is not entered."""
    if tree.files is not None:
        yield tree.root
        return
    level = [*below] if "" in below else _entered(tree, [*below])
    while level:
        yield from (tree.root / folder for folder in level)
        level = _entered(tree, [inside for folder in level for inside in _folders_in(tree.root, folder)])


def relevant(tree: DiskTree, paths: Iterable[str]) -> set[str]:
    """Of raw relative paths those that may be in the codex, or have been; a rule file is always relevant."""
    if tree.files is not None:
        return set(paths) & set(tree.files)
    kept = {path for path in paths if is_rule_file(path) or tree.selection.verdict(path, 0, tree.rules) is None}
    return kept - tree.hidden([path for path in kept if not is_rule_file(path)])


def is_rule_file(path: str) -> bool:
    """Whether a change of this file changes what belongs to the codex."""
    return path.rpartition("/")[2] in _RULE_FILES


def version_control(tree: DiskTree) -> Path | None:
    """The folder of git's lock file and of HEAD; None outside a repository."""
    repository = tree.repository()
    try:
        return None if repository is None or tree.files is not None else repository.git_folder()
    except GitError:
        return None


def exclude_files(tree: DiskTree) -> frozenset[str]:
    """Absolute paths of the rules that git reads beside those in the tree, and of what they are links to."""
    repository = tree.repository()
    if repository is None or tree.files is not None:
        return frozenset()
    try:
        found = repository.exclude_files()
    except GitError:
        return frozenset()
    return frozenset(str(path) for path in found) | {os.path.realpath(path) for path in found}


def folder_at(path: str | Path) -> Folder | None:
    """The folder at a path; None when there is none, or it cannot be read."""
    try:
        facts = os.stat(path)  # noqa: PTH116 - asked with every question: a Path costs more than the kernel
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _leads_to(folder: Folder | None, tree: DiskTree) -> bool:
    """Whether what was named still means the watched folder, or its files."""
    if tree.files:
        return leads_there(tree)
    root = str(tree.root)
    return all(path == root or folder_at(path) == folder for path in tree.named)


def leads_there(tree: DiskTree) -> bool:
    """Whether what was named to be loaded, links and all, still means the tree's root, or its files."""
    return {os.path.realpath(path) for path in tree.named} == _ends(tree)


def entries(tree: DiskTree) -> frozenset[str]:
    """Absolute paths of entries whose change may lead elsewhere. Files themselves are none: editors replace them."""
    found = {entry for path in (*tree.named, *_ends(tree)) for entry in entries_of(path)}
    return frozenset(found - _ends(tree) if tree.files else found)


def entries_of(path: str) -> list[str]:
    """Of an absolute path, in the order in which the kernel looks them up; the folder of each is free of links."""
    waiting, at, links = path.split("/")[::-1], "", 0
    found: list[str] = []
    while waiting:
        name = waiting.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = at.rpartition("/")[0]
            continue
        found.append(f"{at}/{name}")
        target = _target(found[-1])
        if target is None:
            at = found[-1]
            continue
        links += 1
        if links > _MOST_LINKS:
            break
        at = "" if target.startswith("/") else at
        waiting += target.split("/")[::-1]
    return found


def by_folder(paths: Iterable[str]) -> Mapping[str, Collection[str]]:
    """Entries' names by the folder that they are in."""
    found: dict[str, set[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        found.setdefault(folder or "/", set()).add(name)
    return found


def _entered(tree: DiskTree, candidates: list[str]) -> list[str]:
    allowed = [
        folder
        for folder in candidates
        if tree.selection.enters(folder, tree.rules) and not is_linked_worktree(tree.root / folder)
    ]
    hidden = tree.hidden([folder + "/" for folder in allowed])
    return [folder for folder in allowed if folder + "/" not in hidden]


def _folders_in(root: Path, folder: str) -> list[str]:
    prefix = f"{folder}/" if folder else ""
    try:
        with os.scandir(root / folder) as entries:
            return sorted(prefix + entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _ends(tree: DiskTree) -> set[str]:
    return {str(tree.root / name) for name in tree.files} if tree.files else {str(tree.root)}


def _target(path: str) -> str | None:
    """The target of a link; None when the path is no link or does not exist."""
    try:
        return os.readlink(path)  # noqa: PTH115 - a Path would drop its `..` and `.`, and cost more
    except OSError:
        return None
