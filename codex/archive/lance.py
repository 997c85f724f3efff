"""The Archive in LanceDB: full-text search in files, no server.

One database (a folder) per codex, with two tables: `chunks`, and `files` for whole files. Both have one full-text
index, on words that were split before they were stored (`codex.archive.prepare`), with English stemming.

The folder's name has the version of the stored format. A folder of another version is removed; `held` is then empty, and
the codex is indexed again from the catalog. A folder that cannot be read is moved aside by a rename.

A batch is one commit of `chunks`, which is what a search sees, then one of `files`. `held` believes a file only where
both agree on its digest, so a process killed between the two loses nothing.
"""

import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from codex.archive import queries, tables
from codex.archive.archive import (
    ArchiveDamaged,
    ArchiveError,
    ArchiveStats,
    ChunkMatch,
    FileMatch,
    IndexProgress,
    unreported,
)
from codex.archive.definitions import ChunkPlace, Definitions
from codex.archive.folders import Folders
from codex.archive.prepare import PREPARE_VERSION, PreparedDocument, batches, prepare
from codex.archive.tables import LANCE_ERRORS, is_of_the_disk, panics_as_errors, short_message
from codex.catalog.databases import SqliteBytesCache
from codex.documents import Document
from codex.process_memory import give_back

_SCHEMA = 6
_FLAT_ROWS = 2_000  # not yet in the index: scanning so many costs a search about 10 ms
_GIVE_BACK = 8  # batches, 5 to 30 seconds; in between what was freed lies about in every thread's arena
_WARM = ("return",)  # any word: the first query opens the index


