"""Memories that hold words of a question: how much of it each holds, and how well each answers it beside the others.

    similarity = Σ idf of the question's words that the memory holds / Σ idf of all its words        0..1
    relevance  = strength (`passages`: BM25 of passages, words, pairs and pieces of words) / that of the best        0..1

Similarity says whether a memory answers at all: a word that no memory holds weighs most, so that a question about something
unknown resembles nothing, whatever its other words are. Relevance is an order and is compared with no threshold.

    1  candidates: the best of each kind by the index's own rank, searched by the words that few memories hold
    2  episodes of one session stand in a row: those beside a candidate are read with it, and are candidates themselves
    3  a question that names a month or a date prefers what was made then or soon after

No vector is made up where no model embeds.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from codex.words import query_words, words
from orchestrator.karma.episodes import SESSION
from orchestrator.karma.forms import forms_of
from orchestrator.karma.meaning import WORDS_ALONE, Nearness
from orchestrator.karma.passages import Candidate, Term, idf, matches
from orchestrator.karma.periods import Period, day_of, nearness, periods_of
from orchestrator.karma.records import Kind, MemoryRecord, MemoryState
from orchestrator.karma.schema import CURRENT, OF_USER, SHOWN, VISIBLE
from orchestrator.karma.store import MemoryStore, marks

MOST_WORDS = 24  # of a question
COUNTED = 1_000  # memories that hold a word; a question of words in more of them is searched in the newest so many
NAMED = 2.0  # an entity weighs as two words
# Verbs of questions about anything: they say nothing of what a memory is about.
_PLAIN_VERBS = """
    ask asked call called explain find found get gets give go got happen happened keep kept know known look made make makes
    mean means need needs put remember say says see set show tell think told try use used uses using want wants work works
"""
PLAIN = frozenset(_PLAIN_VERBS.split())
# Verbs that orders begin with say what is to be done and not with what; in "how do I add a language?" adding is the point.
_ORDERS = """
    add build change check clean convert create delete edit extend fix implement improve make move refactor remove rename
    replace rewrite run set simplify split test update upgrade write
"""
ORDERS = frozenset(_ORDERS.split())
_FIRST = re.compile(
    r"(?:(?:please|now|then|and|so|let'?s|let us|(?:can|could|would|will) you)\W+)*(\w+)", re.IGNORECASE
)
FLOOR = 0.35  # of similarity; below it a memory does not answer the question
MEANT = (
    0.5  # of the best strength: what the nearest memory gains; vectors have half the weight of words (docs/meaning.md)
)
THEN = 0.3  # of the best strength: what a memory of the named time gains; 0.1 to 0.5 find the same
DEEPER, DEEPEST = 2, 40  # candidates are so many times what is asked for, but no more than that for its sake
AROUND = 2  # episodes on each side that are read with one

# The index's rank is read before it is sorted by: behind a join the index cannot tell it.
_HITS = f"""
    SELECT nth, number, id, kind, source, created FROM (
        SELECT number, id, kind, source, created, row_number() OVER (PARTITION BY kind ORDER BY place, number) AS nth
        FROM (SELECT rowid AS hit, rank AS place FROM words WHERE words MATCH ? AND rowid > ?)
        JOIN memories ON number = hit WHERE {VISIBLE} AND {SHOWN} AND kind IN ({{kinds}})
    ) WHERE nth <= ?
"""  # noqa: S608 - our conditions
_NAMED = f"""
    SELECT number, id, kind, source, created FROM memories
    WHERE {OF_USER} AND (codex IS NULL OR codex = ?) AND {SHOWN} AND kind IN ({{kinds}}) AND id IN ({{ids}})
"""  # noqa: S608
_TEXTS = "SELECT id, kind, text, subject, attribute, domain, created FROM memories WHERE id IN ({ids})"
# What stands in the place of superseded facts, through all that replaced each other; a ring ends, as no row comes twice.
_CURRENT = f"""
    WITH RECURSIVE chain (first, id) AS (
        SELECT id, successor FROM memories WHERE state = 'superseded' AND id IN ({{ids}})
        UNION SELECT first, successor FROM chain JOIN memories USING (id) WHERE state = 'superseded'
    )
    SELECT first, id FROM chain JOIN memories USING (id) WHERE {CURRENT}
"""  # noqa: S608
_BESIDE = f"""
    SELECT id FROM memories WHERE {VISIBLE} AND {SHOWN} AND kind = 'episode' AND source = ?
    AND (created, number) {{side}} (?, ?) ORDER BY created {{order}}, number {{order}} LIMIT ?
