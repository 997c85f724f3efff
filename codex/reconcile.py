"""Compares a generation with what the disk holds now. Pure: reading has been done before."""

from dataclasses import dataclass

from codex.catalog.generations import FileEntry, Generation
from codex.ingest import IngestResult
from codex.trees.port import TreeState


@dataclass(frozen=True)
class Changes:
    """How the disk differs from `base`. Each tuple is sorted by path; contents of all entries are in the catalog."""

    base: Generation
    current: tuple[FileEntry, ...]  # everything on disk
    changed: tuple[FileEntry, ...]
    added: tuple[FileEntry, ...]
    removed: tuple[str, ...]
    state: TreeState
    notices: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.added or self.removed)


def changes_between(base: Generation, taken: IngestResult, state: TreeState) -> Changes:
    """What was changed, added and removed since `base`."""
    old = base.digests()
    return Changes(
        base=base,
        current=taken.entries,
        changed=tuple(one for one in taken.entries if old.get(one.path, one.digest) != one.digest),
        added=tuple(one for one in taken.entries if one.path not in old),
        removed=tuple(sorted(old.keys() - {one.path for one in taken.entries})),
        state=state,
        notices=taken.notices,
    )
