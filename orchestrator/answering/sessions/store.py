"""The conversations' store. Every question is answered for one uid: nobody sees another's sessions.

Calls take well under a millisecond (an append as long as the disk's flush) and may come from any thread. A killed process
loses nothing that a call had returned for.
"""

import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from codex.databases import transaction
from codex.databases import translated as faults_of
from orchestrator.answering.sessions.names import checked, fresh
from orchestrator.answering.sessions.records import Session, StoredTurn
from orchestrator.answering.sessions.schema import opened
from orchestrator.codices.faults import translated
from orchestrator.errors import Conflict, NotFound
from orchestrator.nearest import instead

SESSION = """
SELECT id, name, uid, codex, title, created, used, (SELECT count(*) FROM turns WHERE session = sessions.id) FROM sessions
"""
TITLE_LENGTH = 80
NO_SESSION = "you have none; a question without -s begins one and names it"


class SessionStore:
    """Every method raises LoreError for a file that cannot be read or written."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Opens or makes the database. Raises LoreError for a newer, foreign or damaged one."""
        self.path = path
        self.connection = opened(path)
        self.clock = clock
        self.lock = threading.RLock()
        # SQLite would give a dropped one's number again, to which an answer that still runs may belong.
        self.last_number = int(self.read("SELECT coalesce(max(id), 0) FROM sessions")[0][0])

    def create(self, uid: int, codex: str | None, name: str | None = None) -> Session:
        """A new conversation; without a name it gets one. Raises Conflict for a name that this user has."""
        with self.writing() as database:
            chosen = checked(name) if name else fresh(lambda tried: self.row(uid, tried) is not None)
            now = self._now(database)
            try:
                database.execute(
                    "INSERT INTO sessions (id, name, uid, codex, title, created, used) VALUES (?, ?, ?, ?, '', ?, ?)",
                    (self.last_number + 1, chosen, uid, codex, now, now),
                )
            except sqlite3.IntegrityError:
                raise taken(chosen) from None
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
        return self.row(uid, checked(name))

    def all_of(self, uid: int) -> list[Session]:
        """This user's, the last used first."""
        return self.select("WHERE uid = ? ORDER BY used DESC, id DESC", uid)

    def last_of(self, uid: int, codex: str | None) -> Session | None:
        """This user's last used conversation on this codex."""
        found = self.select("WHERE uid = ? AND codex IS ? ORDER BY used DESC, id DESC LIMIT 1", uid, codex)
        return found[0] if found else None

    def append(self, session: int, turns: Sequence[StoredTurn]) -> None:
        """Adds turns at the end, all or none. The first user's message becomes the title. Raises NotFound."""
        with self.writing() as database:
            if not self.select("WHERE id = ?", session):
                raise NotFound("the session was dropped meanwhile", "ask again without it")
            now = self._now(database)
            count = database.execute("SELECT count(*) FROM turns WHERE session = ?", (session,)).fetchone()[0]
            database.executemany(
                "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(session, number, *stored(turn), now) for number, turn in enumerate(turns, start=count)],
            )
            title = next((title_of(turn.text) for turn in turns if turn.role == "user"), "")
            database.execute(
                "UPDATE sessions SET used = ?, title = CASE title WHEN '' THEN ? ELSE title END WHERE id = ?",
                (now, title, session),
            )

    def turns(self, session: int) -> list[StoredTurn]:
        """All of them, in their order."""
        rows = self.read(
            "SELECT role, text, ids, evidence, tool_call_id, tool_calls, created"
            " FROM turns WHERE session = ? ORDER BY number",
            session,
        )
        return [StoredTurn(*row) for row in rows]

    def rename(self, uid: int, name: str, new: str) -> None:
        """Raises NotFound, Conflict or InvalidRequest."""
        session = self.get(uid, name)
        with self.writing() as database:
            try:
                database.execute("UPDATE sessions SET name = ? WHERE id = ?", (checked(new), session.id))
            except sqlite3.IntegrityError:
                raise taken(new) from None

    def drop(self, uid: int, name: str) -> None:
        """Forgets the conversation and its turns. Raises NotFound."""
        session = self.get(uid, name)
        with self.writing() as database:
            database.execute("DELETE FROM sessions WHERE id = ?", (session.id,))

    def export(self, uid: int, name: str) -> dict[str, Any]:
        """The whole conversation as plain values; token ids are left out: they mean something to one model only."""
        session = self.get(uid, name)
        turns = [asdict(turn) for turn in self.turns(session.id)]
        return {
            **report(session),
            "turns": [{k: v for k, v in turn.items() if k == "text" or (k != "ids" and v != "")} for turn in turns],
        }

    def count(self) -> int:
        return int(self.read("SELECT count(*) FROM sessions")[0][0])

    def close(self) -> None:
        with self.lock:
            self.connection.close()

    # ---- below -------------------------------------------------------------------------------------------------------

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


def report(session: Session) -> dict[str, Any]:
    """As `lore session list` shows it."""
    return {key: value for key, value in asdict(session).items() if key not in ("id", "uid")}


def stored(turn: StoredTurn) -> tuple[object, ...]:
    return turn.role, turn.text, turn.ids, turn.evidence, turn.tool_call_id, turn.tool_calls


def title_of(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"


def taken(name: str) -> Conflict:
    return Conflict(f"you have a session {name} already", "choose another name, or drop that one")
