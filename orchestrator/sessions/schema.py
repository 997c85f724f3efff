"""The database's shape, version by version, and how a file gets from one to the next.

A migration is appended and never edited. The file is copied before it is changed; one from a newer version is refused.
"""

import os
import sqlite3
from pathlib import Path

from codex.catalog.schema import foreign_kind, means_no_room
from orchestrator.errors import LoreError

APPLICATION = 0x4C4F5245  # "LORE", in the file's header

MIGRATIONS = (
    """
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        uid INTEGER NOT NULL,
        codex TEXT,
        title TEXT NOT NULL,
        created REAL NOT NULL,
        used REAL NOT NULL,
        UNIQUE (uid, name)
    );
    CREATE INDEX sessions_by_use ON sessions (uid, used);
    CREATE TABLE turns (
        session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        role TEXT NOT NULL,
        text TEXT NOT NULL,
        ids BLOB NOT NULL,
        evidence TEXT NOT NULL,
        tool_call_id TEXT NOT NULL,
        tool_calls TEXT NOT NULL,
        created REAL NOT NULL,
        PRIMARY KEY (session, number)
    ) WITHOUT ROWID;
    CREATE TRIGGER turns_stand BEFORE UPDATE ON turns
        BEGIN SELECT RAISE(ABORT, 'turns are never changed'); END;
    """,
)


class StoreError(LoreError):
    """The file cannot be used: newer, foreign or damaged."""


def opened(path: Path) -> sqlite3.Connection:
    """A connection in the newest version, the file readable by its owner alone. Raises StoreError."""
    kind = foreign_kind(path)
    if kind:  # opening a FIFO would wait for whoever writes into it
        raise StoreError(f"{path} cannot be used: it is {kind} and should be a file", "move it away")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite gives its side files the same mode
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot open {path}: {error}", "check that the folder may be written to") from error
    try:
        prepare(connection, path)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite may quote the damaged bytes
        connection.close()
        if means_no_room(getattr(error, "sqlite_errorcode", None), path):
            raise StoreError(f"no room left for {path} ({error})", "free some and start again") from error
        # Moved with its log: SQLite would play that into the file that is made next.
        move = f"cd {path.parent} && mkdir -p damaged && mv {path.name}* damaged/"
        raise StoreError(f"{path} is damaged: {error}", f"move it away: {move}") from error
    except StoreError:
        connection.close()
        raise
    return connection


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute("PRAGMA foreign_keys = ON")
    version = usable_version(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # an answer is one write: it may cost a millisecond and be safe
    migrate(connection, path, version)


def usable_version(connection: sqlite3.Connection, path: Path) -> int:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION and tables:
        raise StoreError(f"{path} is no database of Lorekeep", "move it away, or set another data folder")
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} is of version {version}, this lore knows up to {len(MIGRATIONS)}",
            "install the newer lore again, or move the file away",
        )
    return version


def migrate(connection: sqlite3.Connection, path: Path, version: int) -> None:
    if 0 < version < len(MIGRATIONS):
        back_up(connection, path.with_name(f"{path.name}.v{version}"))
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        # One script, one transaction: what is killed in the middle never happened.
        connection.executescript(
            f"BEGIN; {script} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {number}; COMMIT;"
        )


def back_up(connection: sqlite3.Connection, target: Path) -> None:
    os.close(os.open(target, os.O_CREAT | os.O_CLOEXEC, 0o600))
    with sqlite3.connect(target) as copy:
        connection.backup(copy)
    copy.close()
