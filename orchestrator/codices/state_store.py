"""What is known of a codex beside its files and outlasts a restart: one small SQLite file beside the generations.

It holds what users asked for, levels of files, what questions used, and the identity that a floor was made of. The levels
of a coverage are frozen with their generation, and the text of the identity is kept: a floor that is built again after a
restart must be the same prefix, though git, memory, questions and identity files have changed since. A damaged file is
begun again, also when the damage shows late: levels are then chosen anew, and a coverage must be named again.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from codex.catalog.databases import Renewable
from codex.catalog.generations import Codex, Generation
from codex.errors import CatalogError, UnknownCodex
from codex.library import Library
from formatters.context import IdentityView
from orchestrator.codices.state import CodexState
from orchestrator.prompt.coverage import CoverageSizes

log = logging.getLogger("lorekeep.codices")

SCHEMA = (
    """
    CREATE TABLE noted (
        codex TEXT PRIMARY KEY, tier TEXT, watch INTEGER, halted INTEGER, compared REAL, asked REAL,
        whole INTEGER, skeleton INTEGER, map INTEGER
    );
    CREATE TABLE touched (codex TEXT NOT NULL, path TEXT NOT NULL, times INTEGER NOT NULL, PRIMARY KEY (codex, path));
    CREATE TABLE stood (
        codex TEXT NOT NULL, identity TEXT NOT NULL, base TEXT NOT NULL, view TEXT NOT NULL,
        PRIMARY KEY (codex, identity)
    );
    CREATE TABLE frozen (
        codex TEXT NOT NULL, tier TEXT NOT NULL, generation INTEGER NOT NULL, tokens INTEGER NOT NULL, levels TEXT NOT NULL,
        PRIMARY KEY (codex, tier)
    );
    CREATE TABLE brought (
        codex TEXT PRIMARY KEY, files TEXT NOT NULL, tier TEXT NOT NULL, tokens INTEGER NOT NULL, levels TEXT NOT NULL
    );
    """,
)
STATES = "floors.sqlite3"
BROUGHT = "brought"  # of codices that are still to be loaded
TABLES = ("noted", "touched", "frozen", "stood")
Work = Callable[[Connection], object]  # inside a transaction
_MOST = 1 << 20  # a count beyond says nothing more


@dataclass(frozen=True)
class ResidentIdentity:
    """A version of an identity whose floor was resident, and of what: equal bases are the same codex in the same model."""

    base: str
    view: IdentityView


@dataclass(frozen=True)
class Wishes:
    """What loads asked for, until another load says otherwise. None: nothing."""

    coverage: str | None = None
    watch: bool | None = None


@dataclass(frozen=True)
class FrozenLevels:
    """A digit for each file of a generation, in its order; and the tokens that they were chosen for."""

    levels: str
    tokens: int


@dataclass(frozen=True)
class BroughtLevels:
    """How the floor of a codex was made that was computed elsewhere. `files`: a digest of them, in their order. No levels
    in a coverage that chooses among no files."""

    files: str
    coverage: str
    made: FrozenLevels

    @staticmethod
    def of(order: Sequence[tuple[str, str]], coverage: str, made: FrozenLevels) -> "BroughtLevels":
        """`order`: paths with the digests of their texts."""
        return BroughtLevels(hashlib.sha256(json.dumps([*map(list, order)]).encode()).hexdigest(), coverage, made)

    def is_of(self, generation: Generation) -> bool:
        """Whether the generation has the same files in the same order."""
        order = [(one.path, one.digest) for one in generation.entries]
        return self == BroughtLevels.of(order, self.coverage, self.made)


class CodexStateStore:
    """Methods may be called from any thread. `wish`, `rewish`, `halt`, `resume` and `expect` raise DiskFull."""

    def __init__(self, path: Path) -> None:
        self._file = Renewable(path, SCHEMA, "coverages that were forced must be named again")
        # By codex and coverage, with the generation: frozen, and there was no room for it.
        self._unkept: dict[tuple[str, str], tuple[int, FrozenLevels]] = {}
        self._owed: set[str] = set()  # codices that are forgotten, and there was no room to say so

    def close(self) -> None:
        self._file.close()

    # -- what users asked for

    def wish(self, codex: str, coverage: str | None = None, watch: bool | None = None) -> None:
        """Remembers what a load asked for; 'auto' takes an earlier coverage back, None leaves what was wished before."""
        wished: dict[str, object] = {} if watch is None else {"watch": watch}
        if coverage is not None:
            wished["tier"] = None if coverage == "auto" else coverage
        if wished:
            self._write(codex, note(codex, **wished))

    def rewish(self, codex: str, wishes: Wishes) -> None:
        """These alone, whatever was wished since."""
        self._write(codex, note(codex, tier=wishes.coverage, watch=wishes.watch))

    def wishes(self, codex: str) -> Wishes:
        rows = self._read("SELECT tier, watch FROM noted WHERE codex = ?", codex)
        return Wishes(rows[0][0], None if rows[0][1] is None else bool(rows[0][1])) if rows else Wishes()

    def halt(self, codex: str) -> None:
        """A person has stopped the computing of its floor: it is not begun again before a question or a load."""
        self._write(codex, note(codex, halted=True))

    def resume(self, codex: str) -> None:
        """The end of that."""
        if self.halted(codex):
            self._write(codex, note(codex, halted=False))

    def halted(self, codex: str) -> bool:
        return bool(self._read("SELECT 1 FROM noted WHERE codex = ? AND halted", codex))

    # -- when it was as on disk

    def compared(self, codex: str, at: float) -> None:
        """A load that began then (seconds since 1970) has ended well."""
        self._written(codex, note(codex, compared=at), f"when {codex} was loaded was not kept")

    def compared_at(self, codex: str) -> float | None:
        """When the last load that ended well began; None where that is not known."""
        return self._time("compared", codex)

    # -- how large it is

    def sized(self, codex: str, sizes: CoverageSizes) -> None:
        """As counted last, in the tokens of the model that answers."""
        sized = note(codex, whole=sizes.full, skeleton=sizes.skeleton, map=sizes.map)
        self._written(codex, sized, f"how large {codex} is was not kept")

    def sizes(self) -> dict[str, CoverageSizes]:
        """Of each codex that was counted, by name; none where they cannot be read."""
        try:
            rows = self._file.read("SELECT codex, whole, skeleton, map FROM noted WHERE whole IS NOT NULL")
        except CatalogError as fault:
            log.warning("how large codices are cannot be read: %s", fault)
            return {}
        return {row[0]: CoverageSizes(*row[1:]) for row in rows if row[0] not in self._owed}

    # -- what questions used

    def asked(self, codex: str, paths: Iterable[str], at: float | None = None) -> None:
        """One question more, asked then (seconds since 1970, default: now), whose answer used these files. Where it cannot
        be written it is done without: the question is answered."""
        rows = [(codex, path, _MOST) for path in dict.fromkeys(paths)]

        def write(database: Connection) -> None:
            note(codex, asked=time.time() if at is None else at, halted=False)(database)
            database.executemany(
                "INSERT INTO touched (codex, path, times) VALUES (?, ?, 1) "
                "ON CONFLICT (codex, path) DO UPDATE SET times = min(times + 1, ?)",
                rows,
            )

        self._written(codex, write, f"which files a question about {codex} used was not kept")

    def used(self, codex: str) -> float:
        """When it was asked about last, in seconds since 1970; 0.0 where that is not known."""
        return self._time("asked", codex) or 0.0

    def _time(self, column: str, codex: str) -> float | None:
        """None also where it cannot be read."""
        with suppress(CatalogError):
            for (at,) in self._read(f"SELECT {column} FROM noted WHERE codex = ?", codex):  # noqa: S608 - the schema's
                return None if at is None else float(at)
        return None

    def touched(self, codex: str) -> Mapping[str, int]:
        """Questions by path."""
        return dict(self._read("SELECT path, times FROM touched WHERE codex = ?", codex))

    # -- what floors were made of

    def freeze(self, codex: str, generation: int, coverage: str, made: FrozenLevels) -> None:
        """From now on these are the levels of this generation in this coverage; those of older ones are forgotten.

        Where they cannot be written they hold until the program ends: a question needs no more, and must not fail.
        """
        row = (codex, coverage, generation, made.tokens, made.levels)
        insert = execution("INSERT OR REPLACE INTO frozen VALUES (?, ?, ?, ?, ?)", *row)
        if self._written(codex, insert, f"which files of {codex} are whole is chosen anew after a restart"):
            self._unkept.pop((codex, coverage), None)
        else:
            self._unkept[codex, coverage] = generation, made

    def frozen(self, codex: str, generation: int) -> dict[str, FrozenLevels]:
        """Of this generation, by coverage."""
        query = "SELECT tier, levels, tokens FROM frozen WHERE codex = ? AND generation = ?"
        rows = self._read(query, codex, generation)
        unkept = {
            coverage: made for (name, coverage), (of, made) in self._unkept.items() if (name, of) == (codex, generation)
        }
        return {coverage: FrozenLevels(*kept) for coverage, *kept in rows} | unkept

    # -- how a floor was made that came from elsewhere

    def expect(self, codex: str, brought: BroughtLevels) -> None:
        """For the next load under this name."""
        row = (codex, brought.files, brought.coverage, brought.made.tokens, brought.made.levels)
        self._write(codex, execution("INSERT OR REPLACE INTO brought VALUES (?, ?, ?, ?, ?)", *row))

    def expected(self, codex: str) -> BroughtLevels | None:
        rows = self._read("SELECT files, tier, levels, tokens FROM brought WHERE codex = ?", codex)
        if not rows:
            return None
        files, coverage, levels, tokens = rows[0]
        return BroughtLevels(files, coverage, FrozenLevels(levels, tokens))

    def expect_no_more(self, codex: str) -> None:
        """It was used, or can be of no use."""
        self._written(codex, execution("DELETE FROM brought WHERE codex = ?", codex), f"{codex} is expected still")

    # -- which identity a floor was made of

    def now_resident(self, codex: str, what: ResidentIdentity) -> None:
        """The codex's floor of this version was resident last. Where it cannot be written, a restart computes the newest
        version while somebody waits."""
        row = (codex, what.view.name, what.base, what.view.model_dump_json())
        insert = execution("INSERT OR REPLACE INTO stood VALUES (?, ?, ?, ?)", *row)
        self._written(codex, insert, f"which identity the floor of {codex} is made of was not kept")

    def last_resident(self, codex: str, identity: str) -> ResidentIdentity | None:
        """None where none is known, or it cannot be read: also as another version of the program wrote it."""
        try:
            rows = self._read("SELECT base, view FROM stood WHERE codex = ? AND identity = ?", codex, identity)
            return ResidentIdentity(rows[0][0], IdentityView.model_validate_json(rows[0][1])) if rows else None
        except (CatalogError, ValueError) as fault:
            log.warning("which identity the floor of %s was made of cannot be read: %s", codex, fault)
            return None

    # -- what is dropped

    def forget(self, codex: str) -> None:
        """Nothing is known of it from now on. Where the disk refuses, its rows go with the next of its name that are
        written, or with the next start: what is dropped must be gone also when there is no room to write that."""
        self._unkept = {key: kept for key, kept in self._unkept.items() if key[0] != codex}
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

    def _written(self, codex: str, work: Work, lost: str) -> bool:
        """Whether it could be written. Where not, the program goes on without it; `lost` is for the log."""
        try:
            self._write(codex, work)
        except CatalogError as fault:
            log.warning("%s: %s", lost, fault)
            return False
        return True

    def _write(self, codex: str, work: Work) -> None:
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


def kept_sizes(folder: Path) -> dict[str, CoverageSizes]:
    """Those of the file in the folder of codices, before anything else of it is opened; none where it cannot be."""
    if not (folder / STATES).exists():
        return {}
    try:
        store = CodexStateStore(folder / STATES)
    except CatalogError as fault:
        log.warning("how large codices are cannot be read: %s", fault)
        return {}
    try:
        return store.sizes()
    finally:
        store.close()


def execution(statement: str, *values: object) -> Work:
    return lambda database: database.execute(statement, values)


def note(codex: str, **values: object) -> Work:
    """These columns of the row of a codex; the others stay."""
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    changes = ", ".join(f"{name} = excluded.{name}" for name in values)
    statement = f"INSERT INTO noted (codex, {names}) VALUES (?, {marks}) ON CONFLICT (codex) DO UPDATE SET {changes}"  # noqa: S608
    return execution(statement, codex, *values.values())


def clear(database: Connection, codex: str) -> None:
    for table in (*TABLES, BROUGHT):
        database.execute(f"DELETE FROM {table} WHERE codex = ?", (codex,))  # noqa: S608 - those of the schema


# -- what a cancelled load takes back


@dataclass(frozen=True)
class StateBeforeLoad:
    """What a cancelled load goes back to. `codex` as the catalog had it, with the generation that was resident as its
    newest; None: it was not known. `began`: when the load did."""

    name: str
    codex: Codex | None
    state: CodexState | None
    wishes: Wishes
    frozen: Mapping[str, FrozenLevels]
    began: float = field(default_factory=time.time)

    @property
    def number(self) -> int | None:
        """The generation that was resident."""
        return self.codex.newest if self.codex else None


def state_before(library: Library, store: CodexStateStore, name: str, state: CodexState | None) -> StateBeforeLoad:
    """`state`: None where the codex was not built. Raises CodexError."""
    try:
        codex = library.catalog.codex(name)
    except UnknownCodex:
        return StateBeforeLoad(name, None, None, Wishes(), {})
    if state is not None:
        codex = replace(codex, newest=state.generation.number)
    frozen = store.frozen(name, codex.newest) if codex.newest is not None else {}
    return StateBeforeLoad(name, codex, state, store.wishes(name), frozen)


def take_back(library: Library, store: CodexStateStore, was: StateBeforeLoad) -> None:
    """Raises CodexError. One that was not known stays, if it got so far, as one that was never loaded to its end."""
    found = was.codex or next(
        (replace(one, newest=None) for one in library.catalog.codices() if one.name == was.name), None
    )
    if found is None:
        return
    library.take_back(found)
    store.rewish(was.name, was.wishes)
    for coverage, made in was.frozen.items():
        assert was.number is not None, "levels are frozen with a generation"
        store.freeze(was.name, was.number, coverage, made)
