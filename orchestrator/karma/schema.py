"""The tables of the memories' database, and how each version became the next.

memories   one row each; `number` orders them, `id` names them
citations  the code that a memory is about
usage      how often a memory was shown and referenced, both decayed to the moment `at`
days       what the turns of a user counted, a row a day
words      the full-text index over text, subject, attribute and domain; triggers keep it
"""

from collections.abc import Iterable

from orchestrator.karma.records import HIDDEN, MemoryState

APPLICATION = 0x4C4F524B  # "LORK", in the file's header

MIGRATIONS = (
    """
    CREATE TABLE memories (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        state TEXT NOT NULL,
        uid INTEGER NOT NULL,
        text TEXT NOT NULL,
        micro TEXT NOT NULL,
        summary TEXT NOT NULL,
        sigil TEXT NOT NULL,
        codex TEXT,
        subject TEXT NOT NULL,
        attribute TEXT NOT NULL,
        confidence REAL NOT NULL,
        trust REAL NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        used REAL NOT NULL,
        source TEXT NOT NULL,
        suspect TEXT NOT NULL,
        verbatim INTEGER NOT NULL,
        pinned INTEGER NOT NULL,
        domain TEXT NOT NULL,
        successor TEXT NOT NULL,
        confirmations INTEGER NOT NULL,
        activations INTEGER NOT NULL,
        effectiveness REAL NOT NULL,
        outcome TEXT,
        "trigger" TEXT NOT NULL,
        watches TEXT,
        severity TEXT,
        likeness TEXT NOT NULL
    );
    CREATE INDEX memories_by_owner ON memories (uid, kind, state, codex);
    CREATE INDEX memories_by_likeness ON memories (uid, kind, likeness);
    CREATE INDEX memories_by_subject ON memories (uid, subject, attribute) WHERE attribute <> '';
    CREATE TABLE citations (
        memory INTEGER NOT NULL REFERENCES memories (number) ON DELETE CASCADE,
        path TEXT NOT NULL,
        start INTEGER NOT NULL,
        end INTEGER NOT NULL,
        digest TEXT NOT NULL,
        "commit" TEXT NOT NULL,
        PRIMARY KEY (memory, path, start, end)
    ) WITHOUT ROWID;
    CREATE INDEX citations_by_path ON citations (path);
    CREATE TABLE usage (
        memory INTEGER PRIMARY KEY REFERENCES memories (number) ON DELETE CASCADE,
        showings INTEGER NOT NULL,
        shown REAL NOT NULL,
        referenced REAL NOT NULL,
        at REAL NOT NULL
    );
    CREATE VIRTUAL TABLE words USING fts5 (
        text, subject, attribute, domain,
        content = 'memories', content_rowid = 'number', tokenize = 'porter unicode61'
    );
    CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
        INSERT INTO words (rowid, text, subject, attribute, domain)
        VALUES (new.number, new.text, new.subject, new.attribute, new.domain);
    END;
    CREATE TRIGGER memories_deleted AFTER DELETE ON memories BEGIN
        INSERT INTO words (words, rowid, text, subject, attribute, domain)
        VALUES ('delete', old.number, old.text, old.subject, old.attribute, old.domain);
    END;
    CREATE TRIGGER memories_stand BEFORE UPDATE OF id, uid, kind, text, subject, attribute, domain ON memories
        BEGIN SELECT RAISE(ABORT, 'what a memory says is never changed'); END;
    """,
    """
    CREATE TABLE days (
        uid INTEGER NOT NULL,
        day INTEGER NOT NULL,
        turns INTEGER NOT NULL,
        refreshes INTEGER NOT NULL,
        built INTEGER NOT NULL,
        loaded INTEGER NOT NULL,
        similarity REAL NOT NULL,
        tokens INTEGER NOT NULL,
        room INTEGER NOT NULL,
        shown INTEGER NOT NULL,
        referenced INTEGER NOT NULL,
        cold INTEGER NOT NULL,
        cold_ms REAL NOT NULL,
        PRIMARY KEY (uid, day)
    ) WITHOUT ROWID;
    """,
    # `judged`: how often it was said whether the memory was right; `suggested`: an outcome that nobody confirmed yet. Of an
    # episode the detail may go; nothing else that a memory says ever changes.
    """
    ALTER TABLE memories ADD COLUMN judged INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE memories ADD COLUMN suggested TEXT;
    DROP TRIGGER memories_stand;
    CREATE TRIGGER memories_stand BEFORE UPDATE OF id, uid, kind, subject, attribute, domain ON memories
        BEGIN SELECT RAISE(ABORT, 'what a memory says is never changed'); END;
    CREATE TRIGGER memories_say BEFORE UPDATE OF text ON memories
        WHEN old.kind <> 'episode' OR new.text <> old.summary
        BEGIN SELECT RAISE(ABORT, 'what a memory says is never changed'); END;
    CREATE TRIGGER memories_trimmed AFTER UPDATE OF text ON memories BEGIN
        INSERT INTO words (words, rowid, text, subject, attribute, domain)
        VALUES ('delete', old.number, old.text, old.subject, old.attribute, old.domain);
        INSERT INTO words (rowid, text, subject, attribute, domain)
        VALUES (new.number, new.text, new.subject, new.attribute, new.domain);
    END;
    """,
    """
    CREATE INDEX memories_about ON memories (uid, subject) WHERE subject <> '';
    """,
    # Episodes of one session stand in a row; a search reads what stands beside one.
    """
    CREATE INDEX memories_by_session ON memories (uid, source, created) WHERE kind = 'episode';
    """,
    # Earlier versions took moments that no calendar has, and each list with one of them failed.
    """
    UPDATE memories SET created = updated WHERE created <= 0 OR created >= 253402214400;
    """,
    # Names of skills stand in each block of their codex: without it all procedures of the user were read.
    """
    CREATE INDEX memories_by_codex ON memories (uid, codex, kind) WHERE codex IS NOT NULL;
    """,
    # A citation may be a commit, without a path: one memory may have several. The columns of the key come first: with
    # another order SQLite 3.40 takes some for empty in its check of integrity.
    """
    ALTER TABLE citations RENAME TO cited_files;
    CREATE TABLE citations (
        memory INTEGER NOT NULL REFERENCES memories (number) ON DELETE CASCADE,
        path TEXT NOT NULL,
        start INTEGER NOT NULL,
        end INTEGER NOT NULL,
        "commit" TEXT NOT NULL,
        digest TEXT NOT NULL,
        PRIMARY KEY (memory, path, start, end, "commit")
    ) WITHOUT ROWID;
    INSERT INTO citations SELECT memory, path, start, end, "commit", digest FROM cited_files;
    DROP TABLE cited_files;
    CREATE INDEX citations_by_path ON citations (path);
    """,
)


def _in_no_state(states: Iterable[str]) -> str:
    return "state NOT IN ({})".format(", ".join(f"'{one}'" for one in sorted(states)))


SHOWN = _in_no_state(HIDDEN)
"""Condition: a model may be shown it."""
CURRENT = _in_no_state({*HIDDEN, MemoryState.SUPERSEDED})
"""Condition: the same, and nothing replaced it."""
VISIBLE = "uid = ? AND (codex IS NULL OR codex = ?)"
"""Condition: of one user, and of no codex or this one."""
OF_USER = "+uid = ?"
"""Condition beside ids: of one user. Without the plus SQLite reads all memories of the user to find a few of them."""
CITING = "suspect = '' AND number IN (SELECT memory FROM citations)"
"""Condition: it is about code, which was not found changed yet."""
