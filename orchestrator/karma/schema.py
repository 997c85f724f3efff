"""The tables of the memories' database.

memories   one row each; `number` orders them, `id` names them; `judged`: how often it was said whether it was right;
           `suggested`: an outcome that nobody confirmed yet
citations  the code that a memory is about
usage      how often a memory was shown and referenced, both decayed to the moment `at`
days       what the turns of a user counted, a row a day
words      the full-text index over text, subject, attribute and domain; triggers keep it
"""

from collections.abc import Iterable

from orchestrator.karma.records import HIDDEN, MemoryState

APPLICATION = 0x4C4F524B  # "LORK", in the file's header

SCHEMA = (
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
        likeness TEXT NOT NULL,
        judged INTEGER NOT NULL DEFAULT 0,
        suggested TEXT
    );
    CREATE INDEX memories_by_owner ON memories (uid, kind, state, codex);
    CREATE INDEX memories_by_likeness ON memories (uid, kind, likeness);
    CREATE INDEX memories_by_subject ON memories (uid, subject, attribute) WHERE attribute <> '';
    CREATE INDEX memories_about ON memories (uid, subject) WHERE subject <> '';
    -- Episodes of one session are in a row; a search reads those beside one.
    CREATE INDEX memories_by_session ON memories (uid, source, created) WHERE kind = 'episode';
    -- Names of skills are in each prompt of their codex: without it all procedures of the user were read.
    CREATE INDEX memories_by_codex ON memories (uid, codex, kind) WHERE codex IS NOT NULL;
    -- The columns of the key come first: with another order SQLite 3.40 takes some for empty in its check of integrity.
    CREATE TABLE citations (
        memory INTEGER NOT NULL REFERENCES memories (number) ON DELETE CASCADE,
        path TEXT NOT NULL,
        start INTEGER NOT NULL,
        end INTEGER NOT NULL,
        "commit" TEXT NOT NULL,
        digest TEXT NOT NULL,
        PRIMARY KEY (memory, path, start, end, "commit")
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
    -- Of an episode the detail may go; nothing else that a memory says ever changes.
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