class LanceArchive:
    """An `Archive` under a folder of its own. Cheap to make: LanceDB is imported at the first use."""

    def __init__(self, root: Path) -> None:
        self._folders = Folders(root, f"{_SCHEMA}.{PREPARE_VERSION}")
        self._remembered = SqliteBytesCache(root / "prepared.sqlite3")
        self._session = tables.LanceSession()
        self._open: dict[str, tables.Tables] = {}
        self._defined: dict[str, Definitions] = {}
        self._revisions: Counter[str] = Counter()
        self._writing = threading.RLock()

    # -- what it holds ---------------------------------------------------------------------------------------------

    def held(self, codex: str) -> Mapping[str, str]:
        try:
            with self._reading(codex) as opened:
                return {} if opened is None else queries.held(opened)
        except ArchiveDamaged:
            return {}

    def stats(self, codex: str) -> ArchiveStats:
        with self._reading(codex) as opened:
            if opened is None:
                return ArchiveStats(codex, 0, 0)
            files, chunks = opened.files.count_rows(), opened.chunks.count_rows()
            return ArchiveStats(codex, files, chunks, tables.unindexed(opened.chunks))

    def revision(self, codex: str) -> int:
        return self._revisions[codex]

    # -- writing ---------------------------------------------------------------------------------------------------

    def replace(self, codex: str, documents: Sequence[Document], removed: Sequence[str] = ()) -> int:
        latest = list({document.path: document for document in documents}.values())
        prepared = prepare(latest, self._remembered)
        with self._writing, self._translated(codex):
            opened = self._opened(codex) or (self._create(codex) if prepared else None)
            if opened is None:
                return 0
            gone = [*removed, *(one.path for one in prepared)]
            tables.write(opened.chunks, tables.chunk_rows(prepared), gone)
            self._redefine(codex, prepared, gone)
            self._revisions[codex] += 1
            tables.write(opened.files, tables.file_rows(prepared), gone)
            tables.note_versions(self._folders.of(codex), opened)
        return sum(len(one.chunks) for one in prepared)

    def index(
        self,
        codex: str,
        documents: Iterable[Document],
        removed: Sequence[str] = (),
        progress: IndexProgress = unreported,
    ) -> None:
        self.remove(codex, removed)
        for number, batch in enumerate(batches(documents), start=1):
            self.replace(codex, batch)
            if number % _GIVE_BACK == 0:
                give_back()
            progress(len(batch))
        if self.stats(codex).unindexed > _FLAT_ROWS:
            self.optimize(codex)

    def remove(self, codex: str, paths: Sequence[str]) -> None:
        if paths:
            self.replace(codex, (), paths)

    def warm(self, codex: str) -> None:
        with self._reading(codex) as opened:
            if opened is not None:
                self._show(codex, opened)
        self.definitions(codex, ())
        self.matches(codex, _WARM, 1)
        self.file_matches(codex, _WARM, 1)

    def drop(self, codex: str) -> None:
        with self._writing:
            self._forget(codex)
            self._folders.remove(codex)

    def optimize(self, codex: str) -> None:
        with self._writing, self._translated(codex):
            opened = self._opened(codex)
            if opened is not None:
                for table in (opened.chunks, opened.files):
                    give_back()  # what writing and the fold before have freed would lie beside what this one takes
                    tables.fold(table)
                give_back()
                tables.show(opened)
                tables.note_versions(self._folders.of(codex), opened)

    # -- finding and reading ---------------------------------------------------------------------------------------

    def matches(
        self, codex: str, query: Sequence[str], n: int, paths: Sequence[str] | None = None
    ) -> tuple[ChunkMatch, ...]:
        with self._reading(codex) as opened:
            if opened is None or not query or n <= 0:
                return ()
            return tuple(queries.found(opened, query, n, None if paths is None else tables.among(paths)))

    def exact(self, codex: str, text: str, n: int) -> tuple[ChunkMatch, ...]:
        with self._reading(codex) as opened:
            return () if opened is None or not text or n <= 0 else tuple(queries.exact(opened, text, n))

    def phrase(self, codex: str, words: Sequence[str], n: int) -> tuple[ChunkMatch, ...]:
        with self._reading(codex) as opened:
            return () if opened is None or not words or n <= 0 else tuple(queries.phrase(opened.chunks, words, n))

    def file_matches(self, codex: str, query: Sequence[str], n: int) -> tuple[FileMatch, ...]:
        with self._reading(codex) as opened:
            if opened is None or not query or n <= 0:
                return ()
            return tuple(FileMatch(path, score) for path, score in queries.found_files(opened, query, n))

    def definitions(self, codex: str, names: Iterable[str]) -> Mapping[str, tuple[ChunkPlace, ...]]:
        with self._reading(codex) as opened:
            return {} if opened is None else self._definitions(codex, opened).found(names)

    def at(self, codex: str, places: Sequence[ChunkPlace]) -> Mapping[ChunkPlace, tuple[ChunkMatch, str]]:
        with self._reading(codex) as opened:
            return {} if opened is None else queries.read(opened.chunks, places)

    def chunks(self, codex: str) -> Iterator[ChunkMatch]:
        with self._reading(codex) as opened:
            if opened is not None:
                yield from queries.scan(opened.chunks)

    def digests(self, codex: str) -> Mapping[str, tuple[ChunkPlace, ...]]:
        with self._reading(codex) as opened:
            if opened is None:
                return {}
            with self._writing:  # only where vectors are made does anybody look chunks up by digest
                if tables.ensure_look_up(opened.chunks, "chunk_digest"):
                    tables.note_versions(self._folders.of(codex), opened)
            return queries.digests(opened.chunks)

    def generated(self, codex: str) -> frozenset[str]:
        with self._reading(codex) as opened:
            return frozenset() if opened is None else queries.generated(opened.chunks)

    def holding(self, codex: str, digests: Sequence[str]) -> Mapping[str, tuple[ChunkPlace, ...]]:
        with self._reading(codex) as opened:
            return {} if opened is None else queries.holding(opened.chunks, digests)

    # -- folders and tables ----------------------------------------------------------------------------------------

    def set_aside(self, codex: str) -> Path | None:
        """Renames a codex's folder so that nothing finds it again; returns where it now is."""
        with self._writing:
            self._forget(codex)
            return self._folders.set_aside(codex)

    def close(self) -> None:
        """Lets go of all files; the next call opens them again. Nobody may be reading."""
        with self._writing:
            self._open.clear()
            self._defined.clear()
            self._session = tables.LanceSession()
            self._folders.close()
            self._remembered.close()

    def _forget(self, codex: str) -> None:
        self._revisions[codex] += 1
        self._open.pop(codex, None)
        self._defined.pop(codex, None)

    def _opened(self, codex: str) -> tables.Tables | None:
        cached = self._open.get(codex)
        if cached is not None:
            return cached
        with self._writing:
            if codex not in self._open:
                folder = self._folders.of(codex)
                if not folder.is_dir():
                    return None
                mark = self._folders.mark(codex)
                if mark.left_behind():
                    raise ValueError("processes ended while they read it")
                with mark.reading():
                    self._open[codex] = tables.open_tables(folder, self._session)
            return self._open[codex]

    def _create(self, codex: str) -> tables.Tables:
        folder = self._folders.make(codex)
        try:
            self._open[codex] = tables.create_tables(folder, self._session)
        except LANCE_ERRORS:  # no room: nothing was stored, and an empty folder would look damaged
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._defined[codex] = Definitions()
        return self._open[codex]

    def _definitions(self, codex: str, opened: tables.Tables) -> Definitions:
        """Where names are defined, read from the table once and then kept up to date by every write."""
        cached = self._defined.get(codex)
        if cached is not None:
            return cached
        with self._writing:
            if codex not in self._defined:
                self._defined[codex] = queries.defined(queries.encoded_rows(opened.chunks))
            return self._defined[codex]

    def _show(self, codex: str, opened: tables.Tables) -> None:
        """Reads what searches show and, in the same scan, where names are defined."""
        before = self._revisions[codex]
        rows = tables.show(opened)
        with self._writing:  # a write that ended meanwhile may be in the scan, or not
            if rows is not None and codex not in self._defined and self._revisions[codex] == before:
                self._defined[codex] = queries.defined(rows)

    def _redefine(self, codex: str, prepared: Sequence[PreparedDocument], gone: Sequence[str]) -> None:
        defined = self._defined.get(codex)
        if defined is None:
            return
        for path in gone:
            defined.replace(path, ())
        for one in prepared:
            chunks = (each.chunk for each in one.chunks)
            defined.replace(one.path, [(ChunkPlace(one.path, each.start, each.end), each.names) for each in chunks])

    @contextmanager
    def _reading(self, codex: str) -> Iterator[tables.Tables | None]:
        """The open tables, None of a codex that is not known; a mark stands meanwhile. Errors as ours."""
        with self._translated(codex):
            opened = self._opened(codex)
            if opened is None:
                yield None
                return
            with self._folders.mark(codex).reading():
                yield opened

    @contextmanager
    def _translated(self, codex: str) -> Iterator[None]:
        """LanceDB's errors as ours: what cannot be read is set aside, what cannot be written is reported."""
        try:
            with panics_as_errors():
                yield
        except LANCE_ERRORS as error:
            if is_of_the_disk(error):
                raise ArchiveError(
                    f"the archive of {codex!r} cannot be written: {short_message(error)}; free some room"
                ) from error
            self.set_aside(codex)
            raise ArchiveDamaged(codex, short_message(error)) from error
