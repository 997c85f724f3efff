"""The memories on disk: one SQLite file, which this module alone writes (its tables: `schema`).

What a change does is decided in `changes`. Each call is one transaction. Knows no prompt and no model.
"""

import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from codex.catalog.databases import open_database, transaction
from codex.catalog.databases import translated as faults_of
from formatters.plugins import MemoryKind
from orchestrator.errors import Conflict, InvalidRequest, NotFound, instead, translated
from orchestrator.karma.changes import (
    ESCALATED_FROM,
    Settled,
    asks_for_review,
    confirmed,
    judged,
    led,
    likeness,
    refuse,
    retired,
    settled,
    triggered,
)
from orchestrator.karma.episodes import aged
from orchestrator.karma.figures import DAYS, JudgedDecision, TurnCounts
from orchestrator.karma.records import (
    DAY_S,
    KINDS,
    CodeCitation,
    DecisionOutcome,
    Kind,
    MemoryRecord,
    MemoryState,
    NewMemory,
    Severity,
    WatchedText,
    without_package,
)
from orchestrator.karma.schema import APPLICATION, CURRENT, OF_USER, SCHEMA
from orchestrator.karma.sizes import micro_of, summary_of

TRUST_UP, TRUST_DOWN = 0.05, -0.10
HALF_LIFE_S = 7 * DAY_S  # of a showing
LIST = "list:"  # subjects of lists: their entries stand beside each other
MOST_VALUES = 500
_TRIES = 8

_COLUMNS = tuple(field.name for field in fields(MemoryRecord) if field.name != "evidence")
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)
_SELECT = "SELECT {names} FROM memories".format(names=", ".join(f'memories."{name}"' for name in _COLUMNS))  # noqa: S608
_USAGE = "SELECT id, showings, shown, referenced, at FROM usage JOIN memories ON number = memory"

_COUNTS = tuple(field.name for field in fields(TurnCounts))
_COUNTED = "INSERT INTO days (uid, day, {names}) VALUES (?, ?, {marks}) ON CONFLICT DO UPDATE SET {sums}".format(  # noqa: S608
    names=", ".join(_COUNTS),
    marks=", ".join("?" for _ in _COUNTS),
    sums=", ".join(f"{name} = {name} + excluded.{name}" for name in _COUNTS),
)


class _Any:
    """Any codex, where None means none."""


ANY = _Any()


@dataclass(frozen=True)
class MemoryUsage:
    """Decayed to one moment: how often a memory was shown, and of that referenced. `showings` is not decayed."""

    showings: int
    shown: float
    referenced: float


