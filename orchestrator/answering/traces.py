"""What the model saw and said in each turn, kept for a time: `lore trace`, `lore feedback`.

    TraceStore    the database: turns, and the texts of their prompts, each kept once however many turns have it
    TraceKeeper   its one thread: an answer hands its turn over and goes on; readers come after what was handed over

    traces ──▶ prompt: digests in order ──▶ texts (compressed; `uses`: traces that have it; deleted with the last of them)
       └─────▶ firings: the rules of relevance that held in the turn (`ledger` tells what becomes of them)

A trace can be lost without loss to an answer: where it cannot be written, the log says so and the answers go on.
"""

import asyncio
import json
import logging
import sqlite3
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from codex.catalog.databases import give_back, insist_on_room, open_database, transaction
from codex.catalog.databases import translated as faults_of
from codex.errors import DatabaseDamaged
from orchestrator.answering.ledger import (
    AGAIN_S,
    BY_QUESTION,
    Firing,
    firings_of,
    is_regretted,
    missed_from_json,
    missed_to_json,
)
from orchestrator.answering.report import relevance_report
from orchestrator.answering.sessions import title_of
from orchestrator.errors import InvalidRequest, LoreError, NotFound, translated
from orchestrator.karma.recall import ShownEntry
from orchestrator.prompt.composing import Composed
from orchestrator.prompt.recorded import PromptDifference, RecordedItem, chunks_of, difference_of, items_of
from orchestrator.relevance.gate import Relevance
from orchestrator.relevance.ledger import RuleFigures
from orchestrator.wire.answers import Lore
from orchestrator.wire.traces import (
    RuleFiring,
    TraceBreak,
    TracedBlock,
    TraceDiff,
    TracedItem,
    TracedRelevance,
    TraceReport,
    TraceRow,
)

log = logging.getLogger("lorekeep")
T = TypeVar("T")

APPLICATION = 0x4C4F5254  # "LORT", in the file's header
DIGEST = 32  # bytes
DAY = 86_400.0
SWEPT = 0.05  # of the bytes that may be kept, when there are too many: sweeping is rare then
LAST = "last"
SCHEMA = (
    """
    CREATE TABLE traces (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        uid INTEGER NOT NULL,
        codex TEXT,
        session TEXT,
        title TEXT NOT NULL,
        created REAL NOT NULL,
        vote TEXT,
        note TEXT NOT NULL DEFAULT '',
        size INTEGER NOT NULL,
        said BLOB NOT NULL,
        prompt BLOB NOT NULL,
        tokens INTEGER NOT NULL,
        cached INTEGER NOT NULL,
        strategy TEXT NOT NULL
    );
    CREATE INDEX traces_by_user ON traces (uid, number);
    CREATE INDEX traces_by_age ON traces (created);
    CREATE TABLE texts (
        digest BLOB NOT NULL PRIMARY KEY,
        uses INTEGER NOT NULL,
        size INTEGER NOT NULL,
        body BLOB NOT NULL
    );
    CREATE TABLE held (bytes INTEGER NOT NULL);
    INSERT INTO held VALUES (0);
    CREATE TABLE firings (
        trace INTEGER NOT NULL REFERENCES traces (number) ON DELETE CASCADE,
        node TEXT NOT NULL,
        rule TEXT NOT NULL,
        strength TEXT NOT NULL,
        variant TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        recovered INTEGER NOT NULL,
        regretted TEXT NOT NULL,
        missed TEXT NOT NULL,
        PRIMARY KEY (trace, node)
    ) WITHOUT ROWID;
    CREATE INDEX traces_by_session ON traces (uid, session, number);
    """,
)
FIGURES = """
SELECT variant, rule, node, strength, count(*), sum(recovered), sum(firings.tokens * (1 - recovered)), sum(regretted <> '')
FROM firings JOIN traces ON traces.number = trace WHERE uid = ?
GROUP BY variant, rule, node, strength ORDER BY variant, count(*) DESC, rule, node
"""
ROW = "id, created, codex, session, title, vote, tokens, cached, strategy"
MOST_NUMBER = 2**63 - 1  # above any row's


@dataclass(frozen=True)
class TracedTurn:
    """An answered question. `composed`: the last prompt of the turn; `memories`: ids of those in it; `said`: all that the
    model said in it, its calls of tools too."""

    id: str
    uid: int
    question: str
    answer: str
    finish_reason: str
    codex: str | None
    memories: tuple[str, ...]
    composed: Composed
    lore: Lore
    relevance: Relevance
    said: str = ""


