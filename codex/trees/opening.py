"""The tree of what was named to be loaded, and what git knows of it. URLs are read through mirrors in the data folder."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from codex.errors import GitError
from codex.locks import in_turn
from codex.settings import LibrarySettings, SecretSettings
from codex.trees.forest import Forest
from codex.trees.git import Git, mirror
from codex.trees.ignore import Globs, Selection
from codex.trees.lore_file import LORE_FILE, LoreFile, parse_lore_file, read_lore_file
from codex.trees.port import FileTree
from codex.trees.revision import RevisionTree
from codex.trees.sources import CodexSource, LoadSpec, Root, is_url
from codex.trees.walk import DiskTree


@dataclass(frozen=True)
class History:
    """Where git keeps the commits of a root, if it does. Without a revision: HEAD, of what lies below the folder."""

    label: str
    folder: Path
    revision: str | None


def open_tree(
    source: CodexSource, request: LoadSpec, settings: LibrarySettings, clones: Path, cancelled: Callable[[], bool]
) -> Forest:
    """A tree over all roots; a git URL is cloned or brought up to date first. Raises SourceError, LoadCancelled."""
    return Forest([(root.label, _tree(root, request, settings, clones, cancelled)) for root in source.roots])


def histories_of(source: CodexSource, clones: Path) -> list[History]:
    """Of every root; nothing is fetched, a clone is taken as it is."""
    return [
        History(root.label, _repository(root, clones), None if root.url is None else root.revision or "HEAD")
        for root in source.roots
    ]


def lore_file_of(source: CodexSource, clones: Path) -> LoreFile:
    """What the source's first folder or repository says about itself; no URL is asked again. Raises SourceError."""
    for root in source.roots:
        if root.url is not None:
            return _committed_lore_file(_repository(root, clones), root.revision)
        if not root.files:
            return read_lore_file(root.path)
    return LoreFile()


def clones_of(request: LoadSpec) -> set[str]:
    """Names of the mirrors in the clones' folder that a load of this request uses."""
    return {_clone_name(one.partition("#")[0]) for one in request.sources if is_url(one)}


def _tree(
    root: Root, request: LoadSpec, settings: LibrarySettings, clones: Path, cancelled: Callable[[], bool]
) -> FileTree:
    secrets = SecretSettings(True, True) if request.load_secrets else settings.secrets
    named = frozenset(root.files or ())
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
