"""A user's memories as the routes meet them: shapes of the wire in and out, the store behind. Runs in worker threads."""

import time
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from dataclasses import dataclass

from orchestrator.errors import InvalidRequest, NotFound, instead
from orchestrator.karma.censors import Triggered, trigger_of, triggered_by
from orchestrator.karma.changes import AGENT, IMPORT, refuse
from orchestrator.karma.figures import DAYS, Growth, figures_of
from orchestrator.karma.learning import (
    HeardTurn,
    Learn,
    VotedAnswer,
    counter_memory,
    last_decision,
    learned,
    outcome_told,
    verified_memory,
)
from orchestrator.karma.meaning import WORDS_ALONE, Nearness
from orchestrator.karma.ranking import referenced
from orchestrator.karma.records import (
    DAY_S,
    CodeCitation,
    DecisionOutcome,
    Kind,
    MemoryRecord,
    MemoryState,
    NewMemory,
    Severity,
    WatchedText,
)
from orchestrator.karma.schema import CITING, CURRENT, OF_USER, SHOWN, VISIBLE
from orchestrator.karma.search import FLOOR, MemorySearch
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import ANY, MemoryStore, marks
from orchestrator.wire.answers import CensorMark, NotedMemory
from orchestrator.wire.memories import (
    CitedCode,
    FoundMemories,
    FoundMemoryRow,
    MemoriesImported,
    MemoryBody,
    MemoryChange,
    MemoryFigure,
    MemoryStats,
    MemoryView,
)

MOST_CITED = 64  # places of one memory


