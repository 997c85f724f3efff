"""The steps of one load, and of one comparison with the disk, once the library has chosen name and source and has the lock.

    scan, read, store (`codex.ingest`) ─▶ order ─▶ count tokens ─▶ index ─▶ freeze the generation

The order of files follows one rule: the more often a file changes, the further right it is, because a prefix is shared up
to the first difference. The order is frozen with a generation; the next generation keeps it as far as possible.

    old     a  b  c  d  e          c was edited, f is new
    new     a  b  d  e  c  f       shared: a b

`Loader.sample` reads some files only, drawn by a hash of their names: as good as random, and the same every time. Each
is weighted by its size, because an estimate from the sample is a share of all bytes.
"""

import hashlib
import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

from codex.catalog.catalog import Catalog
from codex.catalog.generations import Codex, FileEntry, Generation
from codex.documents import Document
from codex.errors import LoadCancelled, SourceError, UnknownGeneration
from codex.following.differences import Differences, Glance, Held, differences
from codex.ingest import Changes, Ingest, IngestResult, changes_between
from codex.progress import Cancelled, Meter, Report, never, silent
from codex.settings import LibrarySettings
from codex.trees import opening
from codex.trees.opening import MultiRootTree
from codex.trees.port import CandidateFile, TreeState
from codex.trees.sources import CodexSource, LoadSpec

_PAGE = 64  # documents passed to the token counter at once
CountTokens = Callable[[Sequence[Document]], int]
"""Tokens of these documents in all; called a page at a time, in the order of the prompt."""
SAMPLE_FILES = 128
SAMPLE_BYTES = 8 << 20  # of them; files that are drawn later are left out
SAMPLE_HEAD = 16_000  # characters of one file: its beginning gives its tokens a byte
T = TypeVar("T")


@dataclass(frozen=True)
class LoadJob:
    """The codex's name, its source, the request, who receives progress, and when to stop."""

    name: str
    source: CodexSource
    request: LoadSpec
    report: Report = silent
    cancelled: Cancelled = never
    why: str = ""  # the reason of a load that no user asked for


@dataclass(frozen=True)
class LoadResult:
    """What a load did. `tokens` is None without a counter; `read` files were read, the others had not changed."""

    codex: Codex
    generation: Generation
    read: int
    tokens: int | None
    is_new: bool  # False: the files were those of the newest generation

    @property
    def files(self) -> int:
        return len(self.generation.entries)


class Indexer(Protocol):
    """An index over the newest documents of each codex (the Archive). Only one load of a codex calls at a time."""

    def held(self, codex: str) -> Mapping[str, str]:
        """Digest by path of what is indexed and searchable; empty for a codex it does not know.

        The library reads this before each load and keeps no copy, so a load completes an index that was lost, damaged or
        interrupted.
        """

    def index(
        self, codex: str, documents: Iterable[Document], removed: Sequence[str], progress: Callable[[int], None]
    ) -> None:
        """Replace what is held of each document's path; forget `removed`. `progress(n)`: n more documents are done.

        `documents` is read once, in order, and is never wholly in memory. May raise CodexError.
        """

    def drop(self, codex: str) -> None:
        """Forget the codex; no error when it is not known."""


@dataclass(frozen=True, slots=True)
class SampledFile:
    """A file of the sample: its name, its bytes, and its text, None where a load leaves it out."""

    path: str
    size: int
    text: str | None


