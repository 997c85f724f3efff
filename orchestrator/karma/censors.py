"""Which censors a text triggers. Pure.

A censor watches the question or the answer. It is triggered where all words of its trigger stand in one sentence, or in one
line of code, that does not itself forbid it: "do not push to main" keeps to "never push to main". Words are compared
without their endings. That is lexical: what is said in other words passes, and what only mentions it is a false alarm.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from codex.words import query_words, stem, words
from orchestrator.karma.learning import statements
from orchestrator.karma.records import Kind, MemoryRecord, WatchedText
from orchestrator.karma.sizes import sentences

MOST_PASSAGE = 200  # characters of the passage that is told
_FORBIDS = re.compile(
    r"\b(?:never|not|no|cannot|avoid(?:s|ed|ing)?|without|instead of|rather than|forbid(?:s|den)?|refuse[sd]?)\b|n['’]t\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Triggered:
    """A censor, and the sentence that triggered it."""

    record: MemoryRecord
    passage: str


def trigger_of(text: str) -> str:
    """What a censor in these words forbids; '' where they forbid nothing that can be told by its words."""
    return next((one.trigger for one in statements(text) if one.kind is Kind.CENSOR), "")


def triggered_by(
    censors: Iterable[MemoryRecord], question: str, answer: str, calls: Iterable[str] = ()
) -> list[Triggered]:
    """Each censor that is triggered by what it watches, with the first sentence that does so. `calls` of tools belong to
    the answer; each is read as one sentence, and none of them forbids anything."""
    found = []
    read = {WatchedText.QUESTION: question, WatchedText.ANSWER: answer}
    allowing = {watched: list(_allowing(text)) for watched, text in read.items()}
    allowing[WatchedText.ANSWER] += [_read(call) for call in calls]
    for one in censors:
        wanted = frozenset(map(stem, query_words(one.trigger)))
        passages = allowing[one.watches or WatchedText.ANSWER]
        passage = next((text for text, stems in passages if wanted and wanted <= stems), None)
        if passage is not None:
            found.append(Triggered(one, passage))
    return found


def _allowing(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Those that forbid nothing, each with the stems of its words."""
    for sentence in sentences(text):
        if not _FORBIDS.search(sentence):
            yield _read(sentence)


def _read(sentence: str) -> tuple[str, frozenset[str]]:
    return " ".join(sentence.split())[:MOST_PASSAGE], frozenset(map(stem, words(sentence)))
