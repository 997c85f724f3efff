"""The library: the interface through which the rest of the program loads, lists, reads, follows and drops codices.

Loading, following and dropping block: run them in a thread. All other methods return in milliseconds. `codex.loading`
passes documents to an index and to a token counter, which the library knows as protocols only.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from codex.catalog.catalog import Catalog
from codex.catalog.generations import Codex, FileEntry, Generation
from codex.documents import Document
from codex.errors import NameTaken, SourceError, UnknownGeneration
from codex.following.amendments import Amendment, AmendmentWriter, ChangedDefinitions, new_entries
from codex.following.differences import Differences, held_in
from codex.ingest import Changes
from codex.loading import CountTokens, Indexer, Loader, LoadJob, LoadResult, SampledFile
from codex.locks import load_lock
from codex.process_memory import gc_pause
from codex.progress import Cancelled, Report, never, silent
from codex.reload_match import free_name, is_reload, name_from, reloaded_name, spec_of, stored_request, valid_name
from codex.settings import LibrarySettings
from codex.trees import opening, sources
from codex.trees.lore_file import LoreFile
from codex.trees.opening import MultiRootTree
from codex.trees.sources import CodexSource, LoadSpec


@dataclass(frozen=True)
class Survey:
    """What a load would store, by names and sizes (binary files are counted until they are read), and a sample of it."""

    name: str
    files: int
    bytes: int
    skipped: dict[str, int]
    notices: tuple[str, ...]
    sample: tuple[SampledFile, ...] = ()


@dataclass(frozen=True)
class FollowResult:
    """The result of following the disk: the whole log of the generation, and how many of its entries are new."""

    changes: Changes
    log: tuple[Amendment, ...]
    new: int


class Library:
    """All codices in one data folder. Methods may be called from any thread; close it when done."""

    def __init__(
        self,
        folder: Path,
        settings: LibrarySettings | None = None,
        *,
        indexer: Indexer | None = None,
        count: CountTokens | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`folder` is made when missing. Raises NewerCatalog, CatalogError, DiskFull."""
        self.folder = folder
        self.settings = settings or LibrarySettings()
        self._catalog = Catalog(folder / "catalog.sqlite")
        self._loader = Loader(folder, self._catalog, self.settings, indexer, count, clock)

    def close(self) -> None:
        self._catalog.close()

    def load(
        self,
        request: LoadSpec,
        report: Report = silent,
        cancelled: Cancelled = never,
        *,
        asked: bool = True,
        why: str = "",
    ) -> LoadResult:
        """Load a source as the newest generation of its codex; the same source under the same name is an update.

        `asked`: a user asked for it and may cancel it. Another load is refused while such a load runs, and waits for any
        other. `why` is kept with the new generation.
        Raises SourceError (missing, empty), GitError, NameTaken, BadName, LoadRunning, LoadCancelled, CatalogError,
        DiskFull. After any of them, and after a kill, the codex answers as before, and the next load continues.
        """
        job = replace(self._job(request, report, cancelled), why=why)
        with self._locked(job, asked=asked):
            self._insist_on_free_name(job)
            if all(one.name != job.name for one in self.codices()):
                self._register(job)
            try:
                loaded = self._loader.load(job)
            except SourceError:
                if self.codex(job.name).newest is None:
                    self._catalog.drop(job.name)
                raise
            self._register(job)  # only now: a load that failed must not change what a reload would do
            return replace(loaded, codex=self.codex(job.name))

    def reload(self, name: str, report: Report = silent, cancelled: Cancelled = never) -> LoadResult:
        """Load again what the codex was loaded from. Raises UnknownCodex, and what `load` raises."""
        return self.load(self.request(name), report, cancelled)

    def survey(self, request: LoadSpec, cancelled: Cancelled = never) -> Survey:
        """What `load` would store; stores only the clone of a git URL. Raises what `load` raises before reading."""
        job = self._job(request, silent, cancelled)
        self._insist_on_free_name(job)
        tree = self._loader.open(job)
        try:
            scan = tree.scan(cancelled)
            sample = self._loader.sample(job, tree, scan.candidates)
        finally:
            tree.close()
        size = sum(one.size for one in scan.candidates)
        return Survey(job.name, len(scan.candidates), size, scan.reasons(), scan.notices, sample)

    def codices(self) -> tuple[Codex, ...]:
        """All codices by name, also those whose first load has not finished (`newest` is None)."""
        return self._catalog.codices()

    def misplaced(self) -> str:
        """The fault, and what to do, when the catalog's file was deleted or moved and writes are lost; '' otherwise."""
        return self._catalog.misplaced()

    def codex(self, name: str) -> Codex:
        """Raises UnknownCodex."""
        return self._catalog.codex(name)

    def request(self, name: str) -> LoadSpec:
        """How the codex was loaded last. Raises UnknownCodex."""
        return spec_of(self.codex(name))

    def name_of(self, request: LoadSpec) -> str:
        """The name that a load of this would have. Raises SourceError, BadName."""
        return self._job(request, silent, never).name

    def lore_file(self, name: str) -> LoreFile:
        """The codex's own `.lore.toml`. Raises UnknownCodex, SourceError for a file that cannot be used."""
        return opening.lore_file_of(sources.resolve(self.request(name), Path.cwd()), self.folder / "clones")

    def generation(self, name: str, number: int | None = None) -> Generation:
        """The newest generation or an older one that is kept. Raises UnknownCodex, UnknownGeneration."""
        return self._catalog.generation(name, number)

    def bare_generation(self, name: str, number: int | None = None) -> Generation:
        """The same without its entries, in microseconds. Raises like `generation`."""
        return self._catalog.bare_generation(name, number)

    def file_digests(self, name: str, paths: Iterable[str]) -> dict[str, tuple[str, int | None]]:
        """Digest, and size where it is known, of those of these files that the newest generation and its log hold. The
        cost grows with the number of paths alone. Raises like `generation`."""
        return self._catalog.file_digests(name, paths)

    def generations(self, name: str) -> tuple[int, ...]:
        """Numbers of the generations that are kept, ascending. Raises UnknownCodex."""
        return self._catalog.generations(name)

    def documents(self, generation: Generation) -> Iterator[Document]:
        """The generation's documents in its order, as they were when it was made, a page at a time."""
        return self._catalog.documents(generation.entries)

    def documents_of(self, entries: Sequence[FileEntry]) -> Iterator[Document]:
        """Documents of some entries of a generation, in the order given, a page at a time."""
        return self._catalog.documents(entries)

    def document(self, entry: FileEntry) -> Document:
        """One document. Raises CatalogError when its bytes are no longer kept."""
        return next(self._catalog.documents([entry]))

    def document_by_digest(self, path: str, digest: str) -> Document:
        """A document by name and digest, of any generation or log that is kept. Raises CatalogError."""
        return self._catalog.document_by_digest(path, digest)

    def changes(self, name: str, number: int | None = None, cancelled: Cancelled = never) -> Changes:
        """What differs on disk from a generation (default: the newest); contents are stored, no generation is made.

        Raises UnknownCodex, UnknownGeneration, LoadRunning, SourceError when the source is gone.
        """
        base = self.generation(name, number)
        job = self._job(self.request(name), silent, cancelled)
        with self._locked(job, asked=False):
            return self._loader.changes(job, base)

    def follow(
        self,
        name: str,
        number: int | None = None,
        *,
        count: Callable[[str], int],
        changed_definitions: ChangedDefinitions,
        cancelled: Cancelled = never,
    ) -> FollowResult:
        """Bring index and amendment log of a generation (default: the newest) up to the disk.

        The log is written whole or not at all: after a kill the next call completes both. Raises like `changes`.
        """
        base = self.generation(name, number)
        job = self._job(self.request(name), silent, cancelled)
        with self._locked(job, asked=False), gc_pause():
            changes = self._loader.changes(job, base)
            self._loader.bring_index_up_to(job, changes.current)
            log = self._catalog.amendments(name, base.number)
            limit = self.settings.amendments.whole_file_tokens
            writer = AmendmentWriter(self._catalog.document_by_digest, count, changed_definitions, limit)
            new = new_entries(base.digests(), log, {one.path: one.digest for one in changes.current}, writer)
            self._catalog.append(name, base.number, new)
            if self.codex(name).source != job.source.key:
                self._register(job)  # a link leads elsewhere
        return FollowResult(changes, log + new, len(new))

    def outside(self, name: str, cancelled: Cancelled = never) -> Differences:
        """How the disk differs from the newest generation and its log; nothing is stored. Raises like `changes`."""
        base = self.generation(name)
        with gc_pause():
            job = self._job(self.request(name), silent, cancelled)
            return self._loader.outside(job, held_in(base, self.amendments(name, base.number)))

    def amendments(self, name: str, number: int | None = None) -> tuple[Amendment, ...]:
        """The log of a generation (default: the newest). Raises UnknownCodex, UnknownGeneration."""
        return self._catalog.amendments(name, self.bare_generation(name, number).number)

    def tree(self, name: str) -> MultiRootTree:
        """The codex's tree on disk, for a watcher; close it when done. Raises UnknownCodex, SourceError."""
        return self._loader.open(self._job(self.request(name), silent, never))

    def histories(self, name: str) -> list[opening.History]:
        """Where git keeps the codex's commits. Raises UnknownCodex, SourceError."""
        return opening.histories_of(self._job(self.request(name), silent, never).source, self.folder / "clones")

    def release(self, name: str, keep: frozenset[int] = frozenset()) -> None:
        """Drop all generations but these and the newest. Raises UnknownCodex."""
        for number in self.generations(name)[:-1]:
            if number not in keep:
                self._catalog.release(name, number)

    def take_back(self, before: Codex) -> None:
        """Restore the codex as it was before later loads: its newest generation (None: none) and its request.

        Scan results of its files are kept. Raises UnknownCodex, UnknownGeneration where that generation has been
        released, LoadRunning.
        """
        name = before.name
        codex = self.codex(name)
        with load_lock(self.folder / "locks", name, codex.source, ", ".join(codex.roots), asked=False):
            kept = self.generations(name)
            if before.newest is not None and before.newest not in kept:
                raise UnknownGeneration(f"codex {name!r} has no generation {before.newest} any more")
            self._catalog.register(name, before.source, before.roots, before.request)
            for number in kept:
                if before.newest is None or number > before.newest:
                    self._catalog.release(name, number)

    def drop(self, name: str) -> None:
        """Drop the codex here and in the index. Raises UnknownCodex, LoadRunning."""
        codex = self.codex(name)
        with load_lock(self.folder / "locks", name, codex.source, ", ".join(codex.roots), asked=False):
            if self._loader.indexer is not None:
                self._loader.indexer.drop(name)
            self._catalog.drop(name)
            self._sweep_clones()

    def _sweep_clones(self) -> None:
        used = {clone for one in self.codices() for clone in opening.clones_of(self.request(one.name))}
        for clone in (self.folder / "clones").glob("*.git"):
            if clone.name not in used:
                shutil.rmtree(clone, ignore_errors=True)

    def _job(self, request: LoadSpec, report: Report, cancelled: Cancelled) -> LoadJob:
        source = sources.resolve(request, Path.cwd())
        return LoadJob(self._name_for(request, source), source, request, report, cancelled)

    def _locked(self, job: LoadJob, *, asked: bool) -> AbstractContextManager[None]:
        folder, source = self.folder / "locks", job.source
        return load_lock(folder, job.name, source.key, source.title, asked=asked, cancelled=job.cancelled)

    def _name_for(self, request: LoadSpec, source: CodexSource) -> str:
        if request.name is not None:
            return valid_name(request.name)
        return reloaded_name(self.codices(), source) or name_from(source.suggested_name)

    def _insist_on_free_name(self, job: LoadJob) -> None:
        taken = {one.name: one for one in self.codices()}
        holder = taken.get(job.name)
        if holder is not None and not is_reload(holder, job.source) and not job.request.take_name:
            raise NameTaken(job.name, ", ".join(holder.roots), free_name(job.name, set(taken)))

    def _register(self, job: LoadJob) -> None:
        request = stored_request(job.request, job.source, job.name)
        self._catalog.register(job.name, job.source.key, job.source.places, request)
