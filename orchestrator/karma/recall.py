"""The Karma block of a conversation: built once, then the same to the byte until a refresh is due.

    1  there is none yet, or what it holds was forgotten, superseded or turned suspect     a refresh is due
    2  a constraint came in, or the question comes into its domain                        due
    3  what stands whatever is asked was left out by the gate, is wanted now, and known   due
    4  the frame changed to one that the words name                                       due
    5  the question names something that what was looked up does not hold                 due
    6  nothing that was looked up stands in it, or that holds less than FLOOR of the words of a
       question that does not refer back, and something is known of the question          due
    7  else the block stays, whatever else is remembered meanwhile

A refresh that finds nothing new leaves the block as it is. What stands whatever is asked, constraints first, is in every
block: the gate decides what comes into one, and takes nothing out. `refresh_due` decides; the search runs in a worker
thread. Knows no prompt beside its own block.
"""

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from codex.words import query_words, stem, words
from formatters.context import KarmaEntry, KarmaView
from formatters.plugins import MemoryKind
from orchestrator.karma.figures import TurnCounts, calibration
from orchestrator.karma.meaning import WORDS_ALONE, Nearness
from orchestrator.karma.periods import periods_of
from orchestrator.karma.ranking import RankedMemory, filled, kinds_of, ranked, referenced
from orchestrator.karma.records import HIDDEN, KINDS, Kind, MemoryRecord, MemoryState
from orchestrator.karma.schema import CITING, OF_USER
from orchestrator.karma.search import FLOOR, MemorySearch, telling
from orchestrator.karma.sizes import in_line, tokens_of
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.standing import STANDING_NODES, in_domain, standing
from orchestrator.karma.store import MemoryStore, marks
from orchestrator.prompt.phrases import read_part
from orchestrator.prompt.prefetch import Prefetch
from orchestrator.relevance.intent import (
    ALWAYS,
    NOTHING,
    Frame,
    MemoryPlan,
    QuestionIntent,
    frame_of,
    intent_of,
    memory_plan,
)

DECIDING = "decision"  # the frame
SOURCE = "memory:"  # before the id, in what a prompt says of its items
SHORTENED = "shortened to save room"
NOTHING_COUNTED = TurnCounts()
NOTHING_HELD = "the conversation had no memories yet"
OTHER_SUBJECT = "the question is about something else"
# "and its limit?" asks about what the conversation has.
REFERS_BACK = frozenset(
    ("it", "its", "that", "this", "these", "those", "they", "them", "their", "he", "him", "his", "she", "her", "same")
)
TALK = "conversation"  # a greeting's frame, which has no room for procedures and episodes: any question ends it
WEAK = frozenset({"question", TALK})  # frames of questions whose words name none: they end no other
IN_ENVIRONMENT = {
    "user_traits": "The user",
    "communication_style": "How the user wants answers",
    "available_skills": "Procedures that are known",
}
"""Nodes of the Environment, with what stands before them there."""
TOLD = {
    "censors": ("constraints", Kind.CENSOR),
    "active_lists": ("entries of lists", Kind.FACT),
    "user_traits": ("facts about the user", Kind.FACT),
    "communication_style": ("wishes about answers", Kind.FACT),
}
"""Nodes of which the user is told what has no room, in words, and the kind of their memories."""
PLACES = {one: (heading, one) for one, heading in {"active_lists": "Current Focus", **IN_ENVIRONMENT}.items()}
MEMORY_NODES = frozenset({kind.node for kind in KINDS.values()} | PLACES.keys())


@dataclass(frozen=True)
class ShownEntry:
    """A memory in a prompt: its id and kind, the text of it that is shown, and the moment of its record's last change.
    `node`: of the gate; that of its kind where none is named. `short`: what may stand in the text's place; `pinned`: the
    text stays whatever room is needed; `heading`: of a kind of a package."""

    id: str
    kind: str
    text: str
    updated: float
    node: str = ""
    short: str = ""
    pinned: bool = False
    heading: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """The heading that it stands under, and its node."""
        if self.heading:
            return self.heading, self.kind
        return PLACES.get(self.node, (KINDS[self.kind].heading, KINDS[self.kind].node))


