"""Opens the tree of a source: a folder, a commit, or several of them under one name.

URLs are read through mirrors in the data folder. The files of a commit are read from git's object store and never checked
out: no filter or hook of a foreign repository runs, and the files cannot change during the load.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codex.documents import name_of
from codex.errors import GitError
from codex.locks import in_turn
from codex.progress import Cancelled, Step, insist, never, uncounted
from codex.settings import LibrarySettings, SecretSettings
from codex.trees.git import Blob, BlobReader, Git, mirror
from codex.trees.ignore import LORE_IGNORE, Globs, IgnoreRules, Selection, SkipReason
from codex.trees.lore_file import LORE_FILE, LoreFile, parse_lore_file, read_lore_file
from codex.trees.port import CandidateFile, FileBytes, FileTree, Scan, Skipped, TreeState, by_commits, labelled_name
from codex.trees.sent import SENT, SentTree
from codex.trees.sources import CodexSource, LoadSpec, Root, is_url
from codex.trees.walk import DiskTree


def open_tree(
    source: CodexSource, request: LoadSpec, settings: LibrarySettings, clones: Path, cancelled: Callable[[], bool]
) -> "MultiRootTree":
    """A tree over all roots; a git URL is cloned or brought up to date first. Raises SourceError, LoadCancelled."""
    return MultiRootTree([(root.label, _tree(root, request, settings, clones, cancelled)) for root in source.roots])


@dataclass(frozen=True)
class History:
    """Where git keeps the commits of a root, if it does. Without a revision: HEAD, of what lies below the folder."""

    label: str
    folder: Path
    revision: str | None


def histories_of(source: CodexSource, clones: Path) -> list[History]:
    """Of every root. Fetches nothing: a clone is used as it is."""
    return [
        History(root.label, _repository(root, clones), None if root.url is None else root.revision or "HEAD")
        for root in source.roots
        if not root.sent
    ]


def lore_file_of(source: CodexSource, clones: Path) -> LoreFile:
    """The `.lore.toml` of the source's first folder or repository; fetches nothing. Raises SourceError."""
    for root in source.roots:
        if root.sent:
            raw = _sent(root, clones).named(LORE_FILE)
            return LoreFile() if raw is None else parse_lore_file(raw, LORE_FILE)
        if root.url is not None:
            return _committed_lore_file(_repository(root, clones), root.revision)
        if not root.files:
            return read_lore_file(root.path)
    return LoreFile()


def clones_of(request: LoadSpec) -> set[str]:
    """Names of the mirrors in the clones' folder that a load of this request uses."""
    return {_clone_name(one.partition("#")[0]) for one in request.sources if is_url(one)}


class MultiRootTree:
    """Several trees as one. Each has the label that its files' names begin with, '' for none."""

    def __init__(self, trees: Sequence[tuple[str, FileTree]]) -> None:
        self.trees = tuple(trees)
        # A single tree without a label is passed through: its 100,000 names need not be written again.
        self._alone = trees[0][1] if len(trees) == 1 and not trees[0][0] else None

    def scan(self, cancelled: Cancelled = never, found: Step = uncounted) -> Scan:
        if self._alone is not None:
            return self._alone.scan(cancelled, found)
        candidates: list[CandidateFile] = []
        skipped: list[Skipped] = []
        notices: list[str] = []
        for number, (label, tree) in enumerate(self.trees):
            scan = tree.scan(cancelled, found)
            notices += scan.notices
            skipped += (Skipped(labelled_name(label, one.path), one.reason) for one in scan.skipped)
            candidates += (
                CandidateFile(labelled_name(label, one.path), f"{number}:{one.origin}", one.size, one.stamp)
                for one in scan.candidates
            )
        return Scan(tuple(candidates), tuple(skipped), tuple(notices))

    def read(self, candidate: CandidateFile) -> FileBytes:
        if self._alone is not None:
            return self._alone.read(candidate)
        number, _, origin = candidate.origin.partition(":")
        return self.trees[int(number)][1].read(CandidateFile(candidate.path, origin, candidate.size, candidate.stamp))

    def state(self) -> TreeState:
        """Of a single root its own state; several have no common branch, only a number of changed files."""
        states = [tree.state() for _, tree in self.trees]
        return states[0] if len(states) == 1 else TreeState(dirty=sum(one.dirty for one in states))

    def volatility(self, candidates: Sequence[CandidateFile]) -> Mapping[str, int]:
        if self._alone is not None:
            return self._alone.volatility(candidates)
        found: dict[str, int] = {}
        for number, (label, tree) in enumerate(self.trees):
            own = [_own(one, number, label) for one in candidates if one.origin.startswith(f"{number}:")]
            found |= {labelled_name(label, path): steps for path, steps in tree.volatility(own).items()}
        return found

    def close(self) -> None:
        for _, tree in self.trees:
            tree.close()