"""  # noqa: S608


@dataclass(frozen=True)
class FoundMemory:
    """`similarity`: how much of the question it holds, 0..1. `relevance`: how well it answers beside the others, 0..1."""

    record: MemoryRecord
    similarity: float
    relevance: float


@dataclass(frozen=True)
class _Hit:
    """A row of the index."""

    number: int
    id: str
    kind: str
    source: str
    created: float


@dataclass(frozen=True)
class _Text:
    """What is read of a memory before it is chosen."""

    id: str
    kind: str
    text: str
    subject: str
    attribute: str
    domain: str
    created: float

    @property
    def searched(self) -> str:
        """What it says, and in a line what it is about."""
        about = " ".join(filter(None, (self.subject, self.attribute, self.domain)))
        return f"{self.text}\n{about}" if about else self.text


@dataclass(frozen=True)
class MemorySearch:
    """Searches what one user may see: memories of a codex and of none."""

    store: MemoryStore
    meaning: Nearness = WORDS_ALONE

    def find(
        self,
        uid: int,
        codex: str | None,
        question: str,
        candidates: Mapping[str, int],
        entities: Sequence[str] = (),
        least: float = 0.0,
    ) -> list[FoundMemory]:
        """Of these kinds, at most as many as asked for of each: the most relevant first, a superseded fact below its
        successor. `least`: similarity; of these many, those below it are not read. Raises LoreError."""
        asked = query_words(question, MOST_WORDS)
        named = telling(question, asked) or asked
        if not named or not candidates:
            return []
        counts = {word: self._count(word) for word in named}
        ((newest,),) = self.store.read("SELECT coalesce(max(number), 0) FROM memories")
        near = self.meaning.near(uid, question)
        hits = self._hits(uid, codex, candidates, counts, newest)
        others = self._named(uid, codex, candidates, near.keys() - {one.id for one in hits})
        around = self._around(uid, codex, [*hits, *others])
        texts = self._texts({one for before, after in around.values() for one in (*before, *after)} | around.keys())
        terms = [Term(word, weight) for word, weight in weights_of(counts, newest, entities).items()]
        periods = periods_of(question)
        matched = matches(
            question, terms, [_candidate(texts, one, *sides, dated=bool(periods)) for one, sides in around.items()]
        )
        relevant = _relevance([one.strength for one in matched], periods, [texts[one].created for one in around])
        scored = [
            (value + MEANT * near.get(one, 0.0), texts[one], max(match.similarity, _similarity(near.get(one, 0.0))))
            for one, match, value in zip(around, matched, relevant, strict=True)
        ]
        return self._recorded([one for one in _most(scored, candidates) if one[2] >= least])

    def _texts(self, ids: Collection[str]) -> dict[str, _Text]:
        listed = list(ids)
        rows = self.store.read(_TEXTS.format(ids=marks(listed)), *listed)
        return {row[0]: _Text(*row) for row in rows}

    def _recorded(self, scored: Sequence[tuple[float, _Text, float]]) -> list[FoundMemory]:
        ids = [one.id for _, one, _ in scored]
        records = {one.id: one for one in self.store.records(f"id IN ({marks(ids)})", *ids)}
        found = [(value, FoundMemory(records[one.id], held, value)) for value, one, held in scored if one.id in records]
        return [one for _, one in successors_first(found)]

    def reread(self, found: Sequence[FoundMemory]) -> list[FoundMemory]:
        """The same as they stand now, without those that are gone. Raises LoreError."""
        ids = [one.record.id for one in found]
        records = {one.id: one for one in self.store.records(f"id IN ({marks(ids)})", *ids)}
        return [replace(one, record=records[one.record.id]) for one in found if one.record.id in records]

    def current(self, found: Sequence[FoundMemory], *, past: bool = False) -> list[FoundMemory]:
        """The same with what is true now in the place of each superseded fact, as near to the question as that is; nothing
        where its successor is gone. `past`: the superseded ones stay beside it. Raises LoreError."""
        old = [one.record.id for one in found if one.record.state is MemoryState.SUPERSEDED]
        if not old:
            return list(found)
        ends = dict(self.store.read(_CURRENT.format(ids=marks(old)), *old))
        stand = list(ends.values())
        records = {one.id: one for one in self.store.records(f"id IN ({marks(stand)})", *stand)}
        best: dict[str, FoundMemory] = {}
        for one in found:
            stands = one.record if one.record.id not in old else records.get(ends.get(one.record.id, ""))
            if stands is not None:
                had = best.get(stands.id, one)
                nearest = max(had.similarity, one.similarity), max(had.relevance, one.relevance)
                best[stands.id] = FoundMemory(stands, *nearest)
            if past and one.record.id in old:
                best[one.record.id] = one
        return list(best.values())

    def _count(self, word: str) -> int:
        """Memories that hold the word; many of them are not counted."""
        query = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
        return int(self.store.read(query, _searched(word), COUNTED)[0][0])

    def _hits(
        self, uid: int, codex: str | None, candidates: Mapping[str, int], counts: Mapping[str, int], newest: int
    ) -> list[_Hit]:
        """The best of each kind by the index's own rank."""
        few = [word for word, count in counts.items() if 0 < count < COUNTED]
        match, after = " OR ".join(map(_searched, few or counts)), 0 if few else newest - COUNTED
        kinds, deepest = list(candidates), max(map(_depth, candidates.values()))
        rows = self.store.read(_HITS.format(kinds=marks(kinds)), match, after, uid, codex, *kinds, deepest)
        hits = [(nth, _Hit(*row)) for nth, *row in rows]
        return [hit for nth, hit in hits if nth <= _depth(candidates[hit.kind])]

    def _named(self, uid: int, codex: str | None, candidates: Mapping[str, int], ids: Collection[str]) -> list[_Hit]:
        """Those of the ids that may be shown."""
        if not ids:
            return []
        kinds, listed = list(candidates), sorted(ids)
        query = _NAMED.format(kinds=marks(kinds), ids=marks(listed))
        return [_Hit(*row) for row in self.store.read(query, uid, codex, *kinds, *listed)]

    def _around(
        self, uid: int, codex: str | None, hits: Sequence[_Hit]
    ) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
        """Of each candidate, by id, the ids of those before and after it in its session, the nearest first. Candidates
        are the hits and the episodes beside them."""
        found: dict[str, tuple[Sequence[str], Sequence[str]]] = {}
        for hit in hits:
            before, after = (self._beside(uid, codex, hit, side) for side in ("<", ">"))
            row = [*reversed(before), hit.id, *after]
            place = len(before)
            for at in range(max(0, place - AROUND), min(len(row), place + AROUND + 1)):
                found.setdefault(row[at], (row[max(0, at - AROUND) : at][::-1], row[at + 1 : at + 1 + AROUND]))
        return found

    def _beside(self, uid: int, codex: str | None, hit: _Hit, side: str) -> list[str]:
        """Twice as many as are read with one: those at the end are candidates, too."""
        if hit.kind != Kind.EPISODE or not hit.source.startswith(SESSION):
            return []
        query = _BESIDE.format(side=side, order="DESC" if side == "<" else "ASC")
        values = (uid, codex, hit.source, hit.created, hit.number, 2 * AROUND)
        return [one for (one,) in self.store.read(query, *values)]


