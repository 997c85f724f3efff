"""The library: the one door through which the rest of the program loads, lists, reads and drops codices.

Loading blocks: run it in a thread. Everything else answers in milliseconds. The library holds the catalog and nothing
else; an index and a tokenizer are told about documents through `codex.ports` and are never named here.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from codex import sources
from codex.catalog import Catalog
from codex.codex_names import free_name, insist_on_name, name_from
from codex.documents import Document
from codex.errors import NameTaken, SourceError, UnknownGeneration
from codex.generations import Codex, Entry, Generation
from codex.ignore import Globs
from codex.ingest import Ingest, Taken
from codex.locks import load_lock
from codex.order import fresh_order, next_order
from codex.ports import CountTokens, Indexer
from codex.progress import Cancelled, Meter, Report, never, silent
from codex.reconcile import Changes, changes_between
from codex.settings import CodexSettings
from codex.sources import Forest, LoadRequest, Source
from codex.trees import TreeState

_PAGE = 64  # documents told to the token counter at once


@dataclass(frozen=True)
class Loaded:
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
class Survey:
    """What a load would take, from names and sizes alone (files that turn out binary are still counted)."""

    name: str
    files: int
    bytes: int
    skipped: dict[str, int]
    notices: tuple[str, ...]


class Library:
    """All codices in one data folder. Methods may be called from any thread; close it when done."""

    def __init__(
        self,
        folder: Path,
        settings: CodexSettings | None = None,
        *,
        indexer: Indexer | None = None,
        count: CountTokens | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`folder` is made when missing. Raises NewerCatalog, CatalogError, DiskFull."""
        self.folder = folder
        self.settings = settings or CodexSettings()
        self.catalog = Catalog(folder / "catalog.sqlite")
        self._indexer = indexer
        self._count = count
        self._clock = clock

    def close(self) -> None:
        self.catalog.close()

    def load(self, request: LoadRequest, report: Report = silent, cancelled: Cancelled = never) -> Loaded:
        """Take a source in as the newest generation of its codex; the same source under the same name is an update.

        Raises SourceError (missing, empty), GitError, NameTaken, BadName, LoadRunning, LoadCancelled, CatalogError,
        DiskFull. After any of them, and after a kill, the codex answers as before, and the next load continues.
        """
        source = sources.resolve(request, Path.cwd())
        name = self._name_for(request, source)
        with load_lock(self.folder / "locks", name, source.key, source.title):
            self._insist_on_free_name(name, source, request)
            self._register(name, source, request)
            try:
                return self._load(name, source, request, report, cancelled)
            except SourceError:
                self._unregister_if_empty(name)
                raise

    def reload(self, name: str, report: Report = silent, cancelled: Cancelled = never) -> Loaded:
        """Load again what the codex was loaded from. Raises UnknownCodex, and what `load` raises."""
        return self.load(self.request(name), report, cancelled)

    def survey(self, request: LoadRequest, cancelled: Cancelled = never) -> Survey:
        """What `load` would take; stores nothing but the clone of a git URL. Raises what `load` raises before reading."""
        source = sources.resolve(request, Path.cwd())
        name = self._name_for(request, source)
        self._insist_on_free_name(name, source, request)
        tree = self._open(source, request, cancelled)
        try:
            scan = tree.scan()
        finally:
            tree.close()
        size = sum(one.size for one in scan.candidates)
        return Survey(name, len(scan.candidates), size, scan.reasons(), scan.notices)

    def codices(self) -> tuple[Codex, ...]:
        """All codices by name, also those whose first load has not finished (`newest` is None)."""
        return self.catalog.codices()

    def codex(self, name: str) -> Codex:
        """Raises UnknownCodex."""
        return self.catalog.codex(name)

    def request(self, name: str) -> LoadRequest:
        """How the codex was loaded last. Raises UnknownCodex."""
        return _request_from(self.codex(name).request)

    def generation(self, name: str, number: int | None = None) -> Generation:
        """The newest generation or an older one that is kept. Raises UnknownCodex, UnknownGeneration."""
        return self.catalog.generation(name, number)

    def documents(self, generation: Generation) -> Iterator[Document]:
        """The generation's documents in its order, as they were when it was made, a page at a time."""
        return self.catalog.documents(generation.entries)

    def document(self, entry: Entry) -> Document:
        """One document. Raises CatalogError when it is no longer kept."""
        return next(self.catalog.documents([entry]))

    def changes(self, name: str, number: int | None = None, cancelled: Cancelled = never) -> Changes:
        """What differs on disk from a generation (default: the newest) now; new contents are stored, no generation made.

        Raises UnknownCodex, UnknownGeneration, LoadRunning, SourceError when the source is gone.
        """
        base = self.generation(name, number)
        request = self.request(name)
        source = sources.resolve(request, Path.cwd())
        with load_lock(self.folder / "locks", name, source.key, source.title):
            tree = self._open(source, request, cancelled)
            try:
                taken = self._ingest(request, source, silent, cancelled).take_in(name, tree)
                return changes_between(base, taken, tree.state())
            finally:
                tree.close()

    def tree(self, name: str) -> Forest:
        """The codex's tree on disk, for a watcher; close it when done. Raises UnknownCodex, SourceError."""
        request = self.request(name)
        return self._open(sources.resolve(request, Path.cwd()), request, never)

    def release(self, name: str, keep: frozenset[int]) -> None:
        """Drop all generations but these and the newest. Raises UnknownCodex."""
        *older, _ = self.catalog.generations(name) or (0,)
        for number in older:
            if number not in keep:
                self.catalog.release(name, number)

    def drop(self, name: str) -> None:
        """Drop the codex here and in the index. Raises UnknownCodex, LoadRunning."""
        codex = self.codex(name)
        with load_lock(self.folder / "locks", name, codex.source, name):
            self.catalog.drop(name)
            if self._indexer is not None:
                self._indexer.drop(name)

    def _load(self, name: str, source: Source, request: LoadRequest, report: Report, cancelled: Cancelled) -> Loaded:
        tree = self._open(source, request, cancelled)
        try:
            taken = self._ingest(request, source, report, cancelled).take_in(name, tree)
            if not taken.entries:
                raise SourceError(_nothing_in(source, taken))
            ordered = self._in_order(name, taken, tree)
            tokens = self._count_tokens(ordered, report, cancelled)
            self._bring_index_up_to(name, ordered, report, cancelled)
            generation, is_new = self._freeze(name, tree.state(), ordered, taken)
        finally:
            tree.close()
        return Loaded(self.codex(name), generation, taken.read, tokens, is_new)

    def _in_order(self, name: str, taken: Taken, tree: Forest) -> tuple[Entry, ...]:
        entries = {entry.path: entry for entry in taken.entries}
        volatility = tree.volatility(taken.candidates)
        newest = self._newest(name)
        if newest is None:
            paths = fresh_order(entries, volatility)
        else:
            old = [(entry.path, entry.digest) for entry in newest.entries]
            paths = next_order(old, {path: entry.digest for path, entry in entries.items()}, volatility)
        return tuple(entries[path] for path in paths)

    def _count_tokens(self, entries: tuple[Entry, ...], report: Report, cancelled: Cancelled) -> int | None:
        if self._count is None:
            return None
        meter = Meter("count", len(entries), report, self._clock)
        documents = self.catalog.documents(entries)
        total = 0
        while page := list(islice(documents, _PAGE)):
            sources.insist_on_going_on(cancelled)
            total += self._count(page)
            meter.advance(len(page))
        meter.finish()
        return total

    def _bring_index_up_to(self, name: str, entries: tuple[Entry, ...], report: Report, cancelled: Cancelled) -> None:
        if self._indexer is None:
            return
        held = self._indexer.held(name)
        missing = [entry for entry in entries if held.get(entry.path) != entry.digest]
        removed = sorted(held.keys() - {entry.path for entry in entries})
        meter = Meter("index", len(missing), report, self._clock)
        if missing or removed:
            documents = _until_cancelled(self.catalog.documents(missing), cancelled)
            self._indexer.index(name, documents, removed, meter.advance)
        meter.finish()

    def _freeze(self, name: str, state: TreeState, entries: tuple[Entry, ...], taken: Taken) -> tuple[Generation, bool]:
        newest = self._newest(name)
        if newest is None or newest.entries != entries:
            made = self.catalog.freeze(name, state, entries, taken.skipped, taken.notices)
            return made, True
        again = replace(newest, state=state, skipped=taken.skipped, notices=taken.notices)
        if again != newest:
            self.catalog.restate(again)
        return again, False

    def _newest(self, name: str) -> Generation | None:
        try:
            return self.catalog.generation(name)
        except UnknownGeneration:
            return None

    def _open(self, source: Source, request: LoadRequest, cancelled: Cancelled) -> Forest:
        return sources.open_tree(source, request, self.settings, self.folder / "clones", cancelled)

    def _ingest(self, request: LoadRequest, source: Source, report: Report, cancelled: Cancelled) -> Ingest:
        settings = self.settings
        if request.load_secrets:
            settings = replace(settings, secrets=replace(settings.secrets, load_secret_contents=True))
        named = source.named(request.globs)
        return Ingest(self.catalog, settings, report, cancelled, named.__contains__, self._clock)

    def _name_for(self, request: LoadRequest, source: Source) -> str:
        if request.name is not None:
            return insist_on_name(request.name)
        return next((one.name for one in self.codices() if one.source == source.key), name_from(source.suggested_name))

    def _insist_on_free_name(self, name: str, source: Source, request: LoadRequest) -> None:
        taken = {one.name: one for one in self.codices()}
        if name in taken and taken[name].source != source.key and not request.take_name:
            raise NameTaken(name, ", ".join(taken[name].roots), free_name(name, set(taken)))

    def _register(self, name: str, source: Source, request: LoadRequest) -> None:
        lasting = replace(request, sources=source.lasting, name=name, take_name=False)
        self.catalog.register(name, source.key, source.places, json.dumps(asdict(lasting)))

    def _unregister_if_empty(self, name: str) -> None:
        if self._newest(name) is None:
            self.catalog.drop(name)


def _request_from(text: str) -> LoadRequest:
    stored = json.loads(text)
    globs = Globs(**{key: tuple(value) for key, value in stored.pop("globs").items()})
    return LoadRequest(**{**stored, "sources": tuple(stored["sources"]), "globs": globs})


def _until_cancelled(documents: Iterator[Document], cancelled: Cancelled) -> Iterator[Document]:
    for document in documents:
        sources.insist_on_going_on(cancelled)
        yield document


def _nothing_in(source: Source, taken: Taken) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(taken.skipped.items()))
    why = f"all files were left out ({reasons})" if reasons else "it holds no files"
    return f"nothing to load from {source.title}: {why}{os.linesep.join(('', *taken.notices[:3])) if reasons else ''}"
