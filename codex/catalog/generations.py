"""The values that the catalog keeps: a codex, its generations, and what each of them holds. No behaviour but names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from codex.trees.port import TreeState


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a generation: safe name, sha256 of its bytes, size in bytes."""

    path: str
    digest: str
    size: int


@dataclass(frozen=True)
class Generation:
    """A frozen state of a codex. `entries` have the order of the prompt."""

    codex: str
    number: int  # from 1, never used twice
    state: TreeState
    entries: tuple[FileEntry, ...]
    skipped: Mapping[str, int] = field(default_factory=dict)  # reason → files left out
    notices: tuple[str, ...] = ()
    why: str = ""  # it was made, where nobody asked for it

    @property
    def bytes(self) -> int:
        """Size of all files on disk."""
        return sum(entry.size for entry in self.entries)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Of its files, in order."""
        return tuple(entry.path for entry in self.entries)

    def digests(self) -> dict[str, str]:
        """Digest by path, in order."""
        return {entry.path: entry.digest for entry in self.entries}

    def label(self) -> str:
        """State of the code in words: `main@1a2b3c4 + 2 changed files`; empty outside version control."""
        if self.state.revision is None:
            return ""
        where = f"{self.state.branch or 'detached'}@{self.state.revision[:7]}"
        files = "file" if self.state.dirty == 1 else "files"
        return f"{where} + {self.state.dirty} changed {files}" if self.state.dirty else where


@dataclass(frozen=True)
class Codex:
    """A loaded codex. `source` is its key (`CodexSource.key`), `request` the load it was asked for with, as JSON."""

    name: str
    source: str
    roots: tuple[str, ...]  # absolute folders and single files, or URLs
    request: str
    newest: int | None  # number of its newest generation


@dataclass(frozen=True, slots=True)
class KnownFile:
    """What an earlier load found at a path: its stamp, and the digest of its bytes or the reason it was left out."""

    stamp: str
    digest: str | None
    size: int
    reason: str | None = None
    notice: str | None = None
