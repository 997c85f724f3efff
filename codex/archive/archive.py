"""The Archive: the index that is searched for code that is not in the prompt. A port, its values and its contract.

Contract, which `tests/contracts/test_archive.py` holds every implementation to:

* Ownership. The archive owns what it stores. Documents are read during the call and not kept. Results are copies.
* Threads. Any thread may call. Writes to one archive wait for each other. A search never waits for a write.
* Visibility. Every search that begins after a call returned finds what the call wrote. `replace` is atomic: a search of
  chunks sees all documents of one call as before, or all as after.
* State. `held` alone tells what is indexed: digest by path. A lost or damaged index holds nothing, so a caller that
  compares `held` with the catalog builds it again.
* Errors. `ArchiveDamaged`: the stored data cannot be read; it has been moved aside, and `held` is empty.
  `ArchiveError`: every other fault of the machine (disk full, no permission). An unknown codex is empty, not an error.

The archive finds and reads. `codex.searching.search` ranks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from codex.archive.definitions import ChunkPlace
from codex.documents import Document
from codex.errors import CodexError


class ArchiveError(CodexError):
    """The archive cannot do what was asked because of the world."""


class ArchiveDamaged(ArchiveError):
    """What was stored for a codex cannot be read; it has been set aside and must be indexed again."""

    def __init__(self, codex: str, why: str) -> None:
        super().__init__(f"the archive of {codex!r} is damaged ({why}); it was set aside and will be indexed again")
        self.codex = codex


@dataclass(frozen=True, slots=True)
class ChunkMatch:
    """A chunk of the index, without its text. `score` is BM25, comparable within one answer only.

    `names` are what it defines, `references` the names that it uses.
    """

    place: ChunkPlace
    symbol: str
    kind: str
    signature: str
    names: tuple[str, ...]
    references: tuple[str, ...]
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class FileMatch:
    """A file that matches as a whole."""

    path: str
    score: float


@dataclass(frozen=True, slots=True)
class ArchiveStats:
    """What is stored for one codex."""

    codex: str
    files: int
    chunks: int
    unindexed: int = 0  # chunks that are found by scanning, until `optimize`


IndexProgress = Callable[[int], None]


def unreported(done: int) -> None:
    """Progress that nobody waits for."""


class Archive(Protocol):
    """See the module's contract. A query is a list of words as `codex.archive.identifiers.query_words` gives them."""

    def held(self, codex: str) -> Mapping[str, str]:
        """Digest by path of what is searchable; empty for a codex it does not know or whose index was lost."""

    def replace(self, codex: str, documents: Sequence[Document], removed: Sequence[str] = ()) -> int:
        """Store the chunks of these documents in place of what their paths held, and forget `removed`, as one step.

        Returns the number of chunks stored. Of two documents of one path the last counts.
        """

    def index(
        self,
        codex: str,
        documents: Iterable[Document],
        removed: Sequence[str] = (),
        progress: IndexProgress = unreported,
    ) -> None:
        """`replace` in batches, then `optimize` where it pays. Read once, in order, never wholly in memory.

        `progress(n)`: n more documents are searchable.
        """

    def remove(self, codex: str, paths: Sequence[str]) -> None:
        """Forget these paths; those it does not know are no error."""

    def warm(self, codex: str) -> None:
        """Reads beforehand what the first search would wait for; raises what a search would raise."""

    def drop(self, codex: str) -> None:
        """Forget the codex and free its room; no error when it is not known."""

    def matches(
        self, codex: str, query: Sequence[str], n: int, paths: Sequence[str] | None = None
    ) -> tuple[ChunkMatch, ...]:
        """At most `n` chunks that hold any of these words, best first; only in `paths` when given."""

    def exact(self, codex: str, text: str, n: int) -> tuple[ChunkMatch, ...]:
        """At most `n` chunks whose text holds this string as it is, case and punctuation too; '' is in none."""

    def phrase(self, codex: str, words: Sequence[str], n: int) -> tuple[ChunkMatch, ...]:
        """At most `n` chunks whose text has these words one behind the other, whatever stands between them but words.

        Looked for among the chunks that hold them all, a few hundred at most.
        """

    def file_matches(self, codex: str, query: Sequence[str], n: int) -> tuple[FileMatch, ...]:
        """At most `n` files ranked as wholes, best first."""

    def definitions(self, codex: str, names: Iterable[str]) -> Mapping[str, tuple[ChunkPlace, ...]]:
        """The chunks that define each of these names, sorted; names without one, or with more
        than 64, are left out."""

    def at(self, codex: str, places: Sequence[ChunkPlace]) -> Mapping[ChunkPlace, tuple[ChunkMatch, str]]:
        """The chunks at these places with their texts; places that are gone are left out."""

    def chunks(self, codex: str) -> Iterator[ChunkMatch]:
        """All chunks, in any order, with score 0: what a graph is made of. One by one: of a million, all are gigabytes."""

    def digests(self, codex: str) -> Mapping[str, tuple[ChunkPlace, ...]]:
        """All chunks by the sha256 (hex) of their text, equal ones together, sorted: what vectors are kept by."""

    def generated(self, codex: str) -> frozenset[str]:
        """Paths of the files that say of themselves that a program wrote them."""

    def holding(self, codex: str, digests: Sequence[str]) -> Mapping[str, tuple[ChunkPlace, ...]]:
        """The chunks whose texts have these digests, sorted; digests without one are left out."""

    def stats(self, codex: str) -> ArchiveStats:
        """Counts for a codex; zeros when it is not known."""

    def revision(self, codex: str) -> int:
        """A number that differs after every write to the codex through this object: what was derived is then stale."""

    def optimize(self, codex: str) -> None:
        """Fold what was written into the indexes and free old versions. Only speed and room change."""