class TraceStore:
    """One user never sees another's: whoever reads says whose. Every method raises LoreError for a file that cannot be
    read or written. For one thread."""

    def __init__(
        self,
        path: Path,
        days: float,
        most: int,
        clock: Callable[[], float] = time.time,
        aging: Callable[[], float] | None = None,
        key: bytes = b"",
    ) -> None:
        """Keeps traces for so many days, by the clock `aging` (`clock` where there is none), and at most so many bytes. A
        damaged file is put aside. Raises LoreError for a newer or foreign one. `key`: see `open_database`."""
        self.path, self.days, self.most = path, days, most
        self.clock, self.aging, self._key = clock, aging or clock, key
        with translated():
            try:
                self.connection = self._opened()
            except DatabaseDamaged:
                aside = _put_aside(path)
                log.warning("%s is damaged and now lies at %s; traces begin anew", path, aside)
                self.connection = self._opened()

    # -- writing

    def keep(self, turn: TracedTurn, kept_out: Sequence[ShownEntry] = ()) -> None:
        """Adds a turn; then drops what is too old or too much. `kept_out`: memories that rules of relevance did."""
        firings = firings_of(turn.relevance.fired, kept_out, turn.said or turn.answer)
        missed = [missed_to_json(one.missed) for one in firings]
        ordered = list(chunks_of(turn.composed))
        chunks = {chunk.digest: chunk for chunk in ordered}
        new = {digest: zlib.compress(chunk.body) for digest, chunk in chunks.items() if not self._has(digest)}
        said = zlib.compress(_said(turn))
        size = len(said) + DIGEST * len(ordered) + sum(map(len, missed))
        added = size + sum(map(len, new.values()))
        with translated():
            insist_on_room(self.path, added)
        with self._writing() as database:
            database.executemany(
                "UPDATE texts SET uses = uses + 1 WHERE digest = ?", [(one,) for one in chunks if one not in new]
            )
            database.executemany(
                "INSERT INTO texts VALUES (?, 1, ?, ?)", [(digest, len(body), body) for digest, body in new.items()]
            )
            asked_again(database, turn, self.clock() - AGAIN_S)
            number = database.execute(
                "INSERT INTO traces (id, uid, codex, session, title, created, size, said, prompt, tokens, cached, strategy)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(turn.id, turn.uid, turn.codex, turn.lore.session, title_of(turn.question), self.clock()),
                    *(size, said, b"".join(chunk.digest for chunk in ordered)),
                    *(turn.lore.prompt.tokens, turn.lore.prompt.cached, turn.lore.strategy.name),
                ),
            ).lastrowid
            database.executemany(
                "INSERT INTO firings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [_firing_row(number, turn, *pair) for pair in zip(firings, missed, strict=True)],
            )
            database.execute("UPDATE held SET bytes = bytes + ?", (added,))
        self.prune()

    def kept(self, uid: int) -> tuple[int, int]:
        """How many traces this user has, and their bytes with the texts that nobody else's have."""
        rows = self._read("SELECT size, prompt FROM traces WHERE uid = ?", uid)
        uses = Counter(one for _, digests in rows for one in set(_cut(digests)))
        texts = self._read("SELECT digest, uses, size FROM texts")
        own = sum(size for digest, count, size in texts if uses[digest] == count)
        return len(rows), own + sum(size for size, _ in rows)

    def purge(self, uid: int) -> None:
        """Deletes all of this user's for good."""
        for (number,) in self._read("SELECT number FROM traces WHERE uid = ?", uid):
            self._drop(number)
        give_back(self.connection)

    def vote(self, uid: int, name: str, vote: str, note: str) -> tuple[str | None, TraceReport]:
        """Keeps a user's word on an answer. Gives the vote that it replaces, and the trace. Raises NotFound."""
        number, _ = self._found(uid, name)
        (before,) = self._read("SELECT vote FROM traces WHERE number = ?", number)[0]
        with self._writing() as database:
            database.execute("UPDATE traces SET vote = ?, note = ? WHERE number = ?", (vote, note, number))
        return before, self.get(uid, name)

    def prune(self) -> None:
        """Drops what is older than may be; then, of too many bytes, the oldest, those with an up vote last."""
        old = self._read("SELECT number FROM traces WHERE created < ?", self.aging() - self.days * DAY)
        too_many = self.held > self.most
        for (number,) in old:
            self._drop(number)
        if too_many:
            for (number,) in self._read("SELECT number FROM traces ORDER BY vote IS 'up', number"):
                if self.held <= self.most * (1 - SWEPT):
                    break
                self._drop(number)
        if old or too_many:
            give_back(self.connection)

    # -- reading

    @property
    def held(self) -> int:
        """Bytes of all traces with their texts, compressed."""
        return int(self._read("SELECT bytes FROM held")[0][0])

    def all_of(self, uid: int, most: int, before: str | None = None) -> list[TraceRow]:
        """This user's, the newest first; those older than the trace `before`. Raises NotFound for an unknown one."""
        end = MOST_NUMBER if before is None else self._found(uid, before)[0]
        query = f"SELECT {ROW} FROM traces WHERE uid = ? AND number < ? ORDER BY number DESC LIMIT ?"  # noqa: S608 - ours
        return [_row(*values) for values in self._read(query, uid, end, most)]

    def get(self, uid: int, name: str, *, prompt: bool = False) -> TraceReport:
        """By its id, the beginning of it, or `last`. Raises NotFound."""
        number, _ = self._found(uid, name)
        query = f"SELECT {ROW}, note, said, prompt FROM traces WHERE number = ?"  # noqa: S608 - our own columns
        *values, note, said, digests = self._read(query, number)[0]
        items = self._items(digests)
        told = json.loads(zlib.decompress(said))
        return TraceReport(
            **dict(_row(*values)),
            **{**told, "relevance": self._relevance(number, told["relevance"])},
            note=note,
            prompt_bytes=sum(len(one.text.encode("utf-8", "surrogatepass")) for one in items),
            prompt=tuple(map(TracedItem.of, items)) if prompt else (),
        )

    def difference(self, uid: int, before: str, after: str) -> TraceDiff:
        """How the second one's prompt differs. Raises NotFound."""
        (first, old), (second, new) = self._found(uid, before), self._found(uid, after)
        found = difference_of(*(self._items(self._digests(number)) for number in (first, second)))
        return TraceDiff(before=old, after=new, broke_at=_break(found), blocks=tuple(map(TracedBlock.of, found.blocks)))

    def relevance_figures(self, uid: int) -> list[RuleFigures]:
        """What the rules of relevance did in this user's turns that are kept, by variant, the most fired first."""
        return [RuleFigures(*row) for row in self._read(FIGURES, uid)]

    def close(self) -> None:
        self.connection.close()

    # -- below

    def _relevance(self, number: int, decided: dict[str, Any]) -> TracedRelevance:
        names = ("node", "rule", "strength", "tokens", "recovered", "regretted")
        query = f"SELECT missed, {', '.join(names)} FROM firings WHERE trace = ? ORDER BY node"  # noqa: S608 - our own
        rows = self._read(query, number)
        fired = [
            RuleFiring(missed=tuple(missed_from_json(missed)), **dict(zip(names, values, strict=True)))
            for missed, *values in rows
        ]
        return TracedRelevance(**decided, fired=tuple(fired))

    def _opened(self) -> sqlite3.Connection:
        return open_database(self.path, SCHEMA, application=APPLICATION, key=self._key)

    def _found(self, uid: int, name: str) -> tuple[int, str]:
        """The number and the id. Raises NotFound, and InvalidRequest for the beginning of several."""
        if name == LAST:
            found = self._read("SELECT number, id FROM traces WHERE uid = ? ORDER BY number DESC LIMIT 1", uid)
        else:
            query = "SELECT number, id FROM traces WHERE uid = ? AND substr(id, 1, ?) = ? LIMIT 2"
            found = self._read(query, uid, len(name), name) if name else []
        if not found:
            raise NotFound(f"no trace {name}", "`lore trace list` shows yours; a private question leaves none")
        if len(found) > 1:
            raise InvalidRequest(f"several traces begin with {name}", "give more of its id: `lore trace list`")
        number, whole = found[0]
        return int(number), str(whole)

    def _has(self, digest: bytes) -> bool:
        return bool(self._read("SELECT 1 FROM texts WHERE digest = ?", digest))

    def _digests(self, number: int) -> bytes:
        return bytes(self._read("SELECT prompt FROM traces WHERE number = ?", number)[0][0])

    def _items(self, digests: bytes) -> list[RecordedItem]:
        bodies = {
            one: zlib.decompress(self._read("SELECT body FROM texts WHERE digest = ?", one)[0][0])
            for one in set(_cut(digests))
        }
        return [item for one in _cut(digests) for item in items_of(bodies[one])]

    def _drop(self, number: int) -> None:
        """With the texts that no other trace has."""
        mine = [(one,) for one in set(_cut(self._digests(number)))]
        with self._writing() as database:
            (freed,) = database.execute("SELECT size FROM traces WHERE number = ?", (number,)).fetchone()
            database.execute("DELETE FROM traces WHERE number = ?", (number,))
            database.executemany("UPDATE texts SET uses = uses - 1 WHERE digest = ?", mine)
            for one in mine:
                gone = "DELETE FROM texts WHERE digest = ? AND uses = 0 RETURNING size"
                freed += sum(size for (size,) in database.execute(gone, one).fetchall())
            database.execute("UPDATE held SET bytes = bytes - ?", (freed,))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with translated(), transaction(self.connection, self.path) as database:
            yield database

    def _read(self, query: str, *values: object) -> list[Any]:
        with translated(), faults_of(self.path):
            return self.connection.execute(query, values).fetchall()


