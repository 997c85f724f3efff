"""The library: the interface through which the rest of the program loads, follows and drops codices; and a load's steps.

    scan, read, store (`codex.ingest`) ─▶ order ─▶ index ─▶ freeze the generation

What is loaded is read in `catalog`. Loading, following and dropping block: run them in a thread. All other methods return
in milliseconds. Documents are passed to an index that the library knows as a protocol only.

The order of files follows one rule: the more often a file changes, the further right it is, because a prefix is shared up
to the first difference. The order is frozen with a generation; the next generation keeps it as far as possible.

    old     a  b  c  d  e          c was edited, f is new
    new     a  b  d  e  c  f       shared: a b

A codex whose prefix came from another machine takes the order that it had there (`expect`).

A survey reads some files only, drawn by a hash of their names: as good as random, and the same every time. Each is weighted
by its size, because an estimate from the sample is a share of all bytes.
"""

import hashlib
import heapq
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from codex.catalog.catalog import Catalog
from codex.catalog.generations import Codex, FileEntry, Generation
from codex.documents import Document
from codex.errors import (
    ArchiveHeld,
    ArchiveOutOfReach,
    GitError,
    LoadCancelled,
    NameTaken,
    SourceError,
    UnknownGeneration,
)
from codex.following.amendments import Amendment, AmendmentWriter, ChangedDefinitions, new_entries
from codex.following.comparing import Differences, Glance, differences, held_in
from codex.ingest import Ingest, IngestResult
from codex.locks import load_lock
from codex.process_memory import gc_pause
from codex.progress import Cancelled, Meter, OnProgress, never, silent
from codex.reload_match import free_name, is_reload, name_from, reloaded_name, spec_of, stored_request, valid_name
from codex.settings import LibrarySettings
from codex.trees import opening, sources
from codex.trees.git import Git, available
from codex.trees.lore_file import LoreFile
from codex.trees.opening import MultiRootTree
from codex.trees.port import TreeState
from codex.trees.sent import SENT, SentFiles
from codex.trees.sources import CodexSource, LoadSpec

SAMPLE_FILES = 128
SAMPLE_BYTES = 8 << 20  # of them; files that are drawn later are left out
SAMPLE_HEAD = 16_000  # characters of one file: its beginning gives its tokens a byte
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SampledFile:
    """A file of the sample: its name, its bytes, and its text, None where a load leaves it out."""

    path: str
    size: int
    text: str | None


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
    """The result of following the disk: its state, the whole log of the generation, and how many of its entries are new."""

    state: TreeState
    log: tuple[Amendment, ...]
    new: int


@dataclass(frozen=True)
class LoadResult:
    """What a load did. `read` files were read, the others had not changed."""

    codex: Codex
    generation: Generation
    read: int

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

        `documents` is read once, in order, and is never wholly in memory. May raise CodexError; ArchiveHeld, here or in
        `held`, ends no load, and ArchiveOutOfReach no following of the disk: what differs is then left to a later one.
        """

    def drop(self, codex: str) -> None:
        """Forget the codex; no error when it is not known."""


@dataclass(frozen=True)
class _Job:
    """The codex's name, its source, the request, who receives progress, and when to stop."""

    name: str
    source: CodexSource
    request: LoadSpec
    report: OnProgress = silent
    cancelled: Cancelled = never
    why: str = ""  # the reason of a load that no user asked for


