"""Memories that hold words of a question, each with how much of the question it holds.

    similarity = Σ idf of the question's words that the memory holds / Σ idf of all its words        0..1

A word that no memory holds weighs most: a question about something unknown resembles nothing, whatever its other words are.
The index's own rank chooses candidates and is compared with nothing. Candidates are searched by the words that few memories
hold. No vector is made up where no model embeds.
"""

import math
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from codex.words import query_words, words
from orchestrator.karma.records import HIDDEN, MemoryRecord
from orchestrator.karma.store import TOKENIZER, MemoryStore, marks

MOST_WORDS = 24  # of a question
COUNTED = 1_000  # memories that hold a word; a question of words in more of them is searched in the newest so many
NAMED = 2.0  # an entity weighs as two words
# Verbs of questions about anything: they say nothing of what a memory is about.
_PLAIN_VERBS = """
    ask asked call called explain find found get gets give go got happen happened keep kept know known look made make makes
    mean means need needs put remember say says see set show tell think told try use used uses using want wants work works
"""
PLAIN = frozenset(_PLAIN_VERBS.split())
FLOOR = 0.35  # of similarity; below it a memory does not answer the question


_MATCHING = (
    "number IN (SELECT words.rowid FROM words JOIN memories ON number = words.rowid "
    "WHERE words MATCH ? AND words.rowid > ? AND uid = ? AND kind = ? AND (codex IS NULL OR codex = ?) AND state NOT IN ("
)
_BEST = "ORDER BY rank LIMIT ?)"


@dataclass(frozen=True)
class FoundMemory:
    record: MemoryRecord
    similarity: float


@dataclass(frozen=True)
class MemorySearch:
    """Searches what one user may see: memories of a codex and of none."""

    store: MemoryStore

    def find(
        self,
        uid: int,
        codex: str | None,
        question: str,
        candidates: Mapping[str, int],
        entities: Sequence[str] = (),
    ) -> list[FoundMemory]:
        """Candidates of these kinds, the most similar first; as many as asked for of each. Raises LoreError."""
        asked = query_words(question, MOST_WORDS)
        terms = [term for term in asked if term not in PLAIN] or asked
        if not terms or not candidates:
            return []
        counts = {term: self._count(term) for term in terms}
        ((newest,),) = self.store.read("SELECT coalesce(max(number), 0) FROM memories")
        few = [term for term, count in counts.items() if 0 < count < COUNTED]
        match, after = " OR ".join(map(_quoted, few or terms)), 0 if few else newest - COUNTED
        records = [
            one for kind, most in candidates.items() for one in self._matching(uid, codex, kind, match, after, most)
        ]
        weights = weights_of(counts, newest, entities)
        held = held_words(terms, {one.id: _searched(one) for one in records})
        whole = sum(weights.values())
        found = [FoundMemory(one, sum(map(weights.__getitem__, held[one.id])) / whole) for one in records]
        return sorted(found, key=lambda one: (-one.similarity, -one.record.created, one.record.id))

    def _count(self, term: str) -> int:
        """Memories that hold the word; many of them are not counted."""
        query = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
        return int(self.store.read(query, _quoted(term), COUNTED)[0][0])

    def _matching(
        self, uid: int, codex: str | None, kind: str, match: str, after: int, most: int
    ) -> list[MemoryRecord]:
        hidden = sorted(HIDDEN)
        values = (match, after, uid, kind, codex, *hidden, most)
        return self.store.records(f"{_MATCHING}{marks(hidden)}) {_BEST}", *values)


def weights_of(counts: Mapping[str, int], total: int, entities: Sequence[str]) -> dict[str, float]:
    """The idf of each word, from the number of memories that hold it; of an entity twice that."""
    named = {word for entity in entities for word in words(entity)}
    return {term: _idf(count, total) * (NAMED if term in named else 1.0) for term, count in counts.items()}


def held_words(terms: Sequence[str], texts: Mapping[str, str]) -> dict[str, set[str]]:
    """Of each text, by its name, the terms that it holds as the index sees words: an index of these texts alone."""
    held: dict[str, set[str]] = {name: set() for name in texts}
    names = list(texts)
    with closing(sqlite3.connect(":memory:")) as small:
        small.execute(f"CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = '{TOKENIZER}')")
        small.executemany("INSERT INTO words VALUES (?)", [(texts[name],) for name in names])
        for term in terms:
            for (row,) in small.execute("SELECT rowid FROM words WHERE words MATCH ?", (_quoted(term),)):
                held[names[row - 1]].add(term)
    return held


def _searched(record: MemoryRecord) -> str:
    return "\n".join((record.text, record.subject, record.attribute, record.domain))


def _idf(count: int, total: int) -> float:
    return math.log(1 + (max(total, count) - count + 0.5) / (count + 0.5))


def _quoted(term: str) -> str:
    """A word is never syntax of the index."""
    return '"' + term.replace('"', '""') + '"'
