"""How a codex that is not followed differs from the disk: a few files, its revision, or all files. Stores nothing.

A comparison of 100,000 files takes seconds, and no question waits for it. `Comparing` runs it in the background after a
question and keeps the result.

    asked ─▶ the kept result is returned at once ─▶ older than `KEPT_S`? ─▶ compared again in the background

    another size ─▶ differs       stamp of the last read ─▶ same digest       otherwise read, up to a limit of bytes

One comparison runs at a time. Comparisons take at most a twentieth of the time. A file that cannot be read counts as
unchanged.
"""

import logging
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from codex.catalog.generations import Generation, KnownFile
from codex.documents import digest_of, path_of
from codex.errors import CodexError, GitError, LoadCancelled
from codex.following.amendments import Amendment, effective
from codex.ingest import Ingest
from codex.progress import Cancelled
from codex.trees import opening, sources
from codex.trees.git import Git
from codex.trees.port import CandidateFile, FileTree
from codex.trees.sources import Root

if TYPE_CHECKING:
    from codex.library import Library

log = logging.getLogger("lorekeep.codex.comparing")
KEPT_S = 30.0
LONGEST_S = 60.0  # of a comparison: beyond it the disk is too slow, and no difference is reported
_SHARE = 20
_READ = 64 << 20  # bytes, about a second; of a clone that was loaded at once no stamp can be trusted

Held = Mapping[str, tuple[str, int | None]]
"""Digest by path, and size in bytes where it is known."""


@dataclass(frozen=True)
class Differences:
    """Numbers of files. `unread`: files beyond the limit of bytes, which may differ."""

    changed: int = 0
    added: int = 0
    removed: int = 0
    unread: int = 0

    def in_words(self) -> str:
        """'12 files differ, 3 are new, 1 is gone', with 'at least' when files were not read; '' without differences."""
        words = {"differs": "differ", "is new": "are new", "is gone": "are gone"}
        numbers = zip((self.changed, self.added, self.removed), words.items(), strict=True)
        parts = [(number, one if number == 1 else many) for number, (one, many) in numbers if number]
        counted = [f"{number:,} {word}" for number, word in parts]
        if counted:
            number, word = parts[0]
            least = "at least " if self.unread else ""
            counted[0] = f"{least}{number:,} file{'' if number == 1 else 's'} {word}"
        return ", ".join(counted)


class Unread(Exception):
    """The file is beyond the limit of bytes to read."""


@dataclass
class Glance:
    """Digests of a tree's files as a load would take them. `left`: bytes that may still be read."""

    ingest: Ingest
    tree: FileTree
    known: Mapping[str, KnownFile]
    cancelled: Cancelled
    left: int = _READ

    def digest(self, one: CandidateFile) -> str | None:
        """None: it would be left out. Raises OSError, Unread, LoadCancelled."""
        if self.ingest.is_current(one, self.known):
            return self.known[one.path].digest
        if self.cancelled():
            raise LoadCancelled("the comparison was cancelled")
        if one.size > self.left:
            raise Unread
        self.left -= one.size
        return self.ingest.digest_now(self.tree, one)


def differences(
    held: Held, candidates: Iterable[CandidateFile], digest: Callable[[CandidateFile], str | None]
) -> Differences:
    """Compares a tree's files with those that a codex holds. Passes on what `digest` raises, except OSError and Unread."""
    changed = added = unread = 0
    gone = set(held)
    for one in candidates:
        was, size = held.get(one.path, (None, None))
        try:
            now = "" if size not in (None, one.size) else digest(one)
        except (OSError, Unread):
            now, unread = was, unread + 1
        if now is not None:
            gone.discard(one.path)
            changed += was is not None and now != was
            added += was is None
    return Differences(changed, added, len(gone), unread)


def held_in(generation: Generation, log: Iterable[Amendment]) -> Held:
    """What a generation and its log hold; only files of the generation itself have a size."""
    sizes = {entry.digest: entry.size for entry in generation.entries}
    return {path: (digest, sizes.get(digest)) for path, digest in effective(generation.digests(), tuple(log)).items()}


Compare = Callable[[str, Cancelled], Differences]


def differing(library: "Library", name: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Those of the paths, sorted, whose file on disk has other bytes than in the codex, or is gone; in its folders only.
    Reads files of equal size. The cost does not depend on the size of the codex. Raises CodexError."""
    roots = [root for root in roots_of(library, name) if root.url is None]
    if not roots:
        return ()
    held = library.catalog.file_digests(name, set(paths))
    places = ((path, place_of(path, roots)) for path in sorted(held))
    return tuple(path for path, place in places if place is not None and not is_same(place, *held[path]))


def is_folders(library: "Library", name: str) -> bool:
    """Whether all of its roots are folders on this disk, which can be compared. Raises CodexError."""
    return all(root.url is None for root in roots_of(library, name))


def moved(library: "Library", name: str) -> str:
    """'main has moved since (abc1234 → def5678)' for a codex of one revision whose name now means another commit; a
    mirror is not fetched again. '' where it means the same or cannot be resolved. Raises CodexError."""
    roots = roots_of(library, name)
    if len(roots) != 1 or roots[0].url is None:
        return ""
    mirrors = [library.folder / "clones" / clone for clone in opening.clones_of(library.request(name))]
    repository = mirrors[0] if mirrors else roots[0].path
    asked, taken = roots[0].revision or "HEAD", library.catalog.bare_generation(name).state.revision
    try:
        now = Git(repository).resolve(asked)
    except GitError:
        return f"{asked} is gone from its repository" if taken else ""
    return "" if taken is None or taken == now else f"{asked} has moved since ({taken[:7]} → {now[:7]})"


class Comparing:
    """Comparisons in the background. `compare` runs in its own thread; after a CodexError or OSError of it no difference
    is reported. Thread-safe."""

    def __init__(self, compare: Compare, clock: Callable[[], float] = time.monotonic) -> None:
        self._compare = compare
        self._clock = clock
        self._kept: dict[str, Compared] = {}
        self._running: threading.Thread | None = None
        self._lock = threading.Lock()

    def latest(self, name: str, state: object) -> Differences:
        """The last result for a codex in this state (compared by `==`); no differences before the first comparison."""
        kept = self._kept.get(name)
        return kept.found if kept is not None and kept.state == state else Differences()

    def want(self, name: str, state: object) -> None:
        """Start a comparison, unless the last result is recent or a comparison is running."""
        with self._lock:
            kept = self._kept.get(name)
            young = kept is not None and kept.state == state and self._clock() < kept.due
            if young or self._running is not None:
                return
            # A daemon thread: no process waits at its end for a comparison that nobody will read.
            self._running = threading.Thread(
                target=self._run, args=(name, state), name=f"codex-compare {name}", daemon=True
            )
            self._running.start()

    def wait(self) -> None:
        """Until nothing is being compared."""
        running = self._running
        if running is not None:
            running.join()

    def _run(self, name: str, state: object) -> None:
        began, found = self._clock(), Differences()
        try:
            found = self._compare(name, lambda: self._clock() > began + LONGEST_S)
        except (CodexError, OSError) as fault:
            log.info("codex %s was not compared with the disk: %s", name, fault)
        finally:
            ended = self._clock()
            with self._lock:
                self._kept[name] = Compared(state, found, ended + max(KEPT_S, _SHARE * (ended - began)))
                self._running = None


@dataclass(frozen=True)
class Compared:
    """What was found, of which state of the codex; `due`: when it is too old."""

    state: object
    found: Differences
    due: float


def roots_of(library: "Library", name: str) -> Sequence[Root]:
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