@dataclass(frozen=True)
class Memories:
    """Every method raises LoreError, and touches memories of `uid` alone."""

    store: MemoryStore
    staleness: Staleness
    clock: Callable[[], float] = time.time
    learn: Learn = "on"
    meaning: Nearness = WORDS_ALONE

    def add(self, uid: int, sigil: str, codex: str | None, body: MemoryBody) -> MemoryView:
        """`codex`: the one that the body means, found by its name or the working directory."""
        return self._view(self.store.add(self._new(uid, sigil, codex, body)))

    def add_all(self, uid: int, sigil: str, bodies: Sequence[MemoryBody]) -> MemoriesImported:
        """What an export holds, all or nothing: a fault is told with the place of its memory, from 0."""
        new = [self._imported(uid, sigil, place, body) for place, body in enumerate(bodies)]
        # a superseded fact finds its successor only where that one stands
        new.sort(key=lambda one: one.state == MemoryState.SUPERSEDED)
        imported = self.store.add_all(uid, new)
        return MemoriesImported(imported=imported, known=len(new) - imported)

    def _imported(self, uid: int, sigil: str, place: int, body: MemoryBody) -> NewMemory:
        try:
            codex = None if body.codex == "none" else body.codex
            new = self._new(uid, sigil, codex, body.model_copy(update={"imported": True}))
            refuse(new, self.store.kind(new.kind))
        except InvalidRequest as error:
            raise InvalidRequest(f"memories.{place}: {error.message}", error.hint) from None
        return new

    def _new(self, uid: int, sigil: str, codex: str | None, body: MemoryBody) -> NewMemory:
        if len(body.evidence) > MOST_CITED:
            raise InvalidRequest(f"a memory cites {MOST_CITED} places at most", "cite the files that matter")
        if body.evidence and codex is None and not body.imported:
            raise InvalidRequest(
                "a memory of no codex cites no code: nothing would follow it",
                "name its codex with -c, or be in a folder of it",
            )
        kind = self._kind(body.kind)
        censor = kind == Kind.CENSOR
        _refuse_foreign(kind, body)
        cited = [CodeCitation(**dict(one)) for one in body.evidence]
        return NewMemory(
            uid=uid,
            kind=kind,
            text=body.text,
            codex=codex,
            subject=body.subject,
            attribute=body.attribute,
            verbatim=body.verbatim,
            created=body.created,
            evidence=tuple(cited) if body.imported else self.staleness.cited(codex, cited),
            source=IMPORT if body.imported else AGENT if body.proposed else "user",
            sigil=sigil,
            confidence=body.confidence,
            domain=body.domain,
            outcome=_outcome(body.outcome) if kind == Kind.DECISION else None,
            pinned=body.pinned,
            trigger=(body.trigger or trigger_of(body.text)) if censor else "",
            watches=WatchedText(body.watches or WatchedText.ANSWER) if censor else None,
            severity=Severity(body.severity if body.severity and body.imported else Severity.WARN) if censor else None,
            state=MemoryState.PROPOSED
            if body.proposed
            else self._state(body.state)
            if body.state and body.imported
            else None,
        )

    def note(self, turn: HeardTurn) -> tuple[NotedMemory, ...]:
        """Keeps what a turn tells. Gives what is new or confirmed by it."""
        began = self.store.now()
        kept = [(new, self.store.add(new)) for new in learned(turn, self.learn)]
        told = [one for new, one in kept if one.source == new.source or one.updated >= began]
        decided = self._outcome_of(turn)
        return tuple(noted_of(one, turn.source) for one in (*told, *decided))

    def _outcome_of(self, turn: HeardTurn) -> list[MemoryRecord]:
        """Where a turn tells how it came out: procedures that the answer before used are judged, and the last decision of
        the conversation has an outcome that a person may confirm."""
        told = outcome_told(turn.text) if self.learn != "off" else None
        if told is None:
            return []
        for one, shown in turn.procedures.items():
            if told is not DecisionOutcome.PARTIAL and referenced(shown, turn.before):
                with suppress(NotFound):  # it was forgotten meanwhile
                    self.store.judge(turn.uid, one, right=told is DecisionOutcome.SUCCESS)
        said = last_decision(turn.earlier)
        found = self.store.alike(turn.uid, Kind.DECISION, said.text, turn.codex) if said is not None else []
        open_ones = [one for one in found if one.state in (MemoryState.RECORDED, MemoryState.PENDING)]
        return [self.store.suggest(turn.uid, one.id, told) for one in open_ones[:1]]

    def voted(self, voted: VotedAnswer) -> NotedMemory | None:
        """A person said whether an answer was right. What it was shown gains or loses trust, procedures that it used are
        judged, and why it was wrong, or a short answer that was right, is proposed as a memory, which is given. The
        other vote sets the proposal aside. It says nothing of censors, which stand in every prompt."""
        for one in voted.memories if voted.moved else ():
            with suppress(NotFound):
                record = self.store.get(voted.uid, one)
                if record.kind is not Kind.CENSOR:
                    self.store.rate(voted.uid, one, up=voted.up)
                if record.kind is Kind.PROCEDURE and referenced(record.text, voted.answer):
                    self.store.judge(voted.uid, one, right=voted.up)
        about = "uid = ? AND subject = ? AND attribute = ? AND state = 'proposed'"
        for each in self.store.records(about, voted.uid, voted.source, "wrong" if voted.up else "right"):
            self.store.change(voted.uid, each.id, MemoryState.INACTIVE)
        made = self._made_of(voted) if voted.may_write else None
        return None if made is None else noted_of(self.store.add(made), voted.source)

    def _made_of(self, voted: VotedAnswer) -> NewMemory | None:
        """An answer that only says what a memory in its prompt says makes none."""
        if not voted.up:
            return counter_memory(voted) if voted.note else None
        if self.learn == "off" or not voted.moved:
            return None
        shown = self.store.records(f"{OF_USER} AND id IN ({marks(voted.memories)})", voted.uid, *voted.memories)
        return None if any(referenced(one.text, voted.answer) for one in shown) else verified_memory(voted)

    def watch(
        self,
        uid: int,
        codex: str | None,
        question: str,
        answer: str,
        shown: Container[str] = (),
        calls: Sequence[str] = (),
        *,
        counted: bool = True,
    ) -> tuple[CensorMark, ...]:
        """The censors of this user and codex that a turn goes against; of those that hold in a domain alone, the `shown`
        ones, by id. `calls` of tools belong to the answer. `counted`: it is kept that they were triggered."""
        about = f"{VISIBLE} AND {SHOWN} AND kind = ? AND trigger <> '' ORDER BY number"
        censors = self.store.records(about, uid, codex, Kind.CENSOR)
        found = triggered_by([one for one in censors if not one.domain or one.id in shown], question, answer, calls)
        for one in found if counted else ():
            self.store.trigger(uid, one.record.id)
        return tuple(mark_of(one) for one in found)

    def may_block(self, uid: int, codex: str | None) -> bool:
        """Whether one of these censors refuses what goes against it."""
        about = f"{VISIBLE} AND {SHOWN} AND kind = ? AND trigger <> '' AND severity = ?"
        return bool(self.store.records(about, uid, codex, Kind.CENSOR, Severity.BLOCK))

    def get(self, uid: int, id: str) -> MemoryView:  # noqa: A002 - the record's own word
        return self._view(self.store.get(uid, id))

    def all_of(
        self, uid: int, kind: str | None = None, codex: str | None = None, state: str | None = None
    ) -> tuple[MemoryView, ...]:
        """The newest first. `codex`: `none` for those of no codex."""
        of_codex = ANY if codex is None else None if codex == "none" else codex
        states = None if state is None else [self._state(state)]
        records = self.store.all_of(uid, kind=None if kind is None else self._kind(kind), codex=of_codex, states=states)
        return self._views(uid, records)

    def review(self, uid: int) -> tuple[MemoryView, ...]:
        """What a person should look at. The code that memories are about is looked at first."""
        citing = self.store.records(f"uid = ? AND {CITING}", uid)
        for codex in {one.codex for one in citing if one.codex is not None}:
            self.staleness.check(codex, citing)
        return self._views(uid, self.store.review(uid))

    def change(self, uid: int, id: str, body: MemoryChange) -> MemoryView:  # noqa: A002
        return self._view(self._changed(uid, id, body))

    def _view(self, record: MemoryRecord) -> MemoryView:
        return self._views(record.uid, [record])[0]

    def _views(self, uid: int, records: Sequence[MemoryRecord]) -> tuple[MemoryView, ...]:
        usage = self.store.usage(uid, [one.id for one in records])
        return tuple(view_of(one, usage[one.id].showings if one.id in usage else 0) for one in records)

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
            case "become":
                return self._become(uid, id, body.state)
            case _:
                self.store.rate(uid, id, up=body.do == "up")
                return self.store.judge(uid, id, right=body.do == "up")

    def _become(self, uid: int, id: str, state: str | None) -> MemoryRecord:  # noqa: A002
        if state is None:
            raise InvalidRequest("which state is not said", "lore memory show tells the one that it is in")
        if state == MemoryState.SUPERSEDED:
            raise InvalidRequest("a memory is superseded by another one", "add what is true now")
        return self.store.change(uid, id, self._state(state))

    def _kind(self, name: str) -> str:
        """Raises InvalidRequest with the kinds that there are."""
        if name not in self.store.kinds:
            hint = instead(name, list(self.store.kinds), "", "lore memory add --help")
            raise InvalidRequest(f"there is no kind {name!r} of memories", hint)
        return name

    def _state(self, name: str) -> str:
        """Raises InvalidRequest with the nearest that there are."""
        known = dict.fromkeys(state for kind in self.store.kinds.values() for state in kind.states)
        if name not in known:
            raise InvalidRequest(f"there is no state {name!r} of memories", f"there are: {', '.join(known)}")
        return name

    def forget(self, uid: int, id: str) -> str:  # noqa: A002
        """Deletes it, and gives its whole id."""
        return self.store.forget(uid, id).id

    def forget_codex(self, uid: int, codex: str) -> int:
        """Deletes those of a codex, and gives their number."""
        return self.store.forget_codex(uid, codex)

    def figures(self, uid: int) -> MemoryStats:
        """How well they work, of the last 30 days."""
        now = self.clock()
        told = "SELECT count(*), coalesce(sum(confirmations > 1), 0) FROM memories WHERE"
        facts, confirmed = self.store.read(f"{told} uid = ? AND kind = ? AND {CURRENT}", uid, Kind.FACT)[0]
        judged = self.store.judged(uid)
        found = figures_of(self.store.turn_counts(uid), facts, confirmed, self._growth(uid, now), judged)
        return MemoryStats(days=DAYS, figures=tuple(MemoryFigure.of(one, value=_rounded(one.value)) for one in found))

    def _growth(self, uid: int, now: float) -> Growth:
        """Days count from the oldest memory, at least one."""
        recent = "SELECT count(*) FROM memories WHERE uid = ? AND created > ?"
        came = self.store.read(recent, uid, now - DAYS * DAY_S)[0][0]
        oldest = self.store.read("SELECT min(created) FROM memories WHERE uid = ?", uid)[0][0]
        return Growth(came, 0.0 if oldest is None else min(float(DAYS), max(1.0, (now - oldest) / DAY_S)))

    def search(self, uid: int, codex: str | None, query: str, kind: str | None, n: int) -> FoundMemories:
        kinds = [self._kind(kind)] if kind is not None else list(self.store.kinds)
        found = MemorySearch(self.store, self.meaning).find(uid, codex, query, dict.fromkeys(kinds, n))[:n]
        rows = tuple(FoundMemoryRow.of(one.record, score=round(one.similarity, 4)) for one in found)
        return FoundMemories(memories=rows, enough=any(one.similarity >= FLOOR for one in found))


def _refuse_foreign(kind: str, body: MemoryBody) -> None:
    """Raises InvalidRequest for what memories of this kind do not have: it would be lost without a word."""
    for name, owner in (("trigger", Kind.CENSOR), ("watches", Kind.CENSOR), ("outcome", Kind.DECISION)):
        if getattr(body, name) and kind != owner:
            raise InvalidRequest(f"{name}: a {kind} has none", f"a {owner} has one: --kind {owner}")


def noted_of(record: MemoryRecord, source: str) -> NotedMemory:
    """`source`: of what is new."""
    return NotedMemory.of(record, made=record.source == source)


def mark_of(found: Triggered) -> CensorMark:
    return CensorMark(
        id=found.record.id,
        severity=found.record.severity or Severity.WARN,
        watches=found.record.watches or WatchedText.ANSWER,
        text=found.record.text,
        passage=found.passage,
    )


def view_of(record: MemoryRecord, showings: int) -> MemoryView:
    evidence = tuple(CitedCode.of(one) for one in record.evidence)
    return MemoryView.of(record, evidence=evidence, showings=showings)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _outcome(name: str | None) -> DecisionOutcome | None:
    return None if name is None else DecisionOutcome(name)
