"""Sessions on disk: their turns, with the ids that answers had and what came with the questions, gists and memories.

A turn stays whole here, whatever its conversation goes on with.
"""

import math
import random
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codex.catalog.databases import give_back, open_database, transaction
from codex.catalog.databases import translated as faults_of
from codex.catalog.sealed import CONFLICTS
from formatters.context import GistView
from orchestrator.errors import Conflict, InvalidRequest, NotFound, instead, translated
from orchestrator.wire.replies import SessionExport, SessionGist, SessionHit, SessionTurn

TITLE_LENGTH = 80
NO_SESSION = "you have none; a question without -s begins one and names it"
VALID = re.compile(r"[^\W_][\w.-]{0,63}\Z")
ADJECTIVES = """
    amber bold brave bright brisk calm clear clever cosy crisp dapper deft eager early fair fleet fond frank fresh
    gentle glad golden grand happy hardy honest humble jolly keen kind light lively lucid merry mild modest neat
    nimble noble patient plain proud quick quiet rapid ready round silent silver smart solid spry steady still sunny
    swift tidy true vivid warm wise witty young
"""
NOUNS = """
    acorn alder anchor aspen badger beacon birch bison brook cedar cliff clover comet coral crane creek dune eagle
    ember falcon fern finch fjord forest garnet glade harbor hazel heron hill island ivy juniper kestrel lagoon
    lantern larch linden lynx maple marsh meadow moss oak opal otter owl pebble pine plover pond quartz raven reed
    river robin sage sparrow spruce stone swan thistle tulip valley willow wren
"""

APPLICATION = 0x4C4F5245  # "LORE", in the file's header

SCHEMA = (
    """
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        uid INTEGER NOT NULL,
        codex TEXT,
        title TEXT NOT NULL,
        created REAL NOT NULL,
        used REAL NOT NULL,
        variant TEXT NOT NULL DEFAULT '',
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
    CREATE TABLE gists (
        session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        text TEXT NOT NULL,
        created REAL NOT NULL,
        PRIMARY KEY (session, first)
    ) WITHOUT ROWID;
    CREATE TRIGGER gists_stand BEFORE UPDATE ON gists
        BEGIN SELECT RAISE(ABORT, 'gists are never changed'); END;
    CREATE TABLE karma (
        session INTEGER PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
        shown TEXT NOT NULL
    );
    -- A turn's rowid is its session's id << 24, plus its number: no session has 16 million turns.
    CREATE VIRTUAL TABLE said USING fts5 (text, tokenize = 'porter unicode61 remove_diacritics 2');
    CREATE TRIGGER turns_are_said AFTER INSERT ON turns
        BEGIN INSERT INTO said (rowid, text) VALUES ((new.session << 24) + new.number, new.text); END;
    CREATE TRIGGER turns_are_unsaid AFTER DELETE ON turns
        BEGIN DELETE FROM said WHERE rowid = (old.session << 24) + old.number; END;
    -- Sessions that may become episodes, and how many of their messages are told of.
    CREATE TABLE episodes (
        session INTEGER PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
        told INTEGER NOT NULL
    );
    """,
)
FOUND = """
SELECT sessions.name, sessions.codex, sessions.title, turns.role, turns.number, turns.created,
    snippet(said, 0, '', '', '…', 24)
FROM said JOIN turns ON turns.session = said.rowid >> 24 AND turns.number = said.rowid & 16777215
JOIN sessions ON sessions.id = turns.session
WHERE said MATCH ? AND sessions.uid = ? ORDER BY bm25(said), said.rowid DESC LIMIT ?
"""
SESSION = """
SELECT id, name, uid, codex, title, created, used, (SELECT count(*) FROM turns WHERE session = sessions.id),
    variant FROM sessions
"""


@dataclass(frozen=True)
class Session:
    """One user's conversation on one codex. Times are seconds since the epoch; `turns` counts messages."""

    id: int
    name: str
    uid: int
    codex: str | None  # None: the bare model
    title: str
    created: float
    used: float
    turns: int = 0
    variant: str = ""  # of the rules of relevance


@dataclass(frozen=True)
class StoredTurn:
    """One message. `ids` are its token ids as generated (uint32 in native order), so that it can be replayed exactly:
    text encoded again may give other tokens. `evidence` is the JSON of the Artifacts that came with it.
    """

    role: str  # system, user, assistant, tool
    text: str
    ids: bytes = b""
    evidence: str = ""
    tool_call_id: str = ""  # of a client's result
    tool_calls: str = ""  # of an answer: calls of the client's tools, as JSON
    created: float = 0.0  # filled in when it is stored


