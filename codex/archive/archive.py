"""The Archive: the index that is searched for code that is not in the prompt. Full-text search in files, no server.

Contract, which `tests/contracts/test_archive.py` also holds the tests' archive in memory to:

* Ownership. The archive owns what it stores. Documents are read during the call and not kept. Results are copies.
* Threads. Any thread may call. Writes to one archive wait for each other. A search never waits for a write.
* Visibility. Every search that begins after a call returned finds what the call wrote. `replace` is atomic: a search of
  chunks sees all documents of one call as before, or all as after.
* State. `held` alone tells what is indexed: digest by path. A lost or damaged index holds nothing, so a caller that
  compares `held` with the catalog builds it again.
* Errors. `ArchiveDamaged`: the stored data cannot be read; it has been moved aside, and `held` is empty.
  `ArchiveOutOfReach`: on object storage, that cannot be asked or is another one's to write; nothing of it has changed.
  `ArchiveError`: every other fault of the machine (disk full, no permission). An unknown codex is empty, not an error.

One LanceDB database (a folder) per codex, with two tables: `chunks`, and `files` for whole files. Both have one full-text
index, on words that were split before they were stored (`codex.archive.prepare`), with English stemming. A query is a list
of words as `codex.words.query_words` gives them.

The folder's name has the version of the stored format. A folder of another version is removed; `held` is then empty, and
the codex is indexed again from the catalog. A batch is one commit of `chunks`, which is what a search sees, then one of
`files`. `held` believes a file only where both agree on its digest, so a process killed between the two loses nothing.

With a `RemoteArchive` the databases are on object storage (`codex.archive.remote`) and others read them: nothing there is
removed or moved aside, and one holds a lease while it writes.

The archive finds and reads. `codex.searching.search` ranks.
"""

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from codex.archive import queries, tables
from codex.archive.folders import Folders
from codex.archive.lance import LANCE_ERRORS, LanceSession, is_of_the_disk, panics_as_errors, remedy, short_message
from codex.archive.prepare import PREPARE_VERSION, PreparedDocument, batches, prepare
from codex.archive.queries import ChunkMatch, ChunkPlace, Definitions, FileMatch, ReadChunks, Tables
from codex.archive.remote import Remote
from codex.catalog.databases import SqliteBytesCache
from codex.documents import Document
from codex.errors import ArchiveAway, ArchiveDamaged, ArchiveError
from codex.process_memory import give_back
from codex.settings import RemoteArchive

_SCHEMA = 6
_FLAT_ROWS = 2_000  # not yet in the index: scanning so many costs a search about 10 ms
_GIVE_BACK = 8  # batches, 5 to 30 seconds; in between what was freed lies about in every thread's arena
_WARM = ("return",)  # any word: the first query opens the index


