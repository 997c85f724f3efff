"""What of a codex that nobody follows is otherwise on disk by now. Asked about a few files at a time, or about a revision.

Knows no index and changes nothing; where something cannot be looked at, nothing is said of it.
"""

import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from codex.documents import digest_of, path_of
from codex.errors import GitError
from codex.library import Library
from codex.trees import opening, sources
from codex.trees.git import Git
from codex.trees.sources import Root


def differing(library: Library, name: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Those of a codex's files, sorted, that hold other bytes on disk than in the codex, or are gone; of its folders
    alone. Reads files whose size is the same; costs what these cost, however many the codex has. Raises CodexError."""
    roots = [root for root in roots_of(library, name) if root.url is None]
    if not roots:
        return ()
    known = library.standing(name, set(paths))
    places = ((path, place_of(path, roots)) for path in sorted(known))
    return tuple(path for path, place in places if place is not None and not is_same(place, *known[path]))


def is_folders(library: Library, name: str) -> bool:
    """Whether all of it lies in folders on this disk, which can be compared without asking anybody. Raises CodexError."""
    return all(root.url is None for root in roots_of(library, name))


def moved(library: Library, name: str) -> str:
    """'main has moved since (abc1234 → def5678)' for a codex of one revision whose name means another commit now; of a
    mirror as it was fetched last. '' where it means the same, or nobody can tell. Raises CodexError."""
    roots = roots_of(library, name)
    if len(roots) != 1 or roots[0].url is None:
        return ""
    mirrors = [library.folder / "clones" / clone for clone in opening.clones_of(library.request(name))]
    repository = mirrors[0] if mirrors else roots[0].path
    asked, taken = roots[0].revision or "HEAD", library.bare_generation(name).state.revision
    try:
        now = Git(repository).resolve(asked)
    except GitError:
        return f"{asked} is gone from its repository" if taken else ""
    return "" if taken is None or taken == now else f"{asked} has moved since ({taken[:7]} → {now[:7]})"


def roots_of(library: Library, name: str) -> Sequence[Root]:
    return sources.resolve(library.request(name), Path.cwd()).roots


def place_of(path: str, roots: Sequence[Root]) -> Path | None:
    """Where a file of the codex lies on disk; None: below no folder."""
    for root in roots:
        if not root.label:
            return root.path / path_of(path)
        if path.startswith(f"{root.label}/"):
            return root.path / path_of(path.removeprefix(f"{root.label}/"))
    return None


def is_same(place: Path, digest: str, size: int | None) -> bool:
    """Whether the file holds the bytes of that digest; `size` in bytes, where it is known."""
    try:
        facts = place.lstat()
        if not stat.S_ISREG(facts.st_mode) or size not in (None, facts.st_size):
            return False
        return digest_of(place.read_bytes()) == digest
    except PermissionError:
        return True
    except OSError:
        return False
