"""The catalog: codices, their generations, and every file's bytes by digest, in one SQLite file.

    codex ──< generation ──< entry ──> content    an entry is (position, path, digest, size)
      │          └──< amendment                   the change log beside a generation, only appended to
      └────< known                                what the last scan read: resumed and incremental loads need it

A generation is written in one transaction with all its entries and is never changed afterwards, so it can be read again
after a restart although the files on disk have changed. Bytes are stored once per digest. There is one connection and one
writer at a time: a lock serialises threads, WAL and a busy timeout serialise processes.
"""

import json
import shlex
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from codex.catalog.databases import (
    give_back,
    insist_on_own_file,
    insist_on_room,
    open_database,
    pages,
    transaction,
    translated,
)
from codex.catalog.generations import Codex, FileEntry, Generation, KnownFile
from codex.documents import Document, document_from
from codex.errors import CatalogError, Misplaced, UnknownCodex, UnknownGeneration
from codex.following.amendments import Amendment, ChangeKind
from codex.trees.port import TreeState

_PAGE = 256  # documents fetched under one lock, and their bytes: bounds memory, and the time that a writer waits
_PAGE_BYTES = 8 << 20
CODEX = (
    "SELECT name, source, roots, request, max(number) FROM codex LEFT JOIN generation ON generation.codex = codex.id"
)
# Without statistics SQLite would rather look through a whole generation.
ENTRIES = "SELECT path, digest, size FROM entry INDEXED BY entry_path"
SCHEMA = (
    """
    CREATE TABLE codex (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, source TEXT NOT NULL, roots TEXT NOT NULL,
        request TEXT NOT NULL);
    CREATE TABLE content (digest TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE generation (id INTEGER PRIMARY KEY, codex INTEGER NOT NULL REFERENCES codex ON DELETE CASCADE,
        number INTEGER NOT NULL, branch TEXT, revision TEXT, dirty INTEGER NOT NULL, skipped TEXT NOT NULL,
        notices TEXT NOT NULL, why TEXT NOT NULL DEFAULT '', UNIQUE (codex, number));
    CREATE TABLE entry (generation INTEGER NOT NULL REFERENCES generation ON DELETE CASCADE, position INTEGER NOT NULL,
        path TEXT NOT NULL, digest TEXT NOT NULL, size INTEGER NOT NULL,
        PRIMARY KEY (generation, position)) WITHOUT ROWID;
    CREATE TABLE known (codex INTEGER NOT NULL REFERENCES codex ON DELETE CASCADE, path TEXT NOT NULL,
        stamp TEXT NOT NULL, digest TEXT, size INTEGER NOT NULL, reason TEXT, notice TEXT,
        PRIMARY KEY (codex, path)) WITHOUT ROWID;
    CREATE TABLE amendment (generation INTEGER NOT NULL REFERENCES generation ON DELETE CASCADE, number INTEGER NOT NULL,
        path TEXT NOT NULL, told TEXT NOT NULL, digest TEXT, text TEXT NOT NULL, whole INTEGER NOT NULL, source TEXT,
        PRIMARY KEY (generation, number)) WITHOUT ROWID;
    CREATE INDEX amendment_digest ON amendment (digest);
    CREATE INDEX entry_digest ON entry (digest);
    CREATE INDEX known_digest ON known (digest);
    CREATE INDEX entry_path ON entry (generation, path)
    """,
)