@dataclass(frozen=True)
class PinnedKarma:
    """The block that a conversation has. `frame`: what it was built for; `why`: why it was built, '' where it was kept;
    `left_out`: nodes that stand whatever is asked, and that the gate did not want when it was built."""

    entries: tuple[ShownEntry, ...] = ()
    frame: str = ""
    why: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def view(self) -> KarmaView:
        return KarmaView(entries=tuple(_entry(one) for one in self.entries if one.node not in IN_ENVIRONMENT))

    def held(self, view: KarmaView) -> "PinnedKarma":
        """What a prompt holds of it after room was needed: `view`, and what stands in the Environment."""
        left = {one.source: one for one in view.entries}
        entries = tuple(
            one
            if one.node in IN_ENVIRONMENT
            else replace(one, text=left[SOURCE + one.id].text, short=left[SOURCE + one.id].short)
            for one in self.entries
            if one.node in IN_ENVIRONMENT or SOURCE + one.id in left
        )
        return self if entries == self.entries else replace(self, entries=entries, why=self.why or SHORTENED)

    @property
    def around(self) -> tuple[KarmaEntry, ...]:
        """What of it stands in the Environment."""
        return tuple(_entry(one) for one in self.entries if one.node in IN_ENVIRONMENT)


@dataclass(frozen=True)
class RecallQuestion:
    """A question as recall sees it. `turns`: texts of its conversation; `room`: tokens that the block may take;
    `wants`: whether memories of this node are looked up; `files`: paths in its codex that it is about."""

    uid: int
    codex: str | None
    text: str
    turns: Sequence[str]
    room: int
    prefetch: Prefetch
    frame: str | None = None
    wants: Callable[[str], bool] = bool  # any name is true
    files: Sequence[str] = ()


@dataclass(frozen=True)
class Recalled:
    """What a question's memories were decided from, and the block. `counts`: of the block, where it was built;
    `notice`: what the search or the block lacks; `calibration`: of a decision's frame, how right earlier decisions were."""

    question: RecallQuestion
    frame: Frame
    intent: QuestionIntent
    plan: MemoryPlan
    karma: PinnedKarma
    counts: TurnCounts = NOTHING_COUNTED
    notice: str = ""
    calibration: str = ""


@dataclass(frozen=True)
class _Asked:
    """A question, what its conversation has, and what was decided from its words."""

    question: RecallQuestion
    pinned: PinnedKarma | None
    frame: Frame
    intent: QuestionIntent
    plan: MemoryPlan


