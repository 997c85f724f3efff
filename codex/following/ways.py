"""The way to a root: which entries of which folders decide where a path leads, and whether it still leads where it did.

    /srv/app/current ─▶ entries srv · app · current, and current being a link to releases/1: releases · 1

A watch stays on its folder wherever that is moved to, so of a folder above that is renamed, or of a link that is pointed
elsewhere, nothing is told by the watches below. Reads the disk, knows no events.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from codex.trees.walk import DiskTree

_MOST_LINKS = 40  # as the kernel follows; beyond it the path leads nowhere


@dataclass(frozen=True, slots=True)
class Folder:
    """Which folder a path means, whatever it is called: its device and its number there."""

    device: int
    inode: int


def folder_at(tree: DiskTree) -> Folder | None:
    """The folder that stands where the tree's root should; None: there is none, or it cannot be looked at."""
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


def _ends(tree: DiskTree) -> set[str]:
    return {str(tree.root / name) for name in tree.files} if tree.files else {str(tree.root)}


def _target(path: str) -> str | None:
    """What a link says; None for what is none, or is not there."""
    try:
        return os.readlink(path)  # noqa: PTH115 - a Path would drop its `..` and `.`, and cost more
    except OSError:
        return None
