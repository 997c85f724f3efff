"""What was made of a text, kept in one SQLite file by key: a cache that may be deleted at any time.

A damaged file is deleted and begun again; a full disk only means that less is remembered, and a place that cannot be used
that nothing is.
"""

import logging
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger("lorekeep.codex.remembered")

_MAX_ROWS = 400_000  # about 1 GB: four codebases as large as one codex may be
_SWEPT = 0.1  # of them, when there are too many: the oldest
_OF_THE_DISK = {  # a full disk, another process that writes: what is kept stays
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN),
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY),
}


class SqliteRemembered:
    """`Remembered` in a file; thread-safe."""

    def __init__(self, path: Path, max_rows: int = _MAX_ROWS) -> None:
        self._path = path
        self._max_rows = max_rows
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._told = False

    def get(self, key: str) -> bytes | None:
        """What was put under the key, or None."""
        with self._lock:
            try:
                row = self._connected().execute("SELECT value FROM remembered WHERE key = ?", (key,)).fetchone()
            except OSError as error:
                self._tell(error)
                return None
            except sqlite3.OperationalError as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code == sqlite3.SQLITE_CANTOPEN:
                    self._tell(error)
                elif code not in _OF_THE_DISK:
                    self._begin_again()
                return None
            except (sqlite3.DatabaseError, UnicodeDecodeError):  # SQLite may quote the damaged bytes
                self._begin_again()
                return None
        return None if row is None else bytes(row[0])

    def put(self, entries: Sequence[tuple[str, bytes]]) -> None:
        """Keeps these, and forgets the oldest when there are too many."""
        with self._lock:
            try:
                database = self._connected()
                with database:
                    database.executemany("INSERT OR REPLACE INTO remembered (key, value) VALUES (?, ?)", entries)
                    self._sweep(database)
            except sqlite3.OperationalError:
                return  # disk full, or another process writes: not remembering is no fault
            except OSError as error:
                self._tell(error)
            except (sqlite3.DatabaseError, UnicodeDecodeError):  # SQLite may quote the damaged bytes
                self._begin_again()

    def close(self) -> None:
        """Closes the file; the next call opens it again."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    def _connected(self) -> sqlite3.Connection:
        if self._database is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            database = sqlite3.connect(self._path, check_same_thread=False, timeout=5)
            try:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = OFF")  # a cache: losing it costs time only
                database.execute(
                    "CREATE TABLE IF NOT EXISTS remembered "
                    "(id INTEGER PRIMARY KEY, key TEXT UNIQUE, value BLOB NOT NULL)"
                )
            except BaseException:
                database.close()
                raise
            self._database = database
        return self._database

    def _sweep(self, database: sqlite3.Connection) -> None:
        first, last = database.execute("SELECT min(id), max(id) FROM remembered").fetchone()
        if first is not None and last - first >= self._max_rows:
            floor = last - int(self._max_rows * (1 - _SWEPT))
            database.execute("DELETE FROM remembered WHERE id < ?", (floor,))

    def _begin_again(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        try:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        except OSError as error:
            self._tell(error)

    def _tell(self, error: OSError | sqlite3.Error) -> None:
        """Once: it is met again with every text."""
        if not self._told:
            self._told = True
            why = getattr(error, "strerror", None) or error
            log.warning("%s cannot be used (%s): nothing is remembered there", self._path, why)
