"""The steps of one load, and of one comparison with the disk, once the library has settled name, source and lock."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from codex.catalog.catalog import Catalog
from codex.catalog.generations import Codex, FileEntry, Generation
from codex.documents import Document
from codex.errors import LoadCancelled, SourceError, UnknownGeneration
from codex.following.differences import Differences, Glance, Held, differences
from codex.ingest import Ingest, IngestResult
from codex.order import fresh_order, next_order
from codex.ports import CountTokens, Indexer
from codex.progress import Cancelled, Meter, Report, never, silent
from codex.reconcile import Changes, changes_between
from codex.settings import LibrarySettings
from codex.trees import opening
from codex.trees.forest import Forest
from codex.trees.port import CandidateFile, TreeState
from codex.trees.sampling import SampledFile, drawn
from codex.trees.sources import CodexSource, LoadSpec

_PAGE = 64  # documents told to the token counter at once


@dataclass(frozen=True)
class LoadResult:
    """What a load did. `tokens` is None when nobody counted; `read` files were read, the others were known already."""

    codex: Codex
    generation: Generation
    read: int
    tokens: int | None
    is_new: bool  # False: the files were those of the newest generation

    @property
    def files(self) -> int:
        return len(self.generation.entries)


@dataclass(frozen=True)
class LoadJob:
    """Which codex, from where, asked for how; told to whom; until when."""

    name: str
    source: CodexSource
    request: LoadSpec
    report: Report = silent
    cancelled: Cancelled = never
    why: str = ""  # where nobody asked for it


@dataclass(frozen=True)
class Loader:
    """What all loads of a library share."""

    folder: Path
    catalog: Catalog
    settings: LibrarySettings
    indexer: Indexer | None = None
    count: CountTokens | None = None
    clock: Callable[[], float] = time.monotonic

    def open(self, job: LoadJob) -> Forest:
        """The tree to read from; close it. Raises SourceError, GitError, LoadCancelled."""
        return opening.open_tree(job.source, job.request, self.settings, self.folder / "clones", job.cancelled)

    def load(self, job: LoadJob) -> LoadResult:
        """Take in, order, count, index, freeze: the generation appears last, when all else is done."""
        tree = self.open(job)
        try:
            taken = self._ingest(job).take_in(job.name, tree)
            if not taken.entries:
                raise SourceError(_nothing_in(job.source, taken))
            entries = self._in_order(job.name, taken, tree)
            taken = replace(taken, candidates=())  # of 100,000 files 40 MB that nobody asks for while they are indexed
            tokens = self._count_tokens(job, entries)
            self.bring_index_up_to(job, entries)
            generation, is_new = self._freeze(job, tree.state(), entries, taken)
        finally:
            tree.close()
        return LoadResult(self.catalog.codex(job.name), generation, taken.read, tokens, is_new)

    def sample(self, job: LoadJob, tree: Forest, candidates: Sequence[CandidateFile]) -> tuple[SampledFile, ...]:
        """Some of a tree's files, read and judged as a load would; nothing is stored. What cannot be read has no text."""
        ingest = self._ingest(job)
        chosen = drawn(candidates, lambda one: one.path, lambda one: one.size)
        return tuple(SampledFile(one.path, one.size, ingest.text_of(tree, one)) for one in chosen)

    def changes(self, job: LoadJob, base: Generation) -> Changes:
        """Take in, and compare with `base`; no generation is made."""
        tree = self.open(job)
        try:
            taken = self._ingest(job).take_in(job.name, tree)
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
        """Index what the index does not hold as it is in `entries`; forget what is not among them."""
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

    def _in_order(self, name: str, taken: IngestResult, tree: Forest) -> tuple[FileEntry, ...]:
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


def _until_cancelled(documents: Iterator[Document], cancelled: Cancelled) -> Iterator[Document]:
    for document in documents:
        if cancelled():
            raise LoadCancelled("the load was cancelled; the next one continues from what was stored")
        yield document


def _nothing_in(source: CodexSource, taken: IngestResult) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(taken.skipped.items()))
    why = f"all files were left out ({reasons})" if reasons else "it holds no files"
    return "\n".join((f"nothing to load from {source.title}: {why}", *taken.notices[:3]))