@dataclass(frozen=True)
class Recall:
    """Builds and keeps blocks. `clock`: seconds since the epoch."""

    store: MemoryStore
    staleness: Staleness
    clock: Callable[[], float] = time.time
    meaning: Nearness = WORDS_ALONE

    async def recall(self, question: RecallQuestion, pinned: PinnedKarma | None) -> Recalled:
        """The block for this question: `pinned` as it is where nothing is due. Raises LoreError."""
        asked = self._asked(question, pinned)
        read = (pinned is not None and pinned.entries) or not self.store.seen_without(question.uid)
        found = await asyncio.to_thread(self._block, asked) if read else self._block(asked)
        karma, counts, without_room = found
        judged = await asyncio.to_thread(self.store.judged, question.uid) if asked.frame.name == DECIDING else ()
        notice = _notice(self.meaning.fault, without_room)
        return Recalled(question, asked.frame, asked.intent, asked.plan, karma, counts, notice, calibration(judged))

    def kept_out(
        self, question: RecallQuestion, pinned: PinnedKarma | None, nodes: Collection[str]
    ) -> tuple[ShownEntry, ...]:
        """What this question's block would have held of `nodes`, which it was not to hold; nothing where no block was due.
        In a worker thread. Raises LoreError."""
        asked = self._asked(replace(question, wants=frozenset(nodes).__contains__), pinned)
        had = {one.id for one in pinned.entries} if pinned is not None else set()
        always, _ = self._always(asked)
        changed = self._changed(question.uid, pinned)
        if not refresh_due(pinned, changed, asked.frame.name, asked.intent, always, subject_of(question.text)):
            return ()
        chosen = self._found(asked, asked.frame.total, {one.id: one.text for one in always})
        return tuple(one for one in (*always, *self._entries(chosen)) if one.id not in had)

    async def used(self, uid: int, recalled: Recalled, answer: str) -> None:
        """An answer was given with this block: which of the memories that were searched for it references is kept. Raises
        LoreError."""
        searched = [one for one in recalled.karma.entries if not one.node]
        if searched:
            marked = {one.id: referenced(one.text, answer) for one in searched}
            counts = replace(recalled.counts, turns=1, shown=len(marked), referenced=sum(marked.values()))
            await asyncio.to_thread(self.store.count_shown, uid, marked, None, counts)

    def _asked(self, question: RecallQuestion, pinned: PinnedKarma | None) -> _Asked:
        frame, intent = frame_in(question.text, question.frame, pinned), intent_of(question.text)
        return _Asked(question, pinned, frame, intent, _plan(question, frame, intent, self.store.kinds))

    def _block(self, asked: _Asked) -> tuple[PinnedKarma, TurnCounts, Mapping[str, int]]:
        """With how many of each node that stands have no room in it."""
        question, pinned = asked.question, asked.pinned
        self._check(question, [one.id for one in pinned.entries] if pinned is not None else [])
        wanted = bool(asked.plan.kinds) or any(map(question.wants, STANDING_NODES))
        held = wanted and self.store.holds_any(question.uid)  # without, a dozen look-ups of each question find nothing
        always, without_room = self._always(asked) if held else (None, {})
        return *self._built(asked, always), without_room

    def _built(self, asked: _Asked, stand: Sequence[ShownEntry] | None) -> tuple[PinnedKarma, TurnCounts]:
        """What is pinned, or another block where one is due. `stand`: None where there are no memories."""
        began = time.perf_counter()
        question, pinned, frame = asked.question, asked.pinned, asked.frame
        changed, always = self._changed(question.uid, pinned), tuple(stand or ())
        subject = subject_of(question.text) if pinned is not None else ()
        why = refresh_due(pinned, changed, frame.name, asked.intent, always, subject)
        if not why and pinned is not None:
            return replace(pinned, why=""), NOTHING_COUNTED
        kept = () if pinned is None else tuple(one for one in pinned.entries if changed.get(one.id) == one.updated)
        lasting = [one for one in kept if one.node in STANDING_NODES and not question.wants(one.node)]
        always = tuple(sorted((*always, *lasting), key=lambda one: STANDING_NODES.index(one.node)))
        room = min(frame.total - ALWAYS, max(0, question.room - sum(tokens_of(one.text) for one in always)))
        stands = {one.id: one.text for one in always}
        chosen = self._found(asked, room, stands) if stand is not None else []
        found = self._entries(chosen)
        if pinned is not None and why in (NOTHING_HELD, OTHER_SUBJECT) and not found:
            return replace(pinned, frame=frame.name, why=""), NOTHING_COUNTED
        # where nothing is known of what is asked, what the conversation has of it stays
        entries = (
            *always,
            *(found or (one for one in kept if not one.node and not _is_told(one.id, one.text, stands))),
        )
        if pinned is not None and entries == pinned.entries:
            return replace(pinned, frame=frame.name, why=""), NOTHING_COUNTED
        counts = build_counts(pinned, chosen, room, 1000 * (time.perf_counter() - began))
        there = {one.node for one in lasting}
        left_out = tuple(name for name in STANDING_NODES if not question.wants(name) and name not in there)
        why = f"refreshed: {why}" if pinned is not None else ""
        return PinnedKarma(entries, frame.name, why, left_out), counts

    def _entries(self, chosen: Sequence[RankedMemory]) -> list[ShownEntry]:
        """`heading` is what a kind of a package stands under, in this block for good: the package may be gone later."""
        entries = (_shown(one.record, one.shown) for one in chosen)
        return [
            one if one.kind in KINDS else replace(one, heading=self.store.kind(one.kind).heading) for one in entries
        ]

    def _check(self, question: RecallQuestion, ids: Sequence[str]) -> bool:
        """Looks whether the code that these are about is another now, and whether a record changed by that."""
        if question.codex is None or not ids:
            return False
        listed = f"uid = ? AND codex = ? AND {CITING} AND id IN ({marks(ids)})"
        return self.staleness.check(question.codex, self.store.records(listed, question.uid, question.codex, *ids))

    def _changed(self, uid: int, pinned: PinnedKarma | None) -> dict[str, float]:
        """Of what the block holds, by id, what may still be shown, with the moment of its last change."""
        ids = [one.id for one in pinned.entries] if pinned is not None else []
        if not ids:
            return {}
        query = f"SELECT id, state, updated FROM memories WHERE {OF_USER} AND id IN ({marks(ids)})"  # noqa: S608
        return {one: updated for one, state, updated in self.store.read(query, uid, *ids) if state not in HIDDEN}

    def _always(self, asked: _Asked) -> tuple[tuple[ShownEntry, ...], Mapping[str, int]]:
        """What stands in every block, and how many of each node have no room."""
        question, holds = asked.question, _domains_of(asked.question, asked.frame)
        chosen, without_room = standing(
            self.store, question.uid, question.codex, question.room, question.wants, tokens_of, holds
        )
        shown = (replace(_shown(record, _told(record, text)), node=node) for node, record, text in chosen)
        return tuple(shown), without_room

    def _found(self, asked: _Asked, room: int, stands: Mapping[str, str]) -> list[RankedMemory]:
        """What is relevant, beside what stands already, in so many tokens."""
        question, frame, intent, plan = asked.question, asked.frame, asked.intent, asked.plan
        if not plan.kinds:
            return []
        search = MemorySearch(self.store, self.meaning)
        wanted = (question.uid, question.codex, question.text, kinds_of(plan), intent.entities)
        past = intent.past or bool(periods_of(question.text))
        found = search.current(search.find(*wanted, least=FLOOR), past=past)
        if self._check(question, [one.record.id for one in found]):
            found = search.reread(found)
        usage = self.store.usage(question.uid, [one.record.id for one in found])
        turns = question.turns[-2 * frame.window :]
        least = question.prefetch.min_trust
        chosen = [
            replace(one, shown=_told(one.record, one.shown), line=_told(one.record, one.line))
            for one in ranked(found, plan, frame, usage, turns, self.clock(), least)
            if not _is_told(one.record.id, one.shown, stands)
        ]
        return filled(chosen, plan.budgets, room, tokens_of)