def telling(question: str, asked: Iterable[str]) -> list[str]:
    """The words of a question that say what it is about."""
    first = _FIRST.match(question.strip())
    order = first[1].lower() if first is not None and first[1].lower() in ORDERS else ""
    return [word for word in asked if word not in PLAIN and word != order]


def successors_first(scored: Iterable[tuple[float, FoundMemory]]) -> list[tuple[float, FoundMemory]]:
    """By score; a superseded fact never above its successor, nor above the successor of that."""
    listed = list(scored)
    values = {one.record.id: value for value, one in listed}
    successors = {one.record.id: one.record.successor for _, one in listed}

    def least(one: str) -> float:
        value = values[one]
        later = successors[one]
        while later in values:
            value = min(value, math.nextafter(values[later], -math.inf))
            later = successors[later]
        return value

    return sorted(listed, key=lambda item: (-least(item[1].record.id), -item[1].record.created, item[1].record.id))


def weights_of(counts: Mapping[str, int], total: int, entities: Sequence[str]) -> dict[str, float]:
    """The idf of each word, from the number of memories that hold it; of an entity twice that."""
    named = {word for entity in entities for word in words(entity)}
    return {word: idf(count, total) * (NAMED if word in named else 1.0) for word, count in counts.items()}


def _relevance(strengths: Sequence[float], periods: Sequence[Period], created: Sequence[float]) -> list[float]:
    """A share of the best."""
    best = max(strengths, default=0.0) or 1.0
    values = [one / best + THEN * nearness(periods, moment) for one, moment in zip(strengths, created, strict=True)]
    most = max(values, default=0.0) or 1.0
    return [value / most for value in values]


def _similarity(near: float) -> float:
    """Of a memory that is near: from the floor on; of another one none."""
    return FLOOR + (1 - FLOOR) * near if near else 0.0


def _most(
    scored: Iterable[tuple[float, _Text, float]], candidates: Mapping[str, int]
) -> list[tuple[float, _Text, float]]:
    """The best of each kind, so many as were asked for."""
    left = dict(candidates)
    found = []
    for item in sorted(scored, key=lambda item: (-item[0], -item[1].created, item[1].id)):
        left[item[1].kind] -= 1
        found += [item] if left[item[1].kind] >= 0 else []
    return found


def _candidate(
    texts: Mapping[str, _Text], one: str, before: Sequence[str], after: Sequence[str], *, dated: bool
) -> Candidate:
    """`dated`: the question names a time, which the day of a memory may be."""
    text = texts[one]
    sides = ([texts[each].text for each in ids if each in texts] for ids in (before, after))
    return Candidate(f"{text.searched} ({day_of(text.created)})" if dated else text.searched, *sides)


def _depth(most: int) -> int:
    """Candidates of a kind, of which so many are wanted."""
    return max(most, min(DEEPER * most, DEEPEST))


def _searched(word: str) -> str:
    """As the index is asked for it: it knows no form that begins otherwise."""
    return " OR ".join(map(_quoted, forms_of(word)))


def _quoted(term: str) -> str:
    """A word is never syntax of the index."""
    return '"' + term.replace('"', '""') + '"'
