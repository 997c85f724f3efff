"""A user's memories as the routes meet them: shapes of the wire in and out, the store behind. Runs in worker threads."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.errors import InvalidRequest
from orchestrator.karma.changes import IMPORT
from orchestrator.karma.figures import DAYS, Growth, JudgedDecision, figures_of
from orchestrator.karma.learning import HeardTurn, Learn, learned
from orchestrator.karma.records import (
    HIDDEN,
    CodeCitation,
    DecisionOutcome,
    Kind,
    MemoryRecord,
    MemoryState,
    NewMemory,
)
from orchestrator.karma.search import FLOOR, MemorySearch
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import ANY, DAY_S, MemoryStore, marks
from orchestrator.wire.answers import NotedMemory
from orchestrator.wire.memories import (
    CitedCode,
    FoundMemories,
    FoundMemoryRow,
    MemoryBody,
    MemoryChange,
    MemoryFigure,
    MemoryStats,
    MemoryView,
)

SELF = "user"  # the subject of what is known of whoever asks
MOST_CITED = 64  # places of one memory
NOT_STANDING = sorted({*HIDDEN, MemoryState.SUPERSEDED})


@dataclass(frozen=True)
class Memories:
    """Every method raises LoreError, and touches memories of `uid` alone."""

    store: MemoryStore
    staleness: Staleness
    clock: Callable[[], float] = time.time
    learn: Learn = "on"

    def add(self, uid: int, sigil: str, codex: str | None, body: MemoryBody) -> MemoryView:
        """`codex`: the one that the body means, found by its name or the working directory."""
        if len(body.evidence) > MOST_CITED:
            raise InvalidRequest(f"a memory cites {MOST_CITED} places at most", "cite the files that matter")
        kind = Kind(body.kind)
        new = NewMemory(
            uid=uid,
            kind=kind,
            text=body.text,
            codex=codex,
            subject=body.subject,
            attribute=body.attribute,
            verbatim=body.verbatim,
            created=body.created,
            evidence=self.staleness.cited(codex, [CodeCitation(**dict(one)) for one in body.evidence]),
            source=IMPORT if body.imported else "user",
            sigil=sigil,
            confidence=body.confidence,
            domain=body.domain,
            outcome=_outcome(body.outcome) if kind is Kind.DECISION else None,
            pinned=body.pinned,
            state=MemoryState.PROPOSED
            if body.proposed
            else _state(body.state)
            if body.state and body.imported
            else None,
        )
        return view_of(self.store.add(new))

    def note(self, turn: HeardTurn) -> tuple[NotedMemory, ...]:
        """Keeps what a turn tells. Gives what is new or confirmed by it."""
        kept = [(new, self.store.add(new)) for new in learned(turn, self.learn)]
        told = [one for new, one in kept if one.source == new.source or (one.kind is Kind.FACT and one.is_shown)]
        return tuple(NotedMemory.of(one, made=one.source == turn.source) for one in told)

    def get(self, uid: int, id: str) -> MemoryView:  # noqa: A002 - the record's own word
        return view_of(self.store.get(uid, id))

    def all_of(
        self, uid: int, kind: str | None = None, codex: str | None = None, state: str | None = None
    ) -> tuple[MemoryView, ...]:
        """The newest first. `codex`: `none` for those of no codex."""
        of_codex = ANY if codex is None else None if codex == "none" else codex
        states = None if state is None else [_state(state)]
        records = self.store.all_of(uid, kind=None if kind is None else _kind(kind), codex=of_codex, states=states)
        return tuple(map(view_of, records))

    def review(self, uid: int) -> tuple[MemoryView, ...]:
        """What a person should look at. The code that memories are about is looked at first."""
        citing = self.store.records("uid = ? AND suspect = '' AND number IN (SELECT memory FROM citations)", uid)
        for codex in {one.codex for one in citing if one.codex is not None}:
            self.staleness.check(codex, citing)
        return tuple(map(view_of, self.store.review(uid)))

    def change(self, uid: int, id: str, body: MemoryChange) -> MemoryView:  # noqa: A002
        return view_of(self._changed(uid, id, body))

    def _changed(self, uid: int, id: str, body: MemoryChange) -> MemoryRecord:  # noqa: A002
        match body.do:
            case "confirm":
                self.staleness.accept(self.store.get(uid, id))
                return self.store.confirm(uid, id)
            case "retire":
                return self.store.retire(uid, id)
            case "consecrate":
                return self.store.consecrate(uid, id)
            case "outcome":
                outcome = _outcome(body.outcome)
                if outcome is None:
                    raise InvalidRequest("which outcome is not said", "pending, success, partial or failure")
                return self.store.set_outcome(uid, id, outcome)
            case _:
                return self.store.rate(uid, id, up=body.do == "up")

    def forget(self, uid: int, id: str) -> str:  # noqa: A002
        """Deletes it, and gives its whole id."""
        return self.store.forget(uid, id).id

    def figures(self, uid: int) -> MemoryStats:
        """How well they work, of the last 30 days."""
        now = self.clock()
        stand = f"uid = ? AND kind = ? AND state NOT IN ({marks(NOT_STANDING)})"
        query = f"SELECT count(*), coalesce(sum(confirmations > 1), 0) FROM memories WHERE {stand}"  # noqa: S608
        facts, confirmed = self.store.read(query, uid, Kind.FACT, *NOT_STANDING)[0]
        judged = "SELECT confidence, outcome FROM memories WHERE uid = ? AND kind = ? AND outcome IS NOT NULL"
        rows = self.store.read(judged, uid, Kind.DECISION)
        decisions = [JudgedDecision(confidence, DecisionOutcome(outcome)) for confidence, outcome in rows]
        found = figures_of(self.store.turn_counts(uid), facts, confirmed, self._growth(uid, now), decisions)
        return MemoryStats(days=DAYS, figures=tuple(MemoryFigure.of(one, value=_rounded(one.value)) for one in found))

    def _growth(self, uid: int, now: float) -> Growth:
        """Days count from the oldest memory, at least one."""
        recent = "SELECT count(*) FROM memories WHERE uid = ? AND created > ?"
        came = self.store.read(recent, uid, now - DAYS * DAY_S)[0][0]
        oldest = self.store.read("SELECT min(created) FROM memories WHERE uid = ?", uid)[0][0]
        return Growth(came, 0.0 if oldest is None else min(float(DAYS), max(1.0, (now - oldest) / DAY_S)))

    def search(self, uid: int, codex: str | None, query: str, kind: str | None, n: int) -> FoundMemories:
        kinds = [_kind(kind)] if kind is not None else list(Kind)
        found = MemorySearch(self.store).find(uid, codex, query, dict.fromkeys(kinds, n))[:n]
        rows = tuple(
            FoundMemoryRow.of(one.record, kind=one.record.kind.value, score=round(one.similarity, 4)) for one in found
        )
        return FoundMemories(memories=rows, enough=any(one.similarity >= FLOOR for one in found))


def view_of(record: MemoryRecord) -> MemoryView:
    evidence = tuple(CitedCode.of(one) for one in record.evidence)
    outcome = record.outcome.value if record.outcome is not None else None
    return MemoryView.of(record, kind=record.kind.value, state=record.state.value, outcome=outcome, evidence=evidence)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _outcome(name: str | None) -> DecisionOutcome | None:
    return None if name is None else DecisionOutcome(name)


def _kind(name: str) -> Kind:
    """Raises InvalidRequest with the kinds that there are."""
    if name not in list(Kind):
        raise InvalidRequest(f"there is no kind {name!r} of memories", f"there are: {', '.join(Kind)}")
    return Kind(name)


def _state(name: str) -> MemoryState:
    """Raises InvalidRequest with the states that there are."""
    if name not in list(MemoryState):
        raise InvalidRequest(f"there is no state {name!r} of memories", f"there are: {', '.join(MemoryState)}")
    return MemoryState(name)