class TraceKeeper:
    """Runs a store in a thread of its own, in the order of the calls."""

    def __init__(self, store: TraceStore) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, "traces")
        self._lost = False

    def later(self, turn: TracedTurn, kept_out: Callable[[], Sequence[ShownEntry]] = tuple) -> None:
        """Keeps it when the thread comes to it; never raises and never waits. `kept_out` looks up what rules of relevance
        did, in that thread."""
        self._thread.submit(self._keep, turn, kept_out)

    async def run(self, work: Callable[[TraceStore], T]) -> T:
        """The result of some work on the store, behind all that was handed over. Raises what the work raises."""
        return await asyncio.wrap_future(self._thread.submit(work, self._store))

    def close(self) -> None:
        """What was handed over is kept first."""
        self._thread.shutdown()
        self._store.close()

    def _keep(self, turn: TracedTurn, kept_out: Callable[[], Sequence[ShownEntry]]) -> None:
        try:
            self._store.keep(turn, _looked_up(kept_out))
            self._lost = False
        except LoreError as fault:
            if not self._lost:
                log.warning("traces of answers are not kept: %s; %s", fault.message, fault.hint)
            self._lost = True  # a full disk would be said with every answer


def _looked_up(kept_out: Callable[[], Sequence[ShownEntry]]) -> Sequence[ShownEntry]:
    """A trace is kept also where the memories cannot be read."""
    try:
        return kept_out()
    except LoreError as fault:
        log.warning("what the rules of relevance kept out is not known: %s", fault.message)
        return ()


