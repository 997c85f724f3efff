"""The port between the places of files and the load that reads them: a tree is scanned, then read file by file.

Two trees implement it: `codex.trees.walk.DiskTree` (folders on disk) and `codex.trees.opening.RevisionTree` (a commit in a
git repository); several of them under one name are a `codex.trees.opening.MultiRootTree`.

`by_commits` and `by_age` are the two scales of a file's volatility: how often it changes, in few steps, 0 hardly ever.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from codex.progress import Cancelled, Step, never, uncounted
from codex.trees.ignore import SkipReason

_DAY_NS = 86_400 * 1_000_000_000
_OLDEST = 12  # steps of age: 2**12 days are eleven years
BEING_WRITTEN = 99  # volatility of a file that differs from the commit or is not in version control yet


@dataclass(frozen=True, slots=True)
class CandidateFile:
    """A file that may be loaded. Same `path` and same `stamp`: same bytes, so it need not be read again."""

    path: str  # safe name in the codex
    origin: str  # what the tree reads it by; opaque to everyone else
    size: int  # bytes, as found at the scan
    stamp: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file (or, with a closing /, a folder) that is left out, and why."""

    path: str
    reason: SkipReason


@dataclass(frozen=True)
class Scan:
    """What a tree holds now, in an order that depends on names alone."""

    candidates: tuple[CandidateFile, ...]
    skipped: tuple[Skipped, ...] = ()
    notices: tuple[str, ...] = ()

    def reasons(self) -> dict[str, int]:
        """How many were left out for each reason."""
        return dict(Counter(str(one.reason) for one in self.skipped))


@dataclass(frozen=True, slots=True)
class FileBytes:
    """A file's bytes; `stamp` is empty when the file may have changed while, or just before, it was read."""

    raw: bytes
    stamp: str


@dataclass(frozen=True, slots=True)
class TreeState:
    """Which state of the code this is, in version control's words; None where there is none."""

    branch: str | None = None
    revision: str | None = None
    dirty: int = 0  # files that differ from the revision


class FileTree(Protocol):
    """Where a codex's files come from. Changes nothing on disk. Safe to read from several threads after `scan`."""

    def scan(self, cancelled: Cancelled = never, found: Step = uncounted) -> Scan:
        """All files by the rules, sorted by name; `found` is called for each.

        Raises SourceError when there is nothing to walk, or no longer, LoadCancelled.
        """

    def read(self, candidate: CandidateFile) -> FileBytes:
        """The candidate's bytes, at most one more than the size limit. Raises OSError: vanished, not readable; SourceError
        when all of the tree has vanished."""

    def state(self) -> TreeState:
        """Branch, revision and number of changed files."""

    def volatility(self, candidates: Sequence[CandidateFile]) -> Mapping[str, int]:
        """For each candidate's path how often it changes, in few steps: 0 hardly ever. Missing: not known."""

    def close(self) -> None:
        """Release what reading needed."""


def labelled_name(label: str, path: str) -> str:
    """A file's name as the codex has it, from its name below the root of that label."""
    return f"{label}/{path}" if label else path


def by_commits(commits: Mapping[str, int]) -> dict[str, int]:
    """Volatility from the number of recent commits that touched a file, in powers of two."""
    return {path: count.bit_length() for path, count in commits.items()}


def by_age(modified_ns: Mapping[str, int]) -> dict[str, int]:
    """Volatility from times of change, measured from the newest file and not from a clock, in powers of two days."""
    newest = max(modified_ns.values(), default=0)
    return {path: _OLDEST - min(_OLDEST, ((newest - at) // _DAY_NS).bit_length()) for path, at in modified_ns.items()}
