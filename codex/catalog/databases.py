"""SQLite files: opened with WAL and the newest schema, used in transactions, replaced where their content can be remade.

    open_database     a file whose content is the only copy: migrated after a copy, refused when newer or damaged
    Renewable         a file whose content can be made again: replaced by an empty one when it is damaged
    Cache             a `Renewable` for speed only: where the disk refuses, its user continues without it
    SqliteBytesCache  a `Cache` of bytes by key, of bounded size

One that has a key is encrypted (`sealed`). A schema is a tuple of scripts; its version is the number of scripts that have
run. Does not know what the tables hold.
"""

import errno
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from codex.catalog.sealed import ERRORS, TrackedConnection, connect, is_plain, seal
from codex.errors import CatalogError, DatabaseDamaged, DiskFull, Misplaced, NewerCatalog

log = logging.getLogger("lorekeep.codex")
Got = TypeVar("Got")
Item = TypeVar("Item")

_BUSY_MS = 10_000  # another connection's write lasts milliseconds; longer than this something hangs
_NO_ROOM = {
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_TRUNCATE),
    sqlite3.SQLITE_IOERR_SHMSIZE,
}
_UNCLEAR = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}  # and what is derived from them: the disk is asked
_MAX_LOG = 1 << 20  # bytes: SQLite never shortens a log by itself, however much a transaction once wrote to it
_LEAST_ROOM = 64 * 1024  # bytes: the index of the log alone has 32 KiB, from the first read on
_KINDS = ((Path.is_dir, "a folder"), (Path.is_fifo, "a FIFO"), (Path.is_socket, "a socket"))
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}

_MAX_ROWS = 400_000  # of a `SqliteBytesCache`: about 1 GB, four codebases as large as one codex may be
_SWEPT = 0.1  # of them, when there are too many
_BYTES_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS remembered (id INTEGER PRIMARY KEY, key TEXT UNIQUE, value BLOB NOT NULL)",
)


def open_database(
    path: Path, schema: Sequence[str], *, copied: bool = True, application: int = 0, key: bytes = b""
) -> sqlite3.Connection:
    """A connection with the newest schema; usable from any thread, by one at a time.

    `copied`: a copy is made before a migration. `application`: the id in the file's header. `key`: 32 bytes, with which the
    file is encrypted, also one that was not; empty: it is plain.
    Raises NewerCatalog for a file of a newer version, OtherKey, DatabaseDamaged, DiskFull, CatalogError for one that may
    not be used. A file that is refused stays as it is.
    """
    with translated(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        kind = _foreign_kind(path)
        if kind:
            raise CatalogError(f"{path} cannot be used: it is {kind} and should be a file; move it away")
        if key and is_plain(path):
            _unrefused(path, b"", schema, application).close()
            seal(path, key)
            log.info("%s is encrypted now", path)
        database = _unrefused(path, key, schema, application)
        try:
            path.chmod(0o600)
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of a new file only: `give_back` can shrink it
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"PRAGMA journal_size_limit = {_MAX_LOG}")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("PRAGMA foreign_keys = ON")
            if _version(database) < len(schema):
                _migrate(database, path, schema, application, copied, key)
            database.file = file_identity(path)
        except BaseException:
            database.close()
            raise
    return database


def _unrefused(path: Path, key: bytes, schema: Sequence[str], application: int) -> TrackedConnection:
    """A connection to a file that is ours, and of no newer version; nothing of it was changed."""
    database = connect(path, key, timeout=_BUSY_MS / 1000, check_same_thread=False, isolation_level=None)
    try:
        _refuse_foreign(database, path, application)
        if (found := _version(database)) > len(schema):
            raise NewerCatalog(path, found, len(schema))
    except BaseException:
        database.close()
        raise
    return database


