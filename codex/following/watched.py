"""Where in a folder tree a change can matter: folders to watch, events to drop, and the path to the root.

The path to a root: which entries of which folders decide where it leads, and whether it still leads where it did.

    /srv/app/current ─▶ entries srv · app · current, and current being a link to releases/1: releases · 1

A watch stays on its folder when the folder is moved. So the watches below do not report a folder above that is renamed, or
a link that is changed. Reads the disk, knows no events.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codex.errors import GitError
from codex.trees.ignore import GIT_IGNORE, LORE_IGNORE
from codex.trees.walk import DiskTree, is_linked_worktree

_RULE_FILES = frozenset({GIT_IGNORE, LORE_IGNORE})
_MOST_LINKS = 40  # as the kernel follows; beyond it the path leads nowhere


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


@dataclass(frozen=True, slots=True)
class Folder:
    """Which folder a path means, whatever it is called: its device and its number there."""

    device: int
    inode: int


def folder_at(tree: DiskTree) -> Folder | None:
    """The folder at the path of the tree's root; None when there is none, or it cannot be read."""
    try:
        facts = tree.root.stat()
    except OSError:
        return None
    return Folder(facts.st_dev, facts.st_ino)


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