class SessionStore:
    """Every method raises LoreError for a file that cannot be read or written."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time, key: bytes = b"") -> None:
        """Opens or makes the database. Raises LoreError for a newer, foreign or damaged one. `key`: see `open_database`."""
        self.path = path
        with translated():
            self.connection = open_database(path, SCHEMA, application=APPLICATION, key=key)
        self.connection.execute("PRAGMA synchronous = FULL")  # an answer is one write: it may cost a ms and be safe
        self.clock = clock
        self.lock = threading.RLock()
        # SQLite would give a dropped one's number again, to which an answer that still runs may belong.
        self.last_number = int(self.read("SELECT coalesce(max(id), 0) FROM sessions")[0][0])

    def create(self, uid: int, codex: str | None, name: str | None = None) -> Session:
        """A new conversation; without a name it gets one. Raises Conflict for a name that this user has."""
        with self.writing() as database:
            chosen = checked_name(name) if name else fresh_name(lambda tried: self.row(uid, tried) is not None)
            now = self._now(database)
            try:
                database.execute(
                    "INSERT INTO sessions (id, name, uid, codex, title, created, used) VALUES (?, ?, ?, ?, '', ?, ?)",
                    (self.last_number + 1, chosen, uid, codex, now, now),
                )
            except CONFLICTS:
                raise name_in_use(chosen) from None
            self.last_number += 1
            found = self.row(uid, chosen)
        assert found is not None
        return found

    def get(self, uid: int, name: str) -> Session:
        """Raises NotFound with the nearest names."""
        found = self.row(uid, name)
        if found is None:
            known = [one.name for one in self.all_of(uid)]
            raise NotFound(f"no session {name}", instead(name, known, NO_SESSION, "`lore session list`"))
        return found

    def named(self, uid: int, name: str) -> Session | None:
        """This user's conversation of that name; None where it is free. Raises InvalidRequest for no name."""
        return self.row(uid, checked_name(name))

    def all_of(self, uid: int) -> list[Session]:
        """This user's, the last used first."""
        return self.select("WHERE uid = ? ORDER BY used DESC, id DESC", uid)

    def last_of(self, uid: int, codex: str | None) -> Session | None:
        """This user's last used conversation on this codex."""
        found = self.select("WHERE uid = ? AND codex IS ? ORDER BY used DESC, id DESC LIMIT 1", uid, codex)
        return found[0] if found else None

    def append(
        self,
        session: int,
        turns: Sequence[StoredTurn],
        gists: Sequence[GistView] = (),
        karma: str = "",
        variant: str = "",
    ) -> None:
        """Adds turns at the end, gists of earlier ones, and the memories that they were shown, all or none. The first
        user's message becomes the title, and the first `variant` stays. Raises NotFound."""
        with self.writing() as database:
            if not self.select("WHERE id = ?", session):
                raise NotFound("the session was dropped meanwhile", "ask again without it")
            now = self._now(database)
            count = database.execute("SELECT count(*) FROM turns WHERE session = ?", (session,)).fetchone()[0]
            database.executemany(
                "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        session,
                        number,
                        turn.role,
                        turn.text,
                        turn.ids,
                        turn.evidence,
                        turn.tool_call_id,
                        turn.tool_calls,
                        now,
                    )
                    for number, turn in enumerate(turns, start=count)
                ],
            )
            database.executemany(
                "INSERT OR IGNORE INTO gists VALUES (?, ?, ?, ?, ?)",  # two questions at once may have made one each
                [(session, gist.first, gist.last, gist.text, now) for gist in gists],
            )
            database.execute("INSERT OR REPLACE INTO karma VALUES (?, ?)", (session, karma))
            title = next((title_of(turn.text) for turn in turns if turn.role == "user"), "")
            database.execute(
                "UPDATE sessions SET used = ?, title = CASE title WHEN '' THEN ? ELSE title END,"
                " variant = CASE variant WHEN '' THEN ? ELSE variant END WHERE id = ?",
                (now, title, variant, session),
            )

    def turns(self, session: int) -> list[StoredTurn]:
        """All of them, in their order."""
        rows = self.read(
            "SELECT role, text, ids, evidence, tool_call_id, tool_calls, created FROM turns WHERE session = ?"
            " ORDER BY number",
            session,
        )
        return [StoredTurn(*row) for row in rows]

    def find(self, uid: int, query: str, most: int) -> list[SessionHit]:
        """This user's turns that hold words of the query, those with the most and the rarest first. Raises InvalidRequest
        for a query without a word."""
        words = re.findall(r"\w+", query)
        if not words:
            raise InvalidRequest(f"{query!r} holds no word", "give a word that was said")
        any_of = " OR ".join(f'"{word}"' for word in dict.fromkeys(words))
        names = tuple(SessionHit.model_fields)
        rows = self.read(FOUND, any_of, uid, most)
        return [SessionHit(**dict(zip(names, row, strict=True))) for row in rows]

    def gists(self, session: int) -> list[GistView]:
        """What stands for earlier turns, in their order."""
        rows = self.read("SELECT first, last, text FROM gists WHERE session = ? ORDER BY first", session)
        return [GistView(first=first, last=last, text=text) for first, last, text in rows]

    def karma(self, session: int) -> str:
        """The memories of its prompts, as they were handed in; '' for none."""
        return next((text for (text,) in self.read("SELECT shown FROM karma WHERE session = ?", session)), "")

    def may_be_told(self, session: int) -> None:
        """It may become an episode of its user's memories once it is over."""
        if not self.read("SELECT 1 FROM episodes WHERE session = ?", session):
            with self.writing() as database:
                database.execute("INSERT OR IGNORE INTO episodes SELECT id, 0 FROM sessions WHERE id = ?", (session,))

    def untold(self, before: float, most: int) -> list[tuple[Session, int]]:
        """Sessions of all users, last used before, that no episode tells whole; with how many messages are told."""
        unfinished = "told < (SELECT count(*) FROM turns WHERE session = id)"
        condition = f"JOIN episodes ON session = id WHERE used < ? AND {unfinished} ORDER BY used LIMIT ?"
        found = self.select(condition, before, most)
        told = dict(self.read("SELECT session, told FROM episodes"))
        return [(one, told[one.id]) for one in found]

    def mark_told(self, session: int, messages: int) -> None:
        """An episode tells of so many."""
        with self.writing() as database:
            database.execute("UPDATE episodes SET told = ? WHERE session = ?", (messages, session))

    def rename(self, uid: int, name: str, new: str) -> None:
        """Raises NotFound, Conflict or InvalidRequest."""
        session = self.get(uid, name)
        with self.writing() as database:
            try:
                database.execute("UPDATE sessions SET name = ? WHERE id = ?", (checked_name(new), session.id))
            except CONFLICTS:
                raise name_in_use(new) from None

    def drop(self, uid: int, name: str) -> None:
        """Forgets the conversation and its turns. Raises NotFound."""
        session = self.get(uid, name)
        with self.writing() as database:
            database.execute("DELETE FROM sessions WHERE id = ?", (session.id,))

    def kept(self, uid: int) -> tuple[int, int]:
        """How many conversations this user has, and the bytes of what was said in them."""
        sizes = "sum(length(CAST(text AS BLOB)) + length(ids) + length(CAST(evidence AS BLOB)))"
        said = f"SELECT coalesce({sizes}, 0) FROM turns JOIN sessions ON id = session WHERE uid = ?"  # noqa: S608 - ours
        return len(self.all_of(uid)), int(self.read(said, uid)[0][0])

    def purge(self, uid: int) -> None:
        """Deletes all of this user's for good."""
        with self.writing() as database:
            database.execute("DELETE FROM sessions WHERE uid = ?", (uid,))
        with self.lock:
            give_back(self.connection)

    def export(self, uid: int, name: str) -> SessionExport:
        """The whole conversation; token ids are left out: they mean something to one model only."""
        session = self.get(uid, name)
        gists = tuple(map(SessionGist.of, self.gists(session.id)))
        return SessionExport.of(session, turns=tuple(map(exported, self.turns(session.id))), gists=gists)

    def count(self, uid: int) -> int:
        """Of one user's; how many others have is theirs to know."""
        return int(self.read("SELECT count(*) FROM sessions WHERE uid = ?", uid)[0][0])

    def close(self) -> None:
        with self.lock:
            self.connection.close()

    def _now(self, database: sqlite3.Connection) -> float:
        """Always after what was used last: a clock that was set back must not make an older conversation the latest."""
        (latest,) = database.execute("SELECT coalesce(max(used), 0) FROM sessions").fetchone()
        return max(self.clock(), math.nextafter(latest, math.inf))

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, undone when the block raises."""
        with self.lock, translated(), transaction(self.connection, self.path) as database:
            yield database

    def read(self, query: str, *values: object) -> list[Any]:
        with self.lock, translated(), faults_of(self.path):
            return self.connection.execute(query, values).fetchall()

    def row(self, uid: int, name: str) -> Session | None:
        return next(iter(self.select("WHERE uid = ? AND name = ?", uid, name)), None)

    def select(self, condition: str, *values: object) -> list[Session]:
        return [Session(*row) for row in self.read(f"{SESSION} {condition}", *values)]


def exported(turn: StoredTurn) -> SessionTurn:
    """With its text and what else it has."""
    more = {key: value for key, value in vars(turn).items() if key not in ("ids", "text") and value != ""}
    return SessionTurn(text=turn.text, **more)


def title_of(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"


def name_in_use(name: str) -> Conflict:
    return Conflict(f"you have a session {name} already", "choose another name, or drop that one")


def fresh_name(taken: Callable[[str], bool]) -> str:
    """A name that is free: two words, and a number once those are used up."""
    for attempt in range(1000):
        name = f"{random.choice(ADJECTIVES.split())}-{random.choice(NOUNS.split())}"  # noqa: S311 - a name, not a secret
        name += f"-{attempt}" if attempt >= 10 else ""
        if not taken(name):
            return name
    raise AssertionError("a thousand names in a row were taken")


def checked_name(name: str) -> str:
    """Raises InvalidRequest for what could not be typed as one word."""
    if not VALID.match(name):
        raise InvalidRequest(f"{name!r} is no name for a session", "use letters, digits, - . _ (at most 64)")
    return name
