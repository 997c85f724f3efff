"""A commit inside a git repository as a tree: its files are read from git's own store and nothing is checked out.

So no filter or hook of a foreign repository ever runs, and the files cannot change under the reader.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from codex.documents import name_of
from codex.order import by_commits
from codex.progress import Cancelled, insist, never
from codex.trees.git import Blob, BlobReader, Git
from codex.trees.ignore import LORE_IGNORE, IgnoreRules, Selection, SkipReason
from codex.trees.port import CandidateFile, FileBytes, Scan, Skipped, TreeState


class RevisionTree:
    """The files of `revision` (a branch, tag or commit; HEAD by default) in the repository at `repository`."""

    def __init__(self, repository: Path, revision: str | None, selection: Selection) -> None:
        self._git = Git(repository)
        self._asked = revision
        self._commit = self._git.resolve(revision or "HEAD")
        self._selection = selection
        self._reader = BlobReader(repository)

    def scan(self, cancelled: Cancelled = never) -> Scan:
        blobs = {os.fsdecode(blob.path): blob for blob in self._git.blobs(self._commit, cancelled)}
        rules = IgnoreRules(LORE_IGNORE, lambda path: self._rules(blobs.get(path)))
        candidates: list[CandidateFile] = []
        skipped: list[Skipped] = []
        for path, blob in blobs.items():
            insist(cancelled)
            reason = _reason_by_kind(blob) or self._selection.verdict(path, blob.size, rules)
            if reason is None:
                candidates.append(CandidateFile(name_of(path), blob.oid, blob.size, blob.oid))
            else:
                skipped.append(Skipped(name_of(path) + "/" * blob.is_submodule, reason))
        candidates.sort(key=lambda one: one.path)
        skipped.sort(key=lambda one: one.path)
        return Scan(tuple(candidates), tuple(skipped))

    def read(self, candidate: CandidateFile) -> FileBytes:
        return FileBytes(self._reader.read(candidate.origin), candidate.stamp)

    def state(self) -> TreeState:
        return TreeState(self._asked or self._git.head()[0], self._commit, 0)

    def volatility(self, candidates: Sequence[CandidateFile]) -> Mapping[str, int]:
        paths = {one.path for one in candidates}
        commits = {name_of(path): count for path, count in self._git.commits_by_file(self._commit).items()}
        return by_commits({path: count for path, count in commits.items() if path in paths})

    def close(self) -> None:
        self._reader.close()

    def _rules(self, blob: Blob | None) -> bytes | None:
        return None if blob is None or _reason_by_kind(blob) else self._reader.read(blob.oid)


def _reason_by_kind(blob: Blob) -> SkipReason | None:
    if blob.is_submodule:
        return SkipReason.SUBMODULE
    return SkipReason.LINK if blob.is_link else None
