"""The database's shape, version by version. A migration is appended and never edited."""

import sqlite3
from pathlib import Path

from codex.databases import open_database
from orchestrator.codices.faults import translated

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


def opened(path: Path) -> sqlite3.Connection:
    """A connection in the newest version. Raises LoreError for a file that is newer, foreign or damaged."""
    with translated():
        connection = open_database(path, MIGRATIONS, application=APPLICATION)
    connection.execute("PRAGMA synchronous = FULL")  # an answer is one write: it may cost a millisecond and be safe
    return connection