def _said(turn: TracedTurn) -> bytes:
    words = {"question": turn.question, "answer": turn.answer, "finish_reason": turn.finish_reason}
    relevant = relevance_report(turn.relevance).model_dump(mode="json")
    whole = {**words, "memories": turn.memories, "lore": turn.lore.model_dump(mode="json"), "relevance": relevant}
    return json.dumps(whole).encode()


def _firing_row(number: int | None, turn: TracedTurn, one: Firing, missed: str) -> tuple[object, ...]:
    fired = one.fired
    decided = (number, fired.node, fired.rule, fired.strength, turn.relevance.variant)
    return (*decided, one.tokens, fired.recovered, one.regretted, missed)


def asked_again(database: sqlite3.Connection, turn: TracedTurn, since: float) -> None:
    """Notes where this question uses what the turn before it in its conversation, not older than `since`, kept out."""
    if turn.lore.session is None:
        return
    before = "SELECT max(number) FROM traces WHERE uid = ? AND session = ? AND created > ?"
    (last,) = database.execute(before, (turn.uid, turn.lore.session, since)).fetchone()
    missed = "SELECT node, missed FROM firings WHERE trace = ? AND regretted = '' AND missed <> ''"
    for node, text in database.execute(missed, (last,)).fetchall():
        if is_regretted(missed_from_json(text), turn.question):
            note = "UPDATE firings SET regretted = ? WHERE trace = ? AND node = ?"
            database.execute(note, (BY_QUESTION, last, node))


def _cut(digests: bytes) -> Sequence[bytes]:
    return [digests[start : start + DIGEST] for start in range(0, len(digests), DIGEST)]


def _row(*values: Any) -> TraceRow:
    return TraceRow(**dict(zip(ROW.split(", "), values, strict=True)))


def _break(found: PromptDifference) -> TraceBreak | None:
    item = found.item
    return None if item is None else TraceBreak(block=item.block, item=item.name, characters=found.at)


def _put_aside(path: Path) -> Path:
    """Where the damaged file lies from now on; one that lay there before is replaced."""
    aside = path.with_name(f"{path.name}.damaged")
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    return path.replace(aside)