def replaced(path: Path, schema: Sequence[str]) -> sqlite3.Connection:
    """An empty database in place of what lies there, which nobody has open."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
    return open_database(path, schema)


@contextmanager
def transaction(database: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Connection]:
    """All or nothing. Raises DiskFull, Misplaced, CatalogError."""
    insist_on_own_file(database, path)
    with translated(path):
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:  # SQLite itself rolls back when the disk is full
                database.execute("ROLLBACK")
            raise


def give_back(database: sqlite3.Connection) -> None:
    """Returns the room of the log and of deleted rows to the disk; what cannot be now, later."""
    for script in ("PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)"):
        with suppress(*ERRORS):  # the first makes the room that the second may need
            database.executescript(script)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translates faults of SQLite and of the disk. Raises DiskFull, DatabaseDamaged, CatalogError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_room(path) from error
        raise CatalogError(f"{path} cannot be used: {error.strerror}") from error
    except ERRORS as error:
        code = getattr(error, "sqlite_errorcode", None)
        if _means_no_room(code, path):
            raise _no_room(path) from error
        if code in _DAMAGED or isinstance(error, UnicodeDecodeError):
            # Moved with its log: SQLite would play that into the file that is made next.
            move = f"cd {path.parent} && mkdir -p damaged && mv {path.name}* damaged/"
            raise DatabaseDamaged(f"{path} is damaged ({error}); move it away ({move}) and begin anew") from error
        held = "; another program writes to it: end that one, and try again" if code == sqlite3.SQLITE_BUSY else ""
        raise CatalogError(f"{path} cannot be used: {error}{held}") from error


def file_identity(path: Path) -> tuple[int, int] | None:
    try:
        facts = os.stat(path)  # noqa: PTH116 - asked with every question: a Path costs more than the kernel
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def insist_on_own_file(database: sqlite3.Connection, path: Path) -> None:
    """Raises Misplaced."""
    file = getattr(database, "file", None)
    if file is not None and file_identity(path) != file:
        raise Misplaced(
            f"{path} was deleted or moved while it was in use: what is written is lost when the daemon ends; "
            "put it back, or start the daemon anew and load again"
        )


class Renewable:
    """A file whose content can be made again. `lost`: the effect of an empty one. Methods raise DiskFull, CatalogError."""

    def __init__(self, path: Path, schema: Sequence[str], lost: str) -> None:
        self._path = path
        self._schema = schema
        self._lost = lost
        self._lock = threading.RLock()
        try:
            self._database = open_database(path, schema, copied=False)
        except DatabaseDamaged:
            self._database = replaced(path, schema)

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def write(self, work: Callable[[sqlite3.Connection], Got]) -> Got:
        """One transaction; done once more, on the empty file, when damage shows."""

        def run() -> Got:
            with transaction(self._database, self._path) as database:
                return work(database)

        return self._undamaged(run)

    def read(self, query: str, *values: object) -> list[Any]:
        def run() -> list[Any]:
            with translated(self._path):
                return self._database.execute(query, values).fetchall()

        return self._undamaged(run)

    def _undamaged(self, work: Callable[[], Got]) -> Got:
        with self._lock:
            try:
                return work()
            except DatabaseDamaged:
                log.warning("%s is damaged and replaced by an empty file: %s", self._path, self._lost)
                self._database.close()
                self._database = replaced(self._path, self._schema)
                return work()


class Cache:
    """A `Renewable` without errors: a full disk, a missing permission, a newer version's file are logged once."""

    def __init__(self, path: Path, schema: Sequence[str], lost: str) -> None:
        self._path = path
        self._schema = schema
        self._lost = lost
        self._file: Renewable | None = None
        self._warned = False
        self._lock = threading.RLock()
        self._done(self._opened)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def write(self, work: Callable[[sqlite3.Connection], Got]) -> Got | None:
        """None when it could not be done."""
        return self._done(lambda: self._opened().write(work))

    def read(self, query: str, *values: object) -> list[Any]:
        """Nothing when it could not be done."""
        return self._done(lambda: self._opened().read(query, *values)) or []

    def _opened(self) -> Renewable:
        if self._file is None:
            self._file = Renewable(self._path, self._schema, self._lost)
        return self._file

    def _done(self, work: Callable[[], Got]) -> Got | None:
        with self._lock:
            try:
                return work()
            except CatalogError as fault:
                if not self._warned:
                    log.warning("continues without a cache: %s", fault)
                self._warned = True  # the same fault recurs with every text
                return None