class Archive:
    """An archive under a folder of its own. Cheap to make: LanceDB is imported at the first use."""

    def __init__(self, root: Path, remote: RemoteArchive | None = None) -> None:
        version = f"{_SCHEMA}.{PREPARE_VERSION}"
        self._folders = Folders(root, version)
        self.remote = None if remote is None else Remote(remote, root / "remote", version)
        self._versions: dict[str, int] = {}  # on object storage: of the chunks, as they were last seen
        self._remembered = SqliteBytesCache(root / "prepared.sqlite3")
        self._session = self._new_session()
        self._open: dict[str, Tables] = {}
        self._defined: dict[str, Definitions] = {}
        self._read: dict[str, ReadChunks] = {}
        self._revisions: Counter[str] = Counter()
        self._writing = threading.RLock()

    # -- what it holds ---------------------------------------------------------------------------------------------

    def held(self, codex: str) -> Mapping[str, str]:
        """Digest by path of what is searchable; empty for a codex it does not know or whose index was lost."""
        try:
            with self._reading(codex) as opened:
                if opened is not None and self.remote is not None:
                    tables.latest(opened)
                return {} if opened is None else queries.held(opened)
        except ArchiveDamaged:
            return {}

    def count(self, codex: str) -> int:
        """Number of chunks; 0 when the codex is not known."""
        with self._reading(codex) as opened:
            return 0 if opened is None else int(opened.chunks.count_rows())

    def revision(self, codex: str) -> int:
        """A number that differs after every write to the codex through this object: what was derived is then stale."""
        return self._revisions[codex]

    # -- writing ---------------------------------------------------------------------------------------------------

    def replace(self, codex: str, documents: Sequence[Document], removed: Sequence[str] = ()) -> int:
        """Stores the chunks of these documents in place of what their paths held, and forgets `removed`, as one step.

        Returns the number of chunks stored. Of two documents of one path the last counts.
        """
        latest = list({document.path: document for document in documents}.values())
        prepared = prepare(latest, self._remembered)
        with self._writing, self._translated(codex):
            opened = self._opened(codex)
            if opened is None and not prepared:
                return 0
            self._may_write(codex, opened)
            opened = opened or self._create(codex)
            gone = [*removed, *(one.path for one in prepared)]
            tables.write(opened.chunks, tables.chunk_rows(prepared), gone)
            self._redefine(codex, prepared, gone)
            self._revisions[codex] += 1
            tables.write(opened.files, tables.file_rows(prepared), gone)
            self._revisions[codex] += 1  # what was derived between the two had the files of before
            self._note(codex, opened)
        return sum(len(one.chunks) for one in prepared)

    def index(
        self,
        codex: str,
        documents: Iterable[Document],
        removed: Sequence[str] = (),
        progress: Callable[[int], None] = lambda done: None,  # noqa: ARG005
    ) -> None:
        """`replace` in batches, then `optimize` where it pays. Reads documents once, in order, never wholly in memory.

        `progress(n)`: n more documents are searchable.
        """
        if removed:
            self.replace(codex, (), removed)
        for number, batch in enumerate(batches(documents), start=1):
            self.replace(codex, batch)
            if number % _GIVE_BACK == 0:
                give_back()
            progress(len(batch))
        with self._reading(codex) as opened:
            unindexed = 0 if opened is None else tables.unindexed(opened.chunks)
        if unindexed > _FLAT_ROWS:
            self.optimize(codex)

    def optimize(self, codex: str) -> None:
        """Folds what was written into the indexes and frees old versions. Only speed and room change."""
        with self._writing, self._translated(codex):
            opened = self._opened(codex)
            if opened is not None:
                self._may_write(codex, opened)
                for table in (opened.chunks, opened.files):
                    give_back()  # what writing and the fold before have freed would lie beside what this one takes
                    tables.fold(table)
                give_back()
                opened.fill_caches()
                self._note(codex, opened)

    def warm(self, codex: str) -> None:
        """Reads beforehand what the first search would wait for; raises what a search would raise."""
        with self._reading(codex) as opened:
            if opened is not None:
                self._show(codex, opened)
        self.definitions(codex, ())
        self.both(codex, _WARM, 1, 1)

    def drop(self, codex: str) -> None:
        """Forgets the codex and frees its room; no error when it is not known. What is on object storage stays."""
        with self._writing:
            self._forget(codex)
            if self.remote is None:
                self._renew()
                self._folders.remove(codex)

    # -- finding and reading ---------------------------------------------------------------------------------------

    def matches(
        self, codex: str, query: Sequence[str], n: int, paths: Sequence[str] | None = None
    ) -> tuple[ChunkMatch, ...]:
        """At most `n` chunks that hold any of these words, best first; only in `paths` when given."""
        with self._reading(codex) as opened:
            return () if opened is None or not query or n <= 0 else tuple(queries.best_chunks(opened, query, n, paths))

    def both(
        self, codex: str, query: Sequence[str], chunks: int, files: int
    ) -> tuple[Sequence[ChunkMatch], Sequence[FileMatch]]:
        """At most so many chunks, and so many files ranked as wholes, that hold any of these words; each best first."""
        with self._reading(codex) as opened:
            return (
                ((), ()) if opened is None or not query else queries.best_chunks_and_files(opened, query, chunks, files)
            )

    def exact(self, codex: str, text: str, n: int) -> tuple[ChunkMatch, ...]:
        """At most `n` chunks whose text holds this string as it is, case and punctuation too; '' is in none."""
        with self._reading(codex) as opened:
            return () if opened is None or not text or n <= 0 else tuple(queries.exact(opened, text, n))

    def phrase(self, codex: str, words: Sequence[str], n: int) -> tuple[ChunkMatch, ...]:
        """At most `n` chunks whose text has these words one behind the other, with anything but words between them.

        Looked for among the chunks that hold them all, a few hundred at most.
        """
        with self._reading(codex) as opened:
            return () if opened is None or not words or n <= 0 else tuple(queries.phrase(opened.chunks, words, n))

    def definitions(self, codex: str, names: Iterable[str]) -> Mapping[str, tuple[ChunkPlace, ...]]:
        """The chunks that define each of these names, sorted; names without one, or with more than 64, are left out."""
        with self._reading(codex) as opened:
            return {} if opened is None else self._definitions(codex, opened).defining(names)

    def at(self, codex: str, places: Sequence[ChunkPlace]) -> Mapping[ChunkPlace, tuple[ChunkMatch, str]]:
        """The chunks at these places with their texts; places that are gone are left out."""
        revision = self._revisions[codex]  # before the read: a write meanwhile makes it stale
        kept = self._read.get(codex)
        if kept is None or kept.revision != revision:
            kept = self._read[codex] = ReadChunks(revision)
        known = kept.of(places)
        if missing := [place for place in places if place not in known]:
            with self._reading(codex) as opened:
                read = {} if opened is None else queries.read(opened.chunks, missing)
            if self._revisions[codex] == revision:
                kept.learn(read)
            known.update(read)
        return known

    def chunks(self, codex: str) -> Iterator[ChunkMatch]:
        """All chunks, in any order, with score 0: what a graph is made of. One by one: of a million, all are gigabytes."""
        with self._reading(codex) as opened:
            if opened is not None:
                yield from queries.scan(opened.chunks)

    def digests(self, codex: str) -> Mapping[str, tuple[ChunkPlace, ...]]:
        """All chunks by the sha256 (hex) of their text, equal ones together, sorted: what vectors are kept by."""
        with self._reading(codex) as opened:
            if opened is None:
                return {}
            if self.remote is None or self.remote.holds(codex):
                with self._writing:  # only where vectors are made does anybody look chunks up by digest
                    opened = self._open.get(codex, opened)  # those that writes go to
                    if tables.ensure_look_up(opened.chunks, "chunk_digest"):
                        self._note(codex, opened)
            return queries.by_digest(opened.chunks)

    def holding(self, codex: str, digests: Sequence[str]) -> Mapping[str, tuple[ChunkPlace, ...]]:
        """The chunks whose texts have these digests, sorted; digests without one are left out."""
        with self._reading(codex) as opened:
            return {} if opened is None or not digests else queries.by_digest(opened.chunks, digests)

    def generated(self, codex: str) -> frozenset[str]:
        """Paths of the files that say of themselves that a program wrote them."""
        with self._reading(codex) as opened:
            return frozenset() if opened is None else queries.generated(opened.chunks)

    # -- folders and tables ----------------------------------------------------------------------------------------

    def set_aside(self, codex: str) -> Path | None:
        """Renames a codex's folder so that nothing finds it again; returns where it now is."""
        with self._writing:
            self._forget(codex)
            if self.remote is not None:
                return None
            self._renew()
            return self._folders.set_aside(codex)

    def close(self) -> None:
        """Lets go of all files; the next call opens them again. Nobody may be reading."""
        with self._writing:
            for opened in self._open.values():
                opened.mark.close()
            self._open.clear()
            self._session = self._new_session()
            self._defined.clear()
            self._read.clear()
            if self.remote is not None:
                self.remote.give_back()
            self._remembered.close()

    def _new_session(self) -> LanceSession:
        return LanceSession() if self.remote is None else LanceSession(self.remote.options)

    def _renew(self) -> None:
        """Opens the tables anew: the caches that they share keep files open, also those of a codex that is gone. One that
        cannot be opened now is opened, or found damaged, by who needs it next."""
        self._session = self._new_session()
        for codex, opened in list(self._open.items()):
            try:
                with panics_as_errors():
                    self._open[codex] = tables.opened_anew(self._folders.of(codex), self._session, opened)
            except LANCE_ERRORS:
                del self._open[codex]
                opened.mark.close()

    def _forget(self, codex: str) -> None:
        self._revisions[codex] += 1
        self._defined.pop(codex, None)
        self._read.pop(codex, None)
        opened = self._open.pop(codex, None)
        if opened is not None:
            opened.mark.close()

    def _opened(self, codex: str) -> Tables | None:
        cached = self._open.get(codex)
        if cached is not None:
            return cached
        with self._writing:
            if codex not in self._open:
                opened = self._found(codex) if self.remote is None else self._found_there(codex, self.remote)
                if opened is None:
                    return None
                self._open[codex] = opened
            return self._open[codex]

    def _found(self, codex: str) -> Tables | None:
        folder = self._folders.of(codex)
        return tables.open_tables(folder, self._session) if folder.is_dir() else None

    def _found_there(self, codex: str, remote: Remote) -> Tables | None:
        if not remote.exists(codex):
            return None
        return tables.open_shared(remote.of(codex), remote.noted(codex), self._session)

    def _may_write(self, codex: str, opened: Tables | None) -> None:
        """On object storage one at a time may. Raises ArchiveOutOfReach."""
        if self.remote is None:
            return
        self.remote.check()
        if self.remote.take(codex) and opened is not None:
            tables.latest(opened)
            tables.ensure_indexes(opened)
            self._notice(codex, opened)

    def _note(self, codex: str, opened: Tables) -> None:
        """What this one wrote is the newest there is."""
        if self.remote is None:
            tables.note_versions(self._folders.of(codex), opened)
        else:
            self._versions[codex] = opened.chunks.version

    def _notice(self, codex: str, opened: Tables) -> None:
        """What others wrote makes stale what was derived from the chunks."""
        version = opened.chunks.version
        if self._versions.get(codex, version) != version:
            self._revisions[codex] += 1
            self._defined.pop(codex, None)
            self._read.pop(codex, None)
        self._versions[codex] = version

    def _create(self, codex: str) -> Tables:
        if self.remote is not None:
            place, noted = self.remote.of(codex), self.remote.noted(codex)
            self._open[codex] = tables.create_shared(place, noted, self._session)
            return self._open[codex]  # what it defines is read: another one may have made it meanwhile
        folder = self._folders.make(codex)
        try:
            self._open[codex] = tables.create_tables(folder, self._session)
        except LANCE_ERRORS:  # no room: nothing was stored, and an empty folder would look damaged
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._defined[codex] = Definitions()
        return self._open[codex]

    def _definitions(self, codex: str, opened: Tables) -> Definitions:
        """Where names are defined, read from the table once and then kept up to date by every write."""
        cached = self._defined.get(codex)
        if cached is not None:
            return cached
        with self._writing:
            if codex not in self._defined:
                opened = self._open.get(codex, opened)  # those that writes go to
                self._defined[codex] = queries.defined(queries.encoded_rows(opened.chunks))
            return self._defined[codex]

    def _show(self, codex: str, opened: Tables) -> None:
        """Reads what searches show and, in the same scan, where names are defined."""
        before = self._revisions[codex]
        rows = opened.fill_caches()
        with self._writing:  # a write that ended meanwhile may be in the scan, or not
            if rows is not None and codex not in self._defined and self._revisions[codex] == before:
                self._defined[codex] = queries.defined(rows)

    def _redefine(self, codex: str, prepared: Sequence[PreparedDocument], gone: Sequence[str]) -> None:
        defined = self._defined.get(codex)
        if defined is not None:
            chunks = (each.chunk for one in prepared for each in one.chunks)
            defined.replace(gone, ((ChunkPlace(one.path, one.start, one.end), one.names) for one in chunks))

    @contextmanager
    def _reading(self, codex: str) -> Iterator[Tables | None]:
        """The open tables, None of a codex that is not known; the mark is in the folder meanwhile. Errors as ours."""
        with self._translated(codex):
            if self.remote is not None:
                self.remote.check()
            opened = self._opened(codex)
            if opened is None:
                yield None
                return
            if self.remote is not None:
                self._notice(codex, opened)
            with opened.mark.reading():
                yield opened

    @contextmanager
    def _translated(self, codex: str) -> Iterator[None]:
        """LanceDB's errors as ours: what cannot be read is set aside, what cannot be written is reported."""
        try:
            with panics_as_errors():
                yield
        except LANCE_ERRORS as error:
            if self.remote is not None:
                fault = self.remote.fault(codex, error)
                if not isinstance(fault, ArchiveAway):
                    self._forget(codex)
                raise fault from None  # the words of a server may quote a key
            if is_of_the_disk(error):
                raise ArchiveError(
                    f"{self._folders.of(codex)}, the archive of {codex!r}, cannot be written: "
                    f"{short_message(error)}; {remedy(error)}"
                ) from error
            self.set_aside(codex)
            raise ArchiveDamaged(codex, short_message(error)) from error