class Library:
    """All codices in one data folder. Methods may be called from any thread; close it when done."""

    def __init__(
        self,
        folder: Path,
        settings: LibrarySettings | None = None,
        *,
        indexer: Indexer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`folder` is made when missing. Raises NewerCatalog, CatalogError, DiskFull."""
        self.folder = folder
        self.settings = settings or LibrarySettings()
        self.catalog = Catalog(folder / "catalog.sqlite")
        self._indexer = indexer
        self._clock = clock
        self._clones = folder / "clones"
        self.sent = SentFiles(folder / SENT, self.settings.walk)

    def close(self) -> None:
        self.catalog.close()

    def load(
        self,
        request: LoadSpec,
        report: OnProgress = silent,
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
            if all(one.name != job.name for one in self.catalog.codices()):
                self._register(job)
            try:
                generation, read = self._loaded(job)
            except SourceError:
                if self.catalog.codex(job.name).newest is None:
                    self.catalog.drop(job.name)
                raise
            finally:
                self.catalog.give_back()
            self._register(job)  # only now: a load that failed must not change what a reload would do
            return LoadResult(self.catalog.codex(job.name), generation, read)

    def survey(self, request: LoadSpec, cancelled: Cancelled = never) -> Survey:
        """What `load` would store; stores only the clone of a git URL. Raises what `load` raises before reading."""
        job = self._job(request, silent, cancelled)
        self._insist_on_free_name(job)
        with closing(self._open(job)) as tree:
            scan, ingest = tree.scan(cancelled), self._ingest(job)
            drawn = draw_sample(scan.candidates, lambda one: one.path, lambda one: one.size)
            sample = tuple(SampledFile(one.path, one.size, ingest.text_of(tree, one)) for one in drawn)
        size = sum(one.size for one in scan.candidates)
        return Survey(job.name, len(scan.candidates), size, scan.reasons(), scan.notices, sample)

    def request(self, name: str) -> LoadSpec:
        """How the codex was loaded last. Raises UnknownCodex."""
        return spec_of(self.catalog.codex(name))

    def name_of(self, request: LoadSpec) -> str:
        """The name that a load of this would have. Raises SourceError, BadName."""
        return self._job(request, silent, never).name

    def lore_file(self, name: str) -> LoreFile:
        """The codex's own `.lore.toml`. Raises UnknownCodex, SourceError for a file that cannot be used."""
        return opening.lore_file_of(sources.resolve(self.request(name), Path.cwd()), self._clones)

    def follow(
        self,
        name: str,
        number: int | None = None,
        *,
        count: Callable[[str], int],
        changed_definitions: ChangedDefinitions,
    ) -> FollowResult:
        """Bring index and amendment log of a generation (default: the newest) up to the disk.

        The log is written whole or not at all: after a kill the next call completes both. Raises UnknownCodex,
        UnknownGeneration, LoadRunning, SourceError when the source is gone.
        """
        base = self.catalog.generation(name, number)
        job = self._job(self.request(name), silent, never)
        with self._locked(job, asked=False), gc_pause():
            with closing(self._open(job)) as tree:
                entries, state = self._ingest(job).store_tree(name, tree).entries, tree.state()
            with suppress(ArchiveOutOfReach):  # who keeps the archive in order completes it later
                self._bring_index_up_to(job, entries)
            log = self.catalog.amendments(name, base.number)
            limit = self.settings.amendments.whole_file_tokens
            writer = AmendmentWriter(self.catalog.document_by_digest, count, changed_definitions, limit)
            new = new_entries(base.digests(), log, {one.path: one.digest for one in entries}, writer)
            self.catalog.append(name, base.number, new)
            if state != base.state:
                self.catalog.restate(replace(base, state=state))  # what is told after a restart, too
            if self.catalog.codex(name).source != job.source.key:
                self._register(job)  # a link leads elsewhere
        return FollowResult(state, log + new, len(new))

    def outside(self, name: str, cancelled: Cancelled = never) -> Differences:
        """How the disk differs from the newest generation and its log; nothing is stored. Raises like `follow`."""
        base = self.catalog.generation(name)
        with gc_pause():
            job = self._job(self.request(name), silent, cancelled)
            with closing(self._open(job)) as tree:
                scan = tree.scan(cancelled)
                glance = Glance(self._ingest(job), tree, self.catalog.known(name), cancelled)
                held = held_in(base, self.catalog.amendments(name, base.number))
                return differences(held, scan.candidates, glance.digest)

    def tree(self, name: str) -> MultiRootTree:
        """The codex's tree on disk, for a watcher; close it when done. Raises UnknownCodex, SourceError."""
        return self._open(self._job(self.request(name), silent, never))

    def histories(self, name: str) -> list[opening.History]:
        """Where git keeps the codex's commits. Raises UnknownCodex, SourceError."""
        return opening.histories_of(self._job(self.request(name), silent, never).source, self._clones)

    def commit(self, name: str, named: str) -> str | None:
        """The full name of a commit of the codex's repositories, None where none of them has it. Raises UnknownCodex,
        SourceError."""
        for history in self.histories(name) if available() else ():
            with suppress(GitError):
                return Git(history.folder).resolve(named)
        return None

    def release(self, name: str) -> None:
        """Drop all generations but the newest. Raises UnknownCodex."""
        for number in self.catalog.generations(name)[:-1]:
            self.catalog.release(name, number)

    def take_back(self, before: Codex) -> None:
        """Restore the codex as it was before later loads: its newest generation (None: none) and its request.

        Scan results of its files are kept. Raises UnknownCodex, UnknownGeneration where that generation has been
        released, LoadRunning.
        """
        name = before.name
        codex = self.catalog.codex(name)
        with load_lock(self.folder / "locks", name, codex.source, ", ".join(codex.roots), asked=False):
            kept = self.catalog.generations(name)
            if before.newest is not None and before.newest not in kept:
                raise UnknownGeneration(f"codex {name!r} has no generation {before.newest} any more")
            self.catalog.register(name, before.source, before.roots, before.request)
            for number in kept:
                if before.newest is None or number > before.newest:
                    self.catalog.release(name, number)

    def drop(self, name: str) -> None:
        """Drop the codex here and in the index. Raises UnknownCodex, LoadRunning."""
        codex = self.catalog.codex(name)
        with load_lock(self.folder / "locks", name, codex.source, ", ".join(codex.roots), asked=False):
            if self._indexer is not None:
                self._indexer.drop(name)
            self.catalog.drop(name)
            self.sent.drop(name)
            self._sweep_clones()

    def _sweep_clones(self) -> None:
        used = {clone for one in self.catalog.codices() for clone in opening.clones_of(self.request(one.name))}
        for clone in self._clones.glob("*.git"):
            if clone.name not in used:
                shutil.rmtree(clone, ignore_errors=True)

    def _job(self, request: LoadSpec, report: OnProgress, cancelled: Cancelled) -> _Job:
        source = sources.resolve(request, Path.cwd())
        if request.name is not None:
            name = valid_name(request.name)
        else:
            name = reloaded_name(self.catalog.codices(), source) or name_from(source.suggested_name)
        return _Job(name, source, request, report, cancelled)

    def _locked(self, job: _Job, *, asked: bool) -> AbstractContextManager[None]:
        folder, source = self.folder / "locks", job.source
        return load_lock(folder, job.name, source.key, source.title, asked=asked, cancelled=job.cancelled)

    def _insist_on_free_name(self, job: _Job) -> None:
        taken = {one.name: one for one in self.catalog.codices()}
        holder = taken.get(job.name)
        if holder is not None and not is_reload(holder, job.source) and not job.request.take_name:
            raise NameTaken(job.name, ", ".join(holder.roots), free_name(job.name, set(taken)))

    def _register(self, job: _Job) -> None:
        request = stored_request(job.request, job.source, job.name)
        self.catalog.register(job.name, job.source.key, job.source.places, request)

    # -- the steps of a load

    def _open(self, job: _Job) -> MultiRootTree:
        """The tree to read from; close it. Raises SourceError, GitError, LoadCancelled."""
        return opening.open_tree(job.source, job.request, self.settings, self._clones, job.cancelled)

    def _loaded(self, job: _Job) -> tuple[Generation, int]:
        """Store, order, index, freeze: the generation appears last, when all else is done. With it the number of files that
        were read."""
        with closing(self._open(job)) as tree:
            taken = self._ingest(job).store_tree(job.name, tree)
            if not taken.entries:
                raise SourceError(_nothing_in(job.source, taken))
            entries = self._in_order(job.name, taken, tree)
            taken = replace(taken, candidates=())  # of 100,000 files 40 MB, which indexing does not need
            with suppress(ArchiveHeld):  # it is read as another one has it
                self._bring_index_up_to(job, entries)
            return self._freeze(job, tree.state(), entries, taken), taken.read

    def _bring_index_up_to(self, job: _Job, entries: Sequence[FileEntry]) -> None:
        """Index the entries that the index does not hold with this digest; remove files that are not among them."""
        if self._indexer is None:
            return
        held = self._indexer.held(job.name)
        missing = [entry for entry in entries if held.get(entry.path) != entry.digest]
        removed = sorted(held.keys() - {entry.path for entry in entries})
        meter = Meter("index", len(missing), job.report, self._clock)
        if missing or removed:
            documents = _until_cancelled(self.catalog.documents(missing), job.cancelled)
            self._indexer.index(job.name, documents, removed, meter.advance)
        meter.finish()

    def _ingest(self, job: _Job) -> Ingest:
        settings = self.settings
        if job.request.load_secrets:
            settings = replace(settings, secrets=replace(settings.secrets, load_secret_contents=True))
        named = job.source.named(job.request.globs)
        return Ingest(self.catalog, settings, job.report, job.cancelled, named.__contains__, self._clock)

    def _in_order(self, name: str, taken: IngestResult, tree: MultiRootTree) -> tuple[FileEntry, ...]:
        entries = {entry.path: entry for entry in taken.entries}
        volatility = tree.volatility(taken.candidates)
        newest = self._newest(name)
        old = [(entry.path, entry.digest) for entry in newest.entries] if newest else self._expected(name)
        paths = next_order(old, {path: entry.digest for path, entry in entries.items()}, volatility)
        return tuple(entries[path] for path in paths)

    # -- the order of a codex that was loaded elsewhere

    def expect(self, name: str, order: Sequence[tuple[str, str]]) -> None:
        """The first load under this name takes this order of paths and digests as that of a generation before it. Raises
        OSError."""
        path = self._expected_file(name)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(order), "utf-8")
        temporary.replace(path)

    def knows(self, name: str) -> bool:
        """Whether a codex of this name was loaded to its end."""
        return any(one.name == name and one.newest is not None for one in self.catalog.codices())

    def _expected(self, name: str) -> list[tuple[str, str]]:
        """Empty where nothing was said, or it cannot be read: then files are in an order of their own."""
        try:
            found = json.loads(self._expected_file(name).read_bytes())
        except (OSError, ValueError):
            return []
        return [(path, digest) for path, digest in found]

    def _expected_file(self, name: str) -> Path:
        return self.folder / "orders" / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"

    def _freeze(self, job: _Job, state: TreeState, entries: tuple[FileEntry, ...], taken: IngestResult) -> Generation:
        """A new generation, or the newest where the files are the same and nothing was logged behind it: what changed and
        was changed back would stay in the prompt."""
        newest = self._newest(job.name)
        if newest is None or newest.entries != entries or self.catalog.amendments(job.name, newest.number):
            made = self.catalog.freeze(job.name, state, entries, taken.skipped, taken.notices, job.why)
            self._expected_file(job.name).unlink(missing_ok=True)
            return made
        again = replace(newest, state=state, skipped=taken.skipped, notices=taken.notices)
        if again != newest:
            self.catalog.restate(again)
        return again

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
    return "; ".join((f"nothing to load from {source.title}: {why}", *taken.notices[:3]))


# -- the order of files


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


# -- the sample of a survey


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
