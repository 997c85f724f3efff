"""The catalog's tables, one script for each version of the schema. A script that was released is never edited.

codex ──< generation ──< entry ──> content        an entry is (position, path, digest, size)
  │          └──< amendment                       the log beside a generation, only appended
  └────< known                                    what the last scan read: resume and incremental loads rest on it
"""

SCHEMA = (
    """
    CREATE TABLE codex (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, source TEXT NOT NULL, roots TEXT NOT NULL,
        request TEXT NOT NULL);
    CREATE TABLE content (digest TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE generation (id INTEGER PRIMARY KEY, codex INTEGER NOT NULL REFERENCES codex ON DELETE CASCADE,
        number INTEGER NOT NULL, branch TEXT, revision TEXT, dirty INTEGER NOT NULL, skipped TEXT NOT NULL,
        notices TEXT NOT NULL, UNIQUE (codex, number));
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
    CREATE INDEX known_digest ON known (digest)
    """,
    """
    ALTER TABLE generation ADD COLUMN why TEXT NOT NULL DEFAULT ''
    """,
    """
    CREATE INDEX entry_path ON entry (generation, path)
    """,
)