def batched(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """Of one query each: SQLite takes a bounded number of values."""
    return (values[first : first + MOST_VALUES] for first in range(0, len(values), MOST_VALUES))


def marks(values: Sequence[object]) -> str:
    """Question marks for so many values of a query."""
    return ", ".join("?" * len(values))


def decay(age_s: float) -> float:
    """What a showing counts after so many seconds."""
    return float(0.5 ** (max(0.0, age_s) / HALF_LIFE_S))


class MemoryStore:
    """Every method raises LoreError for a file that cannot be read or written, and knows one user's memories at a time."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        kinds: Mapping[str, MemoryKind] = KINDS,
        key: bytes = b"",
    ) -> None:
        """Opens or makes the database. Raises LoreError for a newer, foreign or damaged one. `kinds`: by name. `key`: see
        `open_database`."""
        self.path = path
        self.kinds = kinds
        with translated():
            self._connection = open_database(path, SCHEMA, application=APPLICATION, key=key)
        self._connection.execute("PRAGMA synchronous = FULL")  # a memory is a rare write: it may cost a ms and be safe
        self._clock = clock
        self._lock = threading.RLock()
        self._without: set[int] = set()  # users who have no memory, as they were seen since the last change

    def kind(self, name: str) -> MemoryKind:
        return self.kinds.get(name) or without_package(name)

    # -- writing

    def add(self, new: NewMemory) -> MemoryRecord:
        """The memory as it stands then: a new one, or the one that it confirms or repeats. Raises InvalidRequest."""
        refuse(new, self.kind(new.kind))
        with self._writing() as database:
            return self._added(database, new)

    def add_all(self, uid: int, new: Sequence[NewMemory]) -> int:
        """All of one user's or none. Gives how many of them were not known. Raises InvalidRequest."""
        for one in new:
            refuse(one, self.kind(one.kind))
        with self._writing() as database:
            before = self._number(uid)
            for one in new:
                self._added(database, one)
            return self._number(uid) - before

    def change(self, uid: int, id: str, state: str) -> MemoryRecord:  # noqa: A002 - the record's own word
        """Raises Conflict where the table of states leads elsewhere."""
        return self._changed(uid, id, lambda one: replace(one, state=led(one, self.kind(one.kind), state)))

    def confirm(self, uid: int, id: str) -> MemoryRecord:  # noqa: A002
        """A person says that it is true: a proposal stands, a fact is confirmed once more, what was suspect is not, and a
        suggested outcome or promotion takes place."""
        return self._changed(uid, id, lambda one: _resized(replace(confirmed(one, self.kind(one.kind)), suspect="")))

    def retire(self, uid: int, id: str) -> MemoryRecord:  # noqa: A002
        """Raises Conflict for decisions and episodes, which are kept."""

        def put_away(one: MemoryRecord) -> MemoryRecord:
            kind = self.kind(one.kind)
            return replace(one, state=led(one, kind, retired(one, kind)))

        return self._changed(uid, id, put_away)

    def rate(self, uid: int, id: str, *, up: bool) -> MemoryRecord:  # noqa: A002
        step = TRUST_UP if up else TRUST_DOWN
        return self._changed(uid, id, lambda one: replace(one, trust=round(min(1.0, max(0.0, one.trust + step)), 4)))

    def judge(self, uid: int, id: str, *, right: bool) -> MemoryRecord:  # noqa: A002
        """A procedure worked or did not; a censor's warning was right or a false alarm. Nothing for other kinds."""
        return self._counted(uid, id, lambda one: judged(one, right=right))

    def trigger(self, uid: int, id: str) -> MemoryRecord:  # noqa: A002
        """A text triggered this censor."""
        return self._counted(uid, id, triggered)

    def suggest(self, uid: int, id: str, outcome: DecisionOutcome) -> MemoryRecord:  # noqa: A002
        """An outcome of a decision that a person may confirm."""
        return self._counted(uid, id, lambda one: replace(one, suggested=outcome))

    def consecrate(self, uid: int, id: str) -> MemoryRecord:  # noqa: A002
        """Verbatim and pinned: never shortened, the last to go."""

        def consecrated(one: MemoryRecord) -> MemoryRecord:
            return _resized(replace(one, verbatim=True, pinned=True))

        return self._changed(uid, id, consecrated)

    def set_outcome(self, uid: int, id: str, outcome: DecisionOutcome) -> MemoryRecord:  # noqa: A002
        """Of a decision, which is reviewed by that. Raises Conflict for another kind."""

        def decided(one: MemoryRecord) -> MemoryRecord:
            if one.kind is not Kind.DECISION:
                raise Conflict(f"a {one.kind} has no outcome", "only decisions have one")
            pending = outcome is DecisionOutcome.PENDING
            state = MemoryState.PENDING if pending else MemoryState.REVIEWED
            led_to = one.state if one.state is state else led(one, self.kind(one.kind), state)
            return _resized(replace(one, outcome=outcome, suggested=None, state=led_to))

        return self._changed(uid, id, decided)

    def forget(self, uid: int, id: str) -> MemoryRecord:  # noqa: A002
        """Deletes it for good. Raises NotFound."""
        with self._writing() as database:
            found = self.get(uid, id)
            database.execute("DELETE FROM memories WHERE id = ?", (found.id,))
            return found

    def forget_codex(self, uid: int, codex: str) -> int:
        """Deletes this user's memories of a codex. Gives their number."""
        with self._writing() as database:
            return database.execute("DELETE FROM memories WHERE uid = ? AND codex = ?", (uid, codex)).rowcount

    def forget_source(self, uid: int, source: str) -> int:
        """Deletes this user's memories that came from there; `*` stands for any words. Gives their number."""
        with self._writing() as database:
            return database.execute("DELETE FROM memories WHERE uid = ? AND source GLOB ?", (uid, source)).rowcount

    def age(self, now: float) -> None:
        """Episodes of all users as they stand at this moment."""
        young = self.records("kind = ? AND state IN (?, ?)", Kind.EPISODE, MemoryState.ACTIVE, MemoryState.SUMMARIZED)
        changed = [after for one in young if (after := aged(one, now)) is not one]
        with self._writing() as database:
            for one in changed:
                self._write(database, replace(one, updated=now))
                database.execute(
                    "UPDATE memories SET text = ? WHERE id = ? AND text <> ?", (one.text, one.id, one.text)
                )

    def expire(self, before: float) -> int:
        """Deletes what no model is shown, and archived episodes, unchanged since that moment. Gives their number."""
        states = (MemoryState.PROPOSED, MemoryState.INACTIVE, MemoryState.RETIRED, MemoryState.ARCHIVED)
        condition = f"state IN ({marks(states)}) AND kind <> ? AND pinned = 0 AND verbatim = 0 AND updated < ?"
        with self._writing() as database:
            deleted = database.execute(f"DELETE FROM memories WHERE {condition}", (*states, Kind.DECISION, before))  # noqa: S608
            return deleted.rowcount

    def count_shown(
        self, uid: int, referenced: Mapping[str, bool], at: float | None = None, counts: TurnCounts | None = None
    ) -> None:
        """These memories, by id, were shown once more; true where the answer used them. `counts`: of the turn."""
        with self._writing() as database:
            now = self._clock() if at is None else at
            if counts is not None:
                _count(database, uid, counts, int(now // DAY_S))
            for one, used in referenced.items():
                row = database.execute("SELECT number FROM memories WHERE id = ? AND uid = ?", (one, uid)).fetchone()
                if row is not None:
                    _weigh(database, row[0], used, now)

    def mark_suspect(self, codex: str, reasons: Mapping[str, str]) -> int:
        """Memories of this codex, by id, with the reason why their code is another now. Gives how many are newly so."""
        with self._writing() as database:
            rows = [(why, self._clock(), one, codex) for one, why in reasons.items()]
            statement = "UPDATE memories SET suspect = ?, updated = ? WHERE id = ? AND codex = ? AND suspect = ''"
            return sum(database.execute(statement, row).rowcount for row in rows)

    def cite(self, codex: str, evidence: Mapping[str, Sequence[CodeCitation]]) -> None:
        """Of memories of this codex, by id, what they cite from now on. It is no change of what a memory says."""
        if not evidence:
            return
        with self._writing() as database:
            for one, cited in evidence.items():
                row = database.execute(
                    "SELECT number FROM memories WHERE id = ? AND codex = ?", (one, codex)
                ).fetchone()
                if row is not None:
                    database.execute("DELETE FROM citations WHERE memory = ?", row)
                    _insert_citations(database, row[0], cited)

    # -- reading

    def get(self, uid: int, id: str) -> MemoryRecord:  # noqa: A002
        """By its id or the beginning of it. Raises NotFound, or InvalidRequest where several begin so."""
        found = self.records("uid = ? AND substr(id, 1, ?) = ? LIMIT 2", uid, len(id), id.lower()) if id else []
        if len(found) == 1:
            return found[0]
        if found:
            raise InvalidRequest(f"several memories begin with {id!r}", "give more of its digits")
        known = [
            row[0] for row in self.read("SELECT id FROM memories WHERE uid = ? ORDER BY number DESC LIMIT 100", uid)
        ]
        hint = instead(id, known, "you have none; lore memory add TEXT makes one", "`lore memory list`")
        raise NotFound(f"no memory {id}", hint)

    def all_of(
        self,
        uid: int,
        *,
        kind: str | None = None,
        codex: str | _Any | None = ANY,
        states: Iterable[str] | None = None,
    ) -> list[MemoryRecord]:
        """The newest first; also those that no model is shown, unless `states` says which."""
        conditions, values = ["uid = ?"], list[object]([uid])
        if kind is not None:
            conditions, values = [*conditions, "kind = ?"], [*values, kind]
        if not isinstance(codex, _Any):
            conditions, values = [*conditions, "codex IS ?"], [*values, codex]
        if states is not None:
            listed = list(states)
            conditions = [*conditions, f"state IN ({marks(listed)})"]
            values = [*values, *listed]
        return self.records(f"{' AND '.join(conditions)} ORDER BY number DESC", *values)

    def alike(self, uid: int, kind: Kind, text: str, codex: str | None) -> list[MemoryRecord]:
        """Those with the same words, the newest first."""
        condition = "uid = ? AND kind = ? AND likeness = ? AND codex IS ? ORDER BY number DESC"
        return self.records(condition, uid, kind, likeness(text), codex)

    def review(self, uid: int) -> list[MemoryRecord]:
        """What a person should look at: proposals, what is suspect, procedures that do not work, outcomes that were told,
        and censors that may be promoted."""
        asked = "state IN (?, ?) OR suspect <> '' OR suggested IS NOT NULL OR kind = ? AND activations >= ?"
        found = self.records(
            f"uid = ? AND ({asked}) AND state <> ? ORDER BY number DESC",
            uid,
            *(MemoryState.PROPOSED, MemoryState.INEFFECTIVE, Kind.CENSOR, ESCALATED_FROM, MemoryState.INACTIVE),
        )
        return [one for one in found if asks_for_review(one)]

    def usage(self, uid: int, ids: Sequence[str], at: float | None = None) -> dict[str, MemoryUsage]:
        """Of those that were ever shown, by id, decayed to `at` (now)."""
        now = self._clock() if at is None else at
        rows = [
            row
            for some in batched(ids)
            for row in self.read(f"{_USAGE} WHERE {OF_USER} AND id IN ({marks(some)})", uid, *some)
        ]
        faded = {one: decay(now - then) for one, *_, then in rows}
        return {one: MemoryUsage(count, seen * faded[one], used * faded[one]) for one, count, seen, used, _ in rows}

    def turn_counts(self, uid: int) -> TurnCounts:
        """The sum of this user's turns of the last 30 days."""
        sums = ", ".join(f"coalesce(sum({name}), 0)" for name in _COUNTS)
        since = int(self._clock() // DAY_S) - DAYS
        query = f"SELECT {sums} FROM days WHERE uid = ? AND day > ?"  # noqa: S608 - our columns
        return TurnCounts(*self.read(query, uid, since)[0])

    def judged(self, uid: int) -> list[JudgedDecision]:
        """The user's decisions with an outcome, a pending one too."""
        query = "SELECT confidence, outcome FROM memories WHERE uid = ? AND kind = ? AND outcome IS NOT NULL"
        rows = self.read(query, uid, Kind.DECISION)
        return [JudgedDecision(confidence, DecisionOutcome(outcome)) for confidence, outcome in rows]

    def holds_any(self, uid: int) -> bool:
        """Whether this user has a memory, in whatever state."""
        with self._lock:
            if uid in self._without:
                return False
            held = bool(self.read("SELECT 1 FROM memories WHERE uid = ? LIMIT 1", uid))
            if not held:
                self._without.add(uid)
            return held

    def seen_without(self, uid: int) -> bool:
        """Whether it is known, without waiting, that this user has none."""
        return uid in self._without

    def read(self, query: str, *values: object) -> list[Any]:
        """Rows of a query that changes nothing; for searches."""
        with self._lock, translated(), faults_of(self.path):
            return self._connection.execute(query, values).fetchall()

    def records(self, condition: str, *values: object) -> list[MemoryRecord]:
        """Records under a condition of SQL over `memories` and what it joins."""
        rows = self.read(f"{_SELECT} WHERE {condition}", *values)
        ids = [row[0] for row in rows]
        cited = self._cited(ids)
        return [_of_row(row, cited.get(row[0], ())) for row in rows]

    def now(self) -> float:
        """By its clock, in seconds since the epoch."""
        return self._clock()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # -- within

    def _added(self, database: sqlite3.Connection, new: NewMemory) -> MemoryRecord:
        kind, now, like = self.kind(new.kind), self._clock(), likeness(new.text)
        created = now if new.created is None else new.created
        alike = self.records("uid = ? AND kind = ? AND likeness = ? AND codex IS ?", new.uid, new.kind, like, new.codex)
        outcome = settled(new, kind, created, _of_subject(new, alike), self._same_subject(new))
        if outcome.confirms is not None:
            after = _resized(replace(confirmed(outcome.confirms, kind), updated=now))
            return self._standing(database, outcome.confirms, after)
        if outcome.repeats is not None:
            return outcome.repeats
        record = _record(new, self._free_id(), outcome, created, now)
        self._insert(database, record, like)
        self._supersede(database, outcome.supersedes, record)
        return record

    def _number(self, uid: int) -> int:
        return int(self.read("SELECT count(*) FROM memories WHERE uid = ?", uid)[0][0])

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, undone when the block raises."""
        with self._lock, translated(), transaction(self._connection, self.path) as database:
            self._without.clear()
            yield database

    def _cited(self, ids: Sequence[str]) -> dict[str, tuple[CodeCitation, ...]]:
        found: dict[str, tuple[CodeCitation, ...]] = {}
        for some in batched(ids):
            columns = 'id, path, start, end, digest, "commit"'
            rows = self.read(
                f"SELECT {columns} FROM citations JOIN memories ON number = memory "  # noqa: S608 - question marks
                f'WHERE id IN ({marks(some)}) ORDER BY path, start, end, "commit"',
                *some,
            )
            for one, *values in rows:
                found[one] = (*found.get(one, ()), CodeCitation(*values))
        return found

    def _same_subject(self, new: NewMemory | MemoryRecord) -> list[MemoryRecord]:
        """Facts that stand about its subject and attribute, of its codex."""
        if new.kind is not Kind.FACT or not new.attribute or new.subject.startswith(LIST):
            return []
        # `attribute <> ''` is what the index has: SQLite takes it for nothing less.
        condition = "uid = ? AND kind = ? AND subject = ? AND attribute = ? AND attribute <> '' AND codex IS ?"
        about = (new.uid, new.kind, new.subject, new.attribute, new.codex)
        return self.records(f"{condition} AND {CURRENT}", *about)

    def _changed(self, uid: int, one: str, change: Callable[[MemoryRecord], MemoryRecord]) -> MemoryRecord:
        with self._writing() as database:
            before = self.get(uid, one)
            return self._standing(database, before, replace(change(before), updated=self._clock()))

    def _counted(self, uid: int, one: str, change: Callable[[MemoryRecord], MemoryRecord]) -> MemoryRecord:
        """A change that no prompt shows: the moment of the last change stays, and with it the blocks that hold it."""
        with self._writing() as database:
            return self._write(database, change(self.get(uid, one)))

    def _standing(self, database: sqlite3.Connection, before: MemoryRecord, after: MemoryRecord) -> MemoryRecord:
        """Writes it. A fact that was proposed or set aside and stands now replaces another value, as a stated one does."""
        if before.is_shown or not after.is_shown:
            return self._write(database, after)
        self._supersede(database, self._same_subject(after), after)
        return self._write(database, replace(after, successor=""))

    def _supersede(self, database: sqlite3.Connection, older: Iterable[MemoryRecord], by: MemoryRecord) -> None:
        for one in older:
            state = MemoryState.SUPERSEDED
            self._write(database, replace(one, state=state, successor=by.id, updated=by.updated))

    def _write(self, database: sqlite3.Connection, record: MemoryRecord) -> MemoryRecord:
        """What may change of a record; what it says does not."""
        fixed = ("id", "kind", "uid", "text", "subject", "attribute", "domain")
        names = [name for name in _COLUMNS if name not in fixed]
        values = [getattr(record, name) for name in names]
        settings = ", ".join(f'"{name}" = ?' for name in names)
        database.execute(f"UPDATE memories SET {settings} WHERE id = ?", (*values, record.id))  # noqa: S608 - our columns
        return record

    def _insert(self, database: sqlite3.Connection, record: MemoryRecord, like: str) -> None:
        values = [getattr(record, name) for name in _COLUMNS]
        statement = f"INSERT INTO memories ({_NAMES}, likeness) VALUES ({marks([*values, like])})"  # noqa: S608
        number = database.execute(statement, (*values, like)).lastrowid
        _insert_citations(database, number, record.evidence)

    def _free_id(self) -> str:
        for _ in range(_TRIES):
            tried = secrets.token_hex(5)
            if not self.read("SELECT 1 FROM memories WHERE id = ?", tried):
                return tried
        raise AssertionError("eight random ids in a row were taken")


def _insert_citations(database: sqlite3.Connection, number: int | None, cited: Iterable[CodeCitation]) -> None:
    rows = [(number, one.path, one.start, one.end, one.commit, one.digest) for one in cited]
    database.executemany("INSERT OR IGNORE INTO citations VALUES (?, ?, ?, ?, ?, ?)", rows)


def _of_subject(new: NewMemory, alike: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    """Those about the same: the same words about another subject are another fact."""
    return [one for one in alike if (one.subject, one.attribute) == (new.subject, new.attribute)]


def _record(new: NewMemory, id: str, outcome: Settled, created: float, now: float) -> MemoryRecord:  # noqa: A002
    given: dict[str, Any] = {name: value for name, value in vars(new).items() if name not in ("created", "state")}
    made = MemoryRecord(id=id, state=outcome.state, micro="", summary="", created=created, updated=now, **given)
    return _resized(replace(made, successor=outcome.successor))


def _resized(record: MemoryRecord) -> MemoryRecord:
    micro = micro_of(record.text, record.confidence, record.outcome, verbatim=record.verbatim)
    return replace(record, micro=micro, summary=summary_of(record.text, verbatim=record.verbatim))


def _weigh(database: sqlite3.Connection, number: int, used: bool, now: float) -> None:
    row = database.execute("SELECT showings, shown, referenced, at FROM usage WHERE memory = ?", (number,)).fetchone()
    showings, shown, referenced, at = row or (0, 0.0, 0.0, now)
    faded = decay(now - at)
    values = (number, showings + 1, shown * faded + 1.0, referenced * faded + used, now)
    database.execute("INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?)", values)
    database.execute(
        "UPDATE memories SET used = ?, activations = activations + ? WHERE number = ?", (now, used, number)
    )


def _count(database: sqlite3.Connection, uid: int, counts: TurnCounts, day: int) -> None:
    """Adds them to the day's; drops what no figure looks at any more."""
    database.execute(_COUNTED, (uid, day, *(getattr(counts, name) for name in _COUNTS)))
    database.execute("DELETE FROM days WHERE uid = ? AND day <= ?", (uid, day - DAYS))


def _of_row(row: Sequence[Any], evidence: tuple[CodeCitation, ...]) -> MemoryRecord:
    given = dict(zip(_COLUMNS, row, strict=True))
    typed = {
        "verbatim": bool(given["verbatim"]),
        "pinned": bool(given["pinned"]),
        "outcome": DecisionOutcome(given["outcome"]) if given["outcome"] else None,
        "watches": WatchedText(given["watches"]) if given["watches"] else None,
        "severity": Severity(given["severity"]) if given["severity"] else None,
        "suggested": DecisionOutcome(given["suggested"]) if given["suggested"] else None,
    }
    return MemoryRecord(**{**given, **typed, "evidence": evidence})
