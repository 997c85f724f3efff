"""What must outlast a restart beside the generations: what people wished of a codex, its hot files, what questions touched,
which version of an identity its floor was made of.

The hot subset is frozen with its generation: a floor that is raised again after a restart must be the same prefix, though
git, the room and what was asked have changed since; so the identity's text is kept, which may have changed too. Small, in
one SQLite file. Thread-safe. A damaged file is begun again,
also when the damage shows late: floors are then chosen anew, and wishes must be said again.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from codex.catalog.databases import Renewable
from codex.errors import CatalogError
from formatters.context import IdentityView

log = logging.getLogger("lorekeep.codices")

SCHEMA = (
    """
    CREATE TABLE touched (codex TEXT NOT NULL, path TEXT NOT NULL, times INTEGER NOT NULL, PRIMARY KEY (codex, path));
    CREATE TABLE frozen (codex TEXT PRIMARY KEY, generation INTEGER NOT NULL, paths TEXT NOT NULL);
    """,
    """
    CREATE TABLE wished (codex TEXT PRIMARY KEY, tier TEXT, watch INTEGER);
    """,
    """
    CREATE TABLE compared (codex TEXT PRIMARY KEY, at REAL NOT NULL);
    """,
    """
    CREATE TABLE asked (codex TEXT PRIMARY KEY, at REAL NOT NULL);
    CREATE TABLE stood (
        codex TEXT NOT NULL, identity TEXT NOT NULL, base TEXT NOT NULL, view TEXT NOT NULL,
        PRIMARY KEY (codex, identity)
    );
    """,
    """
    CREATE TABLE halted (codex TEXT PRIMARY KEY);
    """,
)
TABLES = ("touched", "frozen", "wished", "compared", "asked", "stood", "halted")
_MOST = 1 << 20  # a count beyond says nothing more


@dataclass(frozen=True)
class ResidentIdentity:
    """A version of an identity whose floor stood, and on what: equal bases are the same codex in the same model."""

    base: str
    view: IdentityView


@dataclass(frozen=True)
class Wishes:
    """What loads asked for, until another load says otherwise. None: nothing."""

    tier: str | None = None
    watch: bool | None = None


class CodexStateStore:
    """Methods may be called from any thread. Raises DiskFull where it writes, but for `freeze`, `stood` and `forget`."""

    def __init__(self, path: Path) -> None:
        self._file = Renewable(path, SCHEMA, "tiers that were forced must be named again")
        self._unkept: dict[str, tuple[int, tuple[str, ...]]] = {}  # frozen, and there was no room for it
        self._owed: set[str] = set()  # codices that are forgotten, and there was no room to say so

    def close(self) -> None:
        self._file.close()

    # -- what people wished

    def wish(self, codex: str, tier: str | None = None, watch: bool | None = None) -> None:
        """Remembers what a load asked for; 'auto' takes an earlier tier back, None leaves what was wished before."""

        def write(database: Connection) -> None:
            database.execute("INSERT OR IGNORE INTO wished (codex) VALUES (?)", (codex,))
            if tier is not None:
                kept = None if tier == "auto" else tier
                database.execute("UPDATE wished SET tier = ? WHERE codex = ?", (kept, codex))
            if watch is not None:
                database.execute("UPDATE wished SET watch = ? WHERE codex = ?", (watch, codex))

        if tier is not None or watch is not None:
            self._write(codex, write)

    def rewish(self, codex: str, wishes: Wishes) -> None:
        """These alone, whatever was wished since."""
        self._write(
            codex,
            lambda database: database.execute(
                "INSERT OR REPLACE INTO wished (codex, tier, watch) VALUES (?, ?, ?)",
                (codex, wishes.tier, wishes.watch),
            ),
        )

    def wishes(self, codex: str) -> Wishes:
        rows = self._read("SELECT tier, watch FROM wished WHERE codex = ?", codex)
        return Wishes(rows[0][0], None if rows[0][1] is None else bool(rows[0][1])) if rows else Wishes()

    def halt(self, codex: str) -> None:
        """A person has stopped the computing of its floor: it is not begun again before a question or a load."""
        self._write(codex, lambda database: database.execute("INSERT OR REPLACE INTO halted VALUES (?)", (codex,)))

    def resume(self, codex: str) -> None:
        """The end of that."""
        if self.halted(codex):
            self._write(codex, lambda database: database.execute("DELETE FROM halted WHERE codex = ?", (codex,)))

    def halted(self, codex: str) -> bool:
        return bool(self._read("SELECT 1 FROM halted WHERE codex = ?", codex))

    # -- when it was as it was on disk

    def compared(self, codex: str, at: float) -> None:
        """A load that began then (seconds since 1970) has ended well."""
        row = (codex, at)
        self._write(codex, lambda database: database.execute("INSERT OR REPLACE INTO compared VALUES (?, ?)", row))

    def compared_at(self, codex: str) -> float | None:
        rows = self._read("SELECT at FROM compared WHERE codex = ?", codex)
        return float(rows[0][0]) if rows else None

    # -- what questions touched

    def touch(self, codex: str, paths: Iterable[str], at: float = 0.0) -> None:
        """One question more, asked then (seconds since 1970), whose answer used these files."""
        rows = [(codex, path, _MOST) for path in dict.fromkeys(paths)]

        def write(database: Connection) -> None:
            database.execute("INSERT OR REPLACE INTO asked VALUES (?, ?)", (codex, at))
            database.execute("DELETE FROM halted WHERE codex = ?", (codex,))
            database.executemany(
                "INSERT INTO touched (codex, path, times) VALUES (?, ?, 1) "
                "ON CONFLICT (codex, path) DO UPDATE SET times = min(times + 1, ?)",
                rows,
            )

        self._write(codex, write)

    def asked(self, codex: str, paths: Iterable[str]) -> None:
        """The same, now, and behind an answer: where it cannot be written it is done without."""
        try:
            self.touch(codex, paths, time.time())
        except CatalogError as fault:
            log.warning("what a question about %s touched was not kept: %s", codex, fault)

    def used(self, codex: str) -> float:
        """When it was asked about last, in seconds since 1970; 0.0 where that is not known."""
        try:
            rows = self._read("SELECT at FROM asked WHERE codex = ?", codex)
        except CatalogError:
            return 0.0
        return float(rows[0][0]) if rows else 0.0

    def touched(self, codex: str) -> Mapping[str, int]:
        """Questions by path."""
        return dict(self._read("SELECT path, times FROM touched WHERE codex = ?", codex))

    # -- what floors were made of

    def freeze(self, codex: str, generation: int, hot: Iterable[str]) -> None:
        """From now on these are the hot files of this generation; older generations' are forgotten.

        Where they cannot be written they hold until the program ends: a question needs no more, and must not fail.
        """
        paths = tuple(hot)
        row = (codex, generation, json.dumps(paths))
        insert = "INSERT OR REPLACE INTO frozen (codex, generation, paths) VALUES (?, ?, ?)"
        try:
            self._write(codex, lambda database: database.execute(insert, row))
            self._unkept.pop(codex, None)
        except CatalogError as fault:
            self._unkept[codex] = (generation, paths)
            log.warning("the hot files of %s are chosen anew after a restart: %s", codex, fault)

    def frozen(self, codex: str, generation: int) -> tuple[str, ...] | None:
        """The hot files of this generation, None while nothing was frozen."""
        number, unkept = self._unkept.get(codex, (None, ()))
        if number == generation:
            return unkept
        rows = self._read("SELECT paths FROM frozen WHERE codex = ? AND generation = ?", codex, generation)
        return tuple(json.loads(rows[0][0])) if rows else None

    def stood(self, codex: str, what: ResidentIdentity) -> None:
        """From now on this version is the one whose floor stood last; where it cannot be written, a restart computes the
        newest one while somebody waits."""
        row = (codex, what.view.name, what.base, what.view.model_dump_json())
        try:
            self._write(
                codex, lambda database: database.execute("INSERT OR REPLACE INTO stood VALUES (?, ?, ?, ?)", row)
            )
        except CatalogError as fault:
            log.warning("which identity the floor of %s is made of was not kept: %s", codex, fault)

    def last_stood(self, codex: str, identity: str) -> ResidentIdentity | None:
        rows = self._read("SELECT base, view FROM stood WHERE codex = ? AND identity = ?", codex, identity)
        try:
            return ResidentIdentity(rows[0][0], IdentityView.model_validate_json(rows[0][1])) if rows else None
        except ValueError:  # as another version of the program wrote it
            return None

    # -- what is dropped

    def forget(self, codex: str) -> None:
        """Nothing is known of it from now on. Where the disk refuses, its rows go with the next of its name that are
        written, or with the next start: what is dropped must be gone also when there is no room to write that."""
        self._unkept.pop(codex, None)
        self._owed.add(codex)
        try:
            self._file.write(lambda database: clear(database, codex))
            self._owed.discard(codex)
        except CatalogError as fault:
            log.warning("what was noted of %s is taken out of its file later: %s", codex, fault)

    def noted(self) -> frozenset[str]:
        """Codices of which anything is noted; also dropped ones, where a kill or a full disk has left that."""
        tables = (self._file.read(f"SELECT DISTINCT codex FROM {table}") for table in TABLES)  # noqa: S608
        return frozenset(row[0] for rows in tables for row in rows) - self._owed

    def _write(self, codex: str, work: Callable[[Connection], object]) -> None:
        """In one transaction with the end of what is owed of it."""
        owed = codex in self._owed

        def write(database: Connection) -> None:
            if owed:
                clear(database, codex)
            work(database)

        self._file.write(write)
        if owed:
            self._owed.discard(codex)

    def _read(self, query: str, codex: str, *values: object) -> list[Any]:
        return [] if codex in self._owed else self._file.read(query, codex, *values)


def clear(database: Connection, codex: str) -> None:
    for table in TABLES:
        database.execute(f"DELETE FROM {table} WHERE codex = ?", (codex,))  # noqa: S608 - those of the schema