class Catalog:
    """The catalog in one file. Close it when done. Any method may raise CatalogError, DiskFull where it writes."""

    def __init__(self, path: Path, schema: Sequence[str] = SCHEMA) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._read: tuple[Codex, ...] | None = None
        self._database = open_database(path, schema)
        self._database.execute("PRAGMA secure_delete = FAST")  # to delete must not take as much room as to store

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def misplaced(self) -> str:
        """The fault, and what to do, when the catalog's file was deleted or moved and writes are lost; '' otherwise."""
        try:
            insist_on_own_file(self._database, self._path)
        except Misplaced as fault:
            return str(fault)
        return ""

    def codices(self) -> tuple[Codex, ...]:
        """All codices, by name."""
        with self._lock:
            self._read = tuple(codex_from(row) for row in self._rows(f"{CODEX} GROUP BY codex.id ORDER BY name"))
            return self._read

    def known_codices(self) -> tuple[Codex, ...] | None:
        """The same as they were read last, without waiting for who writes; None where this catalog has changed them since,
        or is about to. What another process changes is not in it."""
        return self._read

    def codex(self, name: str) -> Codex:
        """Raises UnknownCodex."""
        found = self._rows(f"{CODEX} WHERE name = ? GROUP BY codex.id", name)
        if not found:
            raise UnknownCodex(name, tuple(one.name for one in self.codices()))
        return codex_from(found[0])

    def register(self, name: str, source: str, roots: Sequence[str], request: str) -> None:
        """Add the codex, or update where it comes from."""
        with self._writing_codices() as database:
            database.execute(
                "INSERT INTO codex (name, source, roots, request) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
                "source = excluded.source, roots = excluded.roots, request = excluded.request",
                (name, source, json.dumps(list(roots)), request),
            )

    def known(self, name: str) -> dict[str, KnownFile]:
        """What the last scans of this codex found, by path."""
        rows = self._rows(
            "SELECT path, stamp, digest, size, reason, notice FROM known "
            "JOIN codex ON codex.id = known.codex WHERE name = ?",
            name,
        )
        return {row[0]: KnownFile(*row[1:]) for row in rows}

    def store(self, name: str, found: Mapping[str, KnownFile], bodies: Mapping[str, bytes]) -> None:
        """One batch of a load: what was found at each path, and packed bytes by digest. All or nothing."""
        insist_on_room(self._path, sum(map(len, bodies.values())))
        with self._writing() as database:
            codex = id_of(database, name)
            database.executemany("INSERT OR IGNORE INTO content (digest, body) VALUES (?, ?)", list(bodies.items()))
            database.executemany(
                "INSERT OR REPLACE INTO known (codex, path, stamp, digest, size, reason, notice) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(codex, path, one.stamp, one.digest, one.size, one.reason, one.notice) for path, one in found.items()],
            )

    def restamp(self, name: str, stamps: Mapping[str, str]) -> None:
        """New stamps, by path, of files that are otherwise as they are known."""
        with self._writing() as database:
            codex = id_of(database, name)
            rows = [(stamp, codex, path) for path, stamp in stamps.items()]
            database.executemany("UPDATE known SET stamp = ? WHERE codex = ? AND path = ?", rows)

    def freeze(
        self,
        name: str,
        state: TreeState,
        entries: Sequence[FileEntry],
        skipped: Mapping[str, int],
        notices: Sequence[str],
        why: str = "",
    ) -> Generation:
        """Make a new generation of these entries, in this order."""
        with self._writing_codices() as database:
            codex = id_of(database, name)
            number = (
                1
                + database.execute(
                    "SELECT coalesce(max(number), 0) FROM generation WHERE codex = ?", (codex,)
                ).fetchone()[0]
            )
            made = database.execute(
                "INSERT INTO generation (branch, revision, dirty, skipped, notices, codex, number, why) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*state_columns(state, skipped, notices), codex, number, why),
            ).lastrowid
            database.executemany(
                "INSERT INTO entry (generation, position, path, digest, size) VALUES (?, ?, ?, ?, ?)",
                [(made, at, one.path, one.digest, one.size) for at, one in enumerate(entries)],
            )
        return Generation(name, number, state, tuple(entries), dict(skipped), tuple(notices), why)

    def restate(self, generation: Generation) -> None:
        """Update the commit and the skipped files of a generation whose content is the same."""
        with self._writing() as database:
            columns = state_columns(generation.state, generation.skipped, generation.notices)
            database.execute(
                "UPDATE generation SET branch = ?, revision = ?, dirty = ?, skipped = ?, notices = ? "
                "WHERE codex = ? AND number = ?",
                (*columns, id_of(database, generation.codex), generation.number),
            )

    def forget_paths(self, name: str, gone: Iterable[str]) -> None:
        """Drop the scan results of these paths."""
        with self._writing() as database:
            codex = id_of(database, name)
            database.executemany("DELETE FROM known WHERE codex = ? AND path = ?", [(codex, path) for path in gone])

    def generation(self, name: str, number: int | None = None) -> Generation:
        """The newest generation, or that of a number. Raises UnknownCodex, UnknownGeneration."""
        key, bare = self._bare(name, number)
        rows = self._rows("SELECT path, digest, size FROM entry WHERE generation = ? ORDER BY position", key)
        return replace(bare, entries=tuple(FileEntry(*row) for row in rows))

    def bare_generation(self, name: str, number: int | None = None) -> Generation:
        """The same without its entries, of which there may be 100,000. Raises like `generation`."""
        return self._bare(name, number)[1]

    def file_digests(self, name: str, paths: Iterable[str]) -> dict[str, tuple[str, int | None]]:
        """Digest, and size in bytes where it is known, of those of these files that the newest generation and its log hold.
        The cost grows with the number of paths alone. Raises like `generation`."""
        key, _ = self._bare(name, None)
        asked = list(paths)
        found: dict[str, tuple[str, int | None]] = {}
        log: list[tuple[int, str, str | None]] = []
        for at in range(0, len(asked), _PAGE):
            page = asked[at : at + _PAGE]
            among = f"generation = ? AND path IN ({','.join('?' * len(page))})"
            rows = self._rows(f"{ENTRIES} WHERE {among}", key, *page)
            found |= {path: (digest, size) for path, digest, size in rows}
            log += self._rows(f"SELECT number, path, digest FROM amendment WHERE {among}", key, *page)  # noqa: S608
        for _, path, digest in sorted(log):
            if digest is None:
                found.pop(path, None)
            else:
                found[path] = (digest, None)
        return found

    def generations(self, name: str) -> tuple[int, ...]:
        """Numbers of the generations that are kept, ascending. Raises UnknownCodex."""
        self.codex(name)
        rows = self._rows(
            "SELECT number FROM generation JOIN codex ON codex.id = generation.codex WHERE name = ? ORDER BY number",
            name,
        )
        return tuple(row[0] for row in rows)

    def documents(self, entries: Sequence[FileEntry]) -> Iterator[Document]:
        """Documents of these entries, in order, a page at a time. Raises CatalogError when bytes are missing."""
        for page in pages(entries, lambda entry: entry.size, _PAGE, _PAGE_BYTES):
            bodies = self._bodies([entry.digest for entry in page])
            for entry in page:
                yield self._document(entry, bodies.get(entry.digest))

    def document_by_digest(self, path: str, digest: str) -> Document:
        """A document by name and digest. Raises CatalogError when its bytes are not here."""
        return self._document(FileEntry(path, digest, 0), self._bodies([digest]).get(digest))

    def amendments(self, name: str, number: int | None = None) -> tuple[Amendment, ...]:
        """The log of a generation (default: the newest), in order. Raises UnknownCodex, UnknownGeneration."""
        rows = self._rows(
            "SELECT number, path, told, digest, text, whole, source FROM amendment WHERE generation = ? ORDER BY number",
            self._bare(name, number)[0],
        )
        return tuple(
            Amendment(row[0], row[1], ChangeKind(row[2]), row[3], row[4], bool(row[5]), row[6]) for row in rows
        )

    def append(self, name: str, number: int, entries: Sequence[Amendment]) -> None:
        """Append to the log of a generation; all or nothing. A number that is taken is refused (CatalogError)."""
        with self._writing() as database:
            generation = database.execute(
                "SELECT id FROM generation WHERE codex = ? AND number = ?", (id_of(database, name), number)
            ).fetchone()[0]
            database.executemany(
                "INSERT INTO amendment (generation, number, path, told, digest, text, whole, source) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (generation, one.number, one.path, one.kind, one.digest, one.text, one.whole, one.source)
                    for one in entries
                ],
            )

    def release(self, name: str, number: int) -> None:
        """Drop one generation, and all bytes that nothing else holds."""
        with self._writing_codices() as database:
            database.execute("DELETE FROM generation WHERE codex = ? AND number = ?", (id_of(database, name), number))
            sweep(database)
        self.give_back()

    def drop(self, name: str) -> None:
        """Drop a codex with its generations, and all bytes that nothing else holds. Raises UnknownCodex."""
        self.codex(name)
        with self._writing_codices() as database:
            database.execute("DELETE FROM codex WHERE name = ?", (name,))
            sweep(database)
        self.give_back()

    def give_back(self) -> None:
        """Return room that is not used to the disk: after a load, which leaves its log."""
        with self._lock:
            give_back(self._database)

    def _bare(self, name: str, number: int | None) -> tuple[int, Generation]:
        """Its key, and the generation without its entries."""
        codex = self.codex(name)
        wanted = codex.newest if number is None else number
        found = self._rows(
            "SELECT generation.id, branch, revision, dirty, skipped, notices, why FROM generation "
            "JOIN codex ON codex.id = generation.codex WHERE name = ? AND number = ?",
            name,
            wanted,
        )
        if wanted is None or not found:
            raise UnknownGeneration(without(codex, wanted))
        key, branch, revision, dirty, skipped, notices, why = found[0]
        state = TreeState(branch, revision, dirty)
        return key, Generation(name, wanted, state, (), json.loads(skipped), tuple(json.loads(notices)), why)

    def _document(self, entry: FileEntry, body: bytes | None) -> Document:
        try:
            document = None if body is None else document_from(entry.path, unpack(body))
        except zlib.error:
            document = None
        if document is None or document.digest != entry.digest:
            raise CatalogError(f"{self._path} no longer holds {entry.path} as it was loaded; load the codex again")
        return document

    def _bodies(self, digests: Sequence[str]) -> dict[str, bytes]:
        marks = ",".join("?" * len(digests))
        return dict(self._rows(f"SELECT digest, body FROM content WHERE digest IN ({marks})", *digests))  # noqa: S608

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._lock, translated(self._path):
            return self._database.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, transaction(self._database, self._path) as database:
            yield database

    @contextmanager
    def _writing_codices(self) -> Iterator[sqlite3.Connection]:
        """The same where `codices` may differ afterwards."""
        with self._writing() as database:
            self._read = None
            yield database