class RevisionTree:
    """The files of `revision` (a branch, tag or commit; HEAD by default) in the repository at `repository`."""

    def __init__(self, repository: Path, revision: str | None, selection: Selection) -> None:
        self._git = Git(repository)
        self._asked = revision
        self._commit = self._git.resolve(revision or "HEAD")
        self._selection = selection
        self._reader = BlobReader(repository)

    def scan(self, cancelled: Cancelled = never, found: Step = uncounted) -> Scan:
        blobs = {os.fsdecode(blob.path): blob for blob in self._git.blobs(self._commit, cancelled)}
        rules = IgnoreRules(LORE_IGNORE, lambda path: self._rules(blobs.get(path)))
        candidates: list[CandidateFile] = []
        skipped: list[Skipped] = []
        for path, blob in blobs.items():
            insist(cancelled)
            reason = _reason_by_blob(blob) or self._selection.verdict(path, blob.size, rules)
            if reason is None:
                candidates.append(CandidateFile(name_of(path), blob.oid, blob.size, blob.oid))
                found()
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
        return None if blob is None or _reason_by_blob(blob) else self._reader.read(blob.oid)


def _tree(
    root: Root, request: LoadSpec, settings: LibrarySettings, clones: Path, cancelled: Callable[[], bool]
) -> FileTree:
    secrets = SecretSettings(True, True) if request.load_secrets else settings.secrets
    named = frozenset(root.files or ())
    if root.sent:
        return _sent(root, clones)
    if root.url is None:
        own = LoreFile() if root.files else read_lore_file(root.path)
        selection = Selection(settings.walk, secrets, _with(request.globs, own), named)
        walk = settings.walk
        return DiskTree(
            root.path,
            selection,
            max_files=walk.max_files,
            max_file_bytes=walk.max_file_bytes,
            files=root.files,
            named=root.named,
        )
    repository = _repository(root, clones)
    if repository != root.path:
        with in_turn(repository.with_suffix(".lock"), cancelled):  # two revisions of one URL share the mirror
            mirror(root.url, repository, cancelled)
    own = _committed_lore_file(repository, root.revision)
    return RevisionTree(repository, root.revision, Selection(settings.walk, secrets, _with(request.globs, own), named))


def _sent(root: Root, clones: Path) -> SentTree:
    return SentTree(clones.with_name(SENT), root.sent)


def _repository(root: Root, clones: Path) -> Path:
    """The folder in which git finds what a root of a revision names."""
    return root.path if root.url is None or str(root.path) == root.url else clones / _clone_name(root.url)


def _committed_lore_file(repository: Path, revision: str | None) -> LoreFile:
    try:
        raw = Git(repository).run("cat-file", "blob", f"{revision or 'HEAD'}:{LORE_FILE}")
    except GitError:
        return LoreFile()
    return parse_lore_file(raw, f"{LORE_FILE} of {repository}")


def _with(globs: Globs, own: LoreFile) -> Globs:
    return Globs((*globs.include, *map(_unnamed, own.include)), (*globs.exclude, *own.exclude))


def _unnamed(glob: str) -> str:
    """The same glob, but never one that names a file: only the user may name a secret, not the code itself."""
    if set(glob) & set("*?[!\\") or not glob.strip("/"):
        return glob
    at = len(glob) - len(glob.lstrip("/"))
    return f"{glob[:at]}[{glob[at]}]{glob[at + 1 :]}" if glob[at] != "^" else f"{glob[:at]}?{glob[at + 1 :]}"


def _clone_name(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:24] + ".git"


def _reason_by_blob(blob: Blob) -> SkipReason | None:
    if blob.is_submodule:
        return SkipReason.SUBMODULE
    return SkipReason.LINK if blob.is_link else None


def _own(one: CandidateFile, number: int, label: str) -> CandidateFile:
    path = one.path.removeprefix(f"{label}/") if label else one.path
    return CandidateFile(path, one.origin.removeprefix(f"{number}:"), one.size, one.stamp)
