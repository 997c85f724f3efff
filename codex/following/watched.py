"""Where in a folder tree a change can matter: which folders to watch, which events to forget. Reads the disk, no events."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from codex.errors import GitError
from codex.trees.ignore import GIT_IGNORE, LORE_IGNORE
from codex.trees.walk import DiskTree, is_linked_worktree

_RULE_FILES = frozenset({GIT_IGNORE, LORE_IGNORE})


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
    """The folder in which git tells that it is at work and where HEAD is; None outside a repository."""
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