def _is_told(one: str, text: str, stands: Mapping[str, str]) -> bool:
    """Whether the memory stands with all of this text: of a procedure that is only named its steps are still to be told."""
    return text in stands.get(one, "")


def unremembered(question: RecallQuestion) -> Recalled:
    """Of a question whose asker may not read memories, or for which they were not read."""
    frame, intent = frame_of(question.text, question.frame), intent_of(question.text)
    return Recalled(question, frame, intent, NOTHING, PinnedKarma())


def _plan(
    question: RecallQuestion, frame: Frame, intent: QuestionIntent, kinds: Mapping[str, MemoryKind]
) -> MemoryPlan:
    """Of the kinds that are wanted."""
    factor = question.prefetch.factor if question.prefetch.wanted else 0.0
    further = [kind for name, kind in kinds.items() if name not in KINDS]
    plan = memory_plan(intent, frame, len(question.text.split()), factor, further)
    return plan.without({kind for kind in plan.limits if not question.wants(kinds[kind].node)})


def build_counts(pinned: PinnedKarma | None, found: Sequence[RankedMemory], room: int, ms: float) -> TurnCounts:
    """Of a block that was built in the place of `pinned`; one that found nothing is none whose relevance, room or time says
    anything. The first with memories is a cold build, also after an empty one."""
    refreshes = int(pinned is not None)
    if not found:
        return TurnCounts(refreshes=refreshes)
    cold = pinned is None or all(one.node for one in pinned.entries)
    return TurnCounts(
        refreshes=refreshes,
        built=1,
        loaded=len(found),
        similarity=sum(one.similarity for one in found),
        tokens=sum(one.tokens for one in found),
        room=room,
        cold=int(cold),
        cold_ms=ms if cold else 0.0,
    )