class SqliteBytesCache:
    """Bytes by key in one file, at most `max_rows` of them: the oldest go first. Thread-safe."""

    def __init__(self, path: Path, max_rows: int = _MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._file = Cache(path, _BYTES_SCHEMA, "cached results are computed again")

    def get(self, key: str) -> bytes | None:
        """What was put under the key, or None."""
        rows = self._file.read("SELECT value FROM remembered WHERE key = ?", key)
        return bytes(rows[0][0]) if rows else None

    def put(self, entries: Sequence[tuple[str, bytes]]) -> None:
        """Keeps these, and drops the oldest when there are too many."""

        def write(database: sqlite3.Connection) -> None:
            database.executemany("INSERT OR REPLACE INTO remembered (key, value) VALUES (?, ?)", entries)
            first, last = database.execute("SELECT min(id), max(id) FROM remembered").fetchone()
            if first is not None and last - first >= self._max_rows:
                oldest = last - int(self._max_rows * (1 - _SWEPT))
                database.execute("DELETE FROM remembered WHERE id < ?", (oldest,))

        self._file.write(write)

    def close(self) -> None:
        """Closes the file; the next call opens it again."""
        self._file.close()


def pages(items: Iterable[Item], size: Callable[[Item], int], most: int, most_bytes: int) -> Iterator[list[Item]]:
    """The items in order, in lists that end at so many items or bytes: what one query or transaction takes."""
    page: list[Item] = []
    held = 0
    for one in items:
        page.append(one)
        held += size(one)
        if len(page) >= most or held >= most_bytes:
            yield page
            page, held = [], 0
    if page:
        yield page


def _foreign_kind(path: Path) -> str:
    """What the path is if it is not a file, '' for a file or nothing: SQLite's own message only says "cannot open"."""
    if not path.exists() or path.is_file():
        return ""
    return next((name for is_kind, name in _KINDS if is_kind(path)), "a device")


def insist_on_room(path: Path, size: int) -> None:
    """Raises DiskFull where a transaction of `size` bytes would fill the disk.

    SQLite writes them to the log and copies all of the log into the file later. A log that fills the disk can be neither
    copied nor truncated: every later write would fail, also one that deletes.
    """
    log_file = path.with_name(f"{path.name}-wal")
    need = 2 * size + (log_file.stat().st_size if log_file.exists() else 0)
    if _is_full(path.parent, need + _LEAST_ROOM):
        raise _no_room(path, need)


def _no_room(path: Path, need: int = _LEAST_ROOM) -> DiskFull:
    """SQLite's own "disk I/O error" would say nothing of the room."""
    what = f"no room left for {path} (at least {need:,} bytes)"
    return DiskFull(f"{what}; free some on that disk and try again: it continues")


def _means_no_room(code: int | None, path: Path) -> bool:
    """Whether an error of SQLite with this code is the disk's, which is full."""
    return code in _NO_ROOM or (code is not None and code & 0xFF in _UNCLEAR and _is_full(path.parent))


def _is_full(folder: Path, least: int = _LEAST_ROOM) -> bool:
    """No room for so many bytes (by default the smallest write), or for one more file; some file systems count no files."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < least or (disk.f_files > 0 and disk.f_favail == 0)


def _refuse_foreign(database: sqlite3.Connection, path: Path, application: int) -> None:
    (found,) = database.execute("PRAGMA application_id").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and found != application:
        raise CatalogError(f"{path} is no database of Lorekeep; move it away, or set another data folder")


def _migrate(
    database: sqlite3.Connection, path: Path, schema: Sequence[str], application: int, copied: bool, key: bytes
) -> None:
    if copied and _version(database) > 0:
        _copy(database, path.with_name(f"{path.name}.before-{len(schema)}"), key)
    database.execute("BEGIN IMMEDIATE")
    try:
        for script in schema[_version(database) :]:  # read again: another process may have migrated meanwhile
            for statement in _statements(script):
                database.execute(statement)
        database.execute(f"PRAGMA application_id = {application}")
        database.execute(f"PRAGMA user_version = {len(schema)}")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    """A script's statements: `executescript` would end the transaction. Statements inside a trigger stay in it."""
    statement = ""
    for part in script.split(";"):
        statement += f"{part};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _copy(database: sqlite3.Connection, target: Path, key: bytes) -> None:
    unfinished = target.with_name(target.name + ".part")
    unfinished.unlink(missing_ok=True)
    copy = connect(unfinished, key)
    try:
        database.backup(copy)
    finally:
        copy.close()
    unfinished.chmod(0o600)
    unfinished.replace(target)