@dataclass(frozen=True)
class Loader:
    """The parts that all loads of a library share."""

    folder: Path
    catalog: Catalog
    settings: LibrarySettings
    indexer: Indexer | None = None
    count: CountTokens | None = None
    clock: Callable[[], float] = time.monotonic

    def open(self, job: LoadJob) -> MultiRootTree:
        """The tree to read from; close it. Raises SourceError, GitError, LoadCancelled."""
        return opening.open_tree(job.source, job.request, self.settings, self.folder / "clones", job.cancelled)

    def load(self, job: LoadJob) -> LoadResult:
        """Store, order, count, index, freeze: the generation appears last, when all else is done."""
        tree = self.open(job)
        try:
            taken = self._ingest(job).store_tree(job.name, tree)
            if not taken.entries:
                raise SourceError(_nothing_in(job.source, taken))
            entries = self._in_order(job.name, taken, tree)
            taken = replace(taken, candidates=())  # of 100,000 files 40 MB, which indexing does not need
            tokens = self._count_tokens(job, entries)
            self.bring_index_up_to(job, entries)
            generation, is_new = self._freeze(job, tree.state(), entries, taken)
        finally:
            tree.close()
        return LoadResult(self.catalog.codex(job.name), generation, taken.read, tokens, is_new)

    def sample(self, job: LoadJob, tree: MultiRootTree, candidates: Sequence[CandidateFile]) -> tuple[SampledFile, ...]:
        """Some of a tree's files, read and checked as by a load; stores nothing. A file that cannot be read has no text."""
        ingest = self._ingest(job)
        chosen = draw_sample(candidates, lambda one: one.path, lambda one: one.size)
        return tuple(SampledFile(one.path, one.size, ingest.text_of(tree, one)) for one in chosen)

    def changes(self, job: LoadJob, base: Generation) -> Changes:
        """Store the tree and compare it with `base`; no generation is made."""
        tree = self.open(job)
        try:
            taken = self._ingest(job).store_tree(job.name, tree)
            return changes_between(base, taken, tree.state())
        finally:
            tree.close()

    def outside(self, job: LoadJob, held: Held) -> Differences:
        """How the tree differs from what is held; stores nothing. Raises what `open` raises."""
        tree = self.open(job)
        try:
            scan = tree.scan(job.cancelled)
            glance = Glance(self._ingest(job), tree, self.catalog.known(job.name), job.cancelled)
            return differences(held, scan.candidates, glance.digest)
        finally:
            tree.close()

    def bring_index_up_to(self, job: LoadJob, entries: Sequence[FileEntry]) -> None:
        """Index the entries that the index does not hold with this digest; remove files that are not among them."""
        if self.indexer is None:
            return
        held = self.indexer.held(job.name)
        missing = [entry for entry in entries if held.get(entry.path) != entry.digest]
        removed = sorted(held.keys() - {entry.path for entry in entries})
        meter = Meter("index", len(missing), job.report, self.clock)
        if missing or removed:
            documents = _until_cancelled(self.catalog.documents(missing), job.cancelled)
            self.indexer.index(job.name, documents, removed, meter.advance)
        meter.finish()

    def _ingest(self, job: LoadJob) -> Ingest:
        settings = self.settings
        if job.request.load_secrets:
            settings = replace(settings, secrets=replace(settings.secrets, load_secret_contents=True))
        named = job.source.named(job.request.globs)
        return Ingest(self.catalog, settings, job.report, job.cancelled, named.__contains__, self.clock)

    def _in_order(self, name: str, taken: IngestResult, tree: MultiRootTree) -> tuple[FileEntry, ...]:
        entries = {entry.path: entry for entry in taken.entries}
        volatility = tree.volatility(taken.candidates)
        newest = self._newest(name)
        if newest is None:
            paths = fresh_order(entries, volatility)
        else:
            old = [(entry.path, entry.digest) for entry in newest.entries]
            paths = next_order(old, {path: entry.digest for path, entry in entries.items()}, volatility)
        return tuple(entries[path] for path in paths)

    def _count_tokens(self, job: LoadJob, entries: Sequence[FileEntry]) -> int | None:
        if self.count is None:
            return None
        meter = Meter("count", len(entries), job.report, self.clock)
        documents = _until_cancelled(self.catalog.documents(entries), job.cancelled)
        total = 0
        while page := list(islice(documents, _PAGE)):
            total += self.count(page)
            meter.advance(len(page))
        meter.finish()
        return total

    def _freeze(
        self, job: LoadJob, state: TreeState, entries: tuple[FileEntry, ...], taken: IngestResult
    ) -> tuple[Generation, bool]:
        newest = self._newest(job.name)
        if newest is None or newest.entries != entries:
            return self.catalog.freeze(job.name, state, entries, taken.skipped, taken.notices, job.why), True
        again = replace(newest, state=state, skipped=taken.skipped, notices=taken.notices)
        if again != newest:
            self.catalog.restate(again)
        return again, False

    def _newest(self, name: str) -> Generation | None:
        try:
            return self.catalog.generation(name)
        except UnknownGeneration:
            return None


def fresh_order(paths: Iterable[str], volatility: Mapping[str, int]) -> list[str]:
    """Stable files first, then by path. Without a known volatility a file counts as hardly ever changed."""
    return sorted(paths, key=lambda path: (volatility.get(path, 0), path))


def next_order(old: Sequence[tuple[str, str]], new: Mapping[str, str], volatility: Mapping[str, int]) -> list[str]:
    """Order of the next generation. `old`: (path, digest) in order; `new`: digest by path.

    Unchanged files keep their order; changed and added ones follow. No order shares a longer prefix with the old one.
    """
    kept = [path for path, digest in old if new.get(path) == digest]
    rest = new.keys() - set(kept)
    return kept + fresh_order(rest, volatility)


def draw_sample(files: Iterable[T], path: Callable[[T], str], size: Callable[[T], int]) -> list[T]:
    """At most so many of the files, and of their bytes; at least one where there is any."""
    chosen: list[T] = []
    left = SAMPLE_BYTES
    for one in heapq.nsmallest(SAMPLE_FILES, files, key=lambda each: _lot(path(each))):
        if not chosen or size(one) <= left:
            chosen.append(one)
            left -= size(one)
    return chosen


def sample_head(text: str) -> str:
    """The beginning of a text, to the end of a line where there is one."""
    if len(text) <= SAMPLE_HEAD:
        return text
    end = text.rfind("\n", 0, SAMPLE_HEAD) + 1
    return text[: end or SAMPLE_HEAD]


def scale_up(shares: Sequence[tuple[int, float]], total_bytes: int) -> int:
    """What all bytes hold of something. `shares`: of each file of the sample its bytes, and how much one of them holds."""
    weight = sum(size for size, _ in shares)
    return round(total_bytes * sum(size * share for size, share in shares) / weight) if weight else 0


def _lot(path: str) -> bytes:
    return hashlib.sha256(path.encode("utf-8", "surrogatepass")).digest()


def _until_cancelled(documents: Iterator[Document], cancelled: Cancelled) -> Iterator[Document]:
    for document in documents:
        if cancelled():
            raise LoadCancelled("the load was cancelled; the next one continues from what was stored")
        yield document


def _nothing_in(source: CodexSource, taken: IngestResult) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(taken.skipped.items()))
    why = f"all files were left out ({reasons})" if reasons else "it holds no files"
    return "\n".join((f"nothing to load from {source.title}: {why}", *taken.notices[:3]))