def refresh_due(
    pinned: PinnedKarma | None,
    changed: Mapping[str, float],
    frame: str,
    intent: QuestionIntent,
    always: Iterable[ShownEntry] = (),
    subject: Sequence[str] = (),
) -> str:
    """Why the block is built anew, by the table above; '' where it stays. `subject`: words that say what is asked about."""
    if pinned is None:
        return "the conversation begins"
    gone = [one.id for one in pinned.entries if changed.get(one.id) != one.updated]
    if gone:
        return f"memory {gone[0]} changed"
    had = {one.id for one in pinned.entries}
    if new := [one.id for one in always if one.kind is Kind.CENSOR and one.id not in had]:
        return f"constraint {new[0]} holds now"
    if missed := [one.node for one in always if one.node in pinned.left_out]:
        return f"{missed[0]} was left out"
    if frame != pinned.frame and (pinned.frame != TALK or frame not in WEAK):
        return f"frame changed to {frame}"
    held = {stem(word) for one in pinned.entries for word in words(one.text) if not one.node}
    missing = [name for name in intent.entities if not held & {stem(word) for word in words(name)}]
    if missing and len(missing) == len(intent.entities):
        return f"the question names {missing[0]}"
    if intent.greeting:
        return ""
    if all(one.node for one in pinned.entries):
        return NOTHING_HELD
    about = set(map(stem, subject))
    return OTHER_SUBJECT if len(held & about) < FLOOR * len(about) else ""


def subject_of(question: str) -> list[str]:
    """Words that say what a question is about; none where it refers to what was said."""
    read = read_part(question)
    return [] if REFERS_BACK.intersection(words(read)) else telling(read, query_words(read))


def frame_in(question: str, named: str | None, pinned: PinnedKarma | None) -> Frame:
    """The frame of the question; that of the conversation where the words name none."""
    frame = frame_of(question, named)
    if named or pinned is None or pinned.frame in ("", TALK) or frame.name not in WEAK:
        return frame
    return frame_of(question, pinned.frame)


def _notice(fault: str, without_room: Mapping[str, int]) -> str:
    """What is said once to whoever asks; '' where nothing lacks."""
    words = f"memories were searched by words alone: {fault}" if fault else ""
    lacks = (
        f"{TOLD[node][0]} that have no room in the prompt: {many}; shorten or retire some "
        f"(lore memory list --kind {TOLD[node][1]})"
        for node, many in without_room.items()
        if node in TOLD
    )
    return "; ".join(filter(None, (words, *lacks)))


def _domains_of(question: RecallQuestion, frame: Frame) -> Callable[[str], bool]:
    """Whether a domain is that of the question: its frame, or where the files are that it or its last turns name."""

    @cache
    def paths() -> tuple[str, ...]:
        texts = (question.text, *question.turns[-2 * frame.window :])
        return (*question.files, *(name for text in texts for name in intent_of(text).entities))

    return lambda domain: in_domain(domain, (frame.name,), paths())


def _told(record: MemoryRecord, text: str) -> str:
    """In one line, but for a verbatim one. Where a question asks for the past, what is no longer true says so."""
    told = record.with_doubt(text if record.verbatim else in_line(text))
    return f"{told} (superseded)" if record.state is MemoryState.SUPERSEDED else told


def _shown(record: MemoryRecord, text: str) -> ShownEntry:
    """Its line, where that is shorter than the text, and what no need of room may change."""
    pinned = record.verbatim or record.pinned or record.kind is Kind.CENSOR
    short = "" if pinned else _told(record, record.micro)
    return ShownEntry(
        record.id, record.kind, text, record.updated, short=short if len(short) < len(text) else "", pinned=pinned
    )


def _entry(one: ShownEntry) -> KarmaEntry:
    heading, node = one.place
    return KarmaEntry(
        heading=heading, text=one.text, source=f"{SOURCE}{one.id}", node=node, short=one.short, pinned=one.pinned
    )


def karma_to_json(karma: PinnedKarma | None) -> str:
    """For a session's file."""
    if karma is None:
        return ""
    return json.dumps([karma.frame, [list(vars(one).values()) for one in karma.entries], karma.left_out])


def karma_from_json(text: str) -> PinnedKarma | None:
    """What `karma_to_json` gave."""
    if not text:
        return None
    frame, entries, left_out = json.loads(text)
    return PinnedKarma(tuple(ShownEntry(*one) for one in entries), frame, left_out=tuple(left_out))
