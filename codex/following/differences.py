"""How the disk differs from a codex that is not followed, in numbers of files. Stores nothing.

another size ─▶ differs        stamp of the last read ─▶ same digest        otherwise read, up to a limit of bytes
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from codex.catalog.generations import Generation, KnownFile
from codex.errors import LoadCancelled
from codex.following.amendments import Amendment, effective
from codex.ingest import Ingest
from codex.progress import Cancelled
from codex.trees.port import CandidateFile, FileTree

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