def pack(raw: bytes, level: int = 3) -> bytes:
    """Bytes as the catalog keeps them."""
    return zlib.compress(raw, level)


def unpack(body: bytes) -> bytes:
    """The inverse of `pack`."""
    return zlib.decompress(body)


def without(codex: Codex, wanted: int | None) -> str:
    if codex.newest is None:
        return f"codex {codex.name!r} was not loaded to the end; `lore load {shlex.join(codex.roots)}` continues"
    return f"codex {codex.name!r} has no generation {wanted}; its newest generation is {codex.newest}"


def codex_from(row: tuple[Any, ...]) -> Codex:
    name, source, roots, request, newest = row
    return Codex(name, source, tuple(json.loads(roots)), request, newest)


def state_columns(state: TreeState, skipped: Mapping[str, int], notices: Sequence[str]) -> tuple[Any, ...]:
    return state.branch, state.revision, state.dirty, json.dumps(dict(skipped)), json.dumps(list(notices))


def id_of(database: sqlite3.Connection, name: str) -> int:
    found = database.execute("SELECT id FROM codex WHERE name = ?", (name,)).fetchone()
    if found is None:
        raise UnknownCodex(name, ())
    return int(found[0])


def sweep(database: sqlite3.Connection) -> None:
    database.execute(
        "DELETE FROM content WHERE digest NOT IN (SELECT digest FROM entry) "
        "AND digest NOT IN (SELECT digest FROM known WHERE digest IS NOT NULL) "
        "AND digest NOT IN (SELECT digest FROM amendment WHERE digest IS NOT NULL)"
    )
