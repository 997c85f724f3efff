"""Lists of phrases as one compiled pattern each: the shipped ones are data, settings may add more.

Knows nothing of what a match means.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from importlib.resources import files

_APOSTROPHES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "´": "'", "`": "'"})
_HYPHENS = re.compile(r"[\u2010-\u2013\u2212]")
_BETWEEN_WORDS = re.compile(r"[\s-]+")


@dataclass(frozen=True)
class Phrases:
    """Phrases that match as whole words, also inside words, or as numbers of their own (988, but not 1988 or 988.5)."""

    whole: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    def found_in(self, text: str) -> str | None:
        """The first phrase of the text that matches, as it stands there in small letters; None when none does."""
        found = self._pattern.search(folded(text))
        return found[0] if found else None

    def extended(self, more: "Phrases") -> "Phrases":
        return replace(
            self,
            whole=_joined(self.whole, more.whole),
            inside=_joined(self.inside, more.inside),
            numbers=_joined(self.numbers, more.numbers),
        )

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        whole, inside, numbers = (_alternatives(each) for each in (self.whole, self.inside, self.numbers))
        parts = [rf"(?<!\w)(?:{whole})(?!\w)"] if whole else []
        parts += [f"(?:{inside})"] if inside else []
        parts += [rf"(?<!\w)(?<!\d[.,])(?:{numbers})(?!\w)(?![.,]\d)"] if numbers else []
        return re.compile("|".join(parts) or r"(?!)")


def folded(text: str) -> str:
    """Small letters, one kind of apostrophe, one kind of hyphen: how people type must not decide what they asked."""
    return _HYPHENS.sub("-", text.translate(_APOSTROPHES)).lower()


@cache
def shipped(name: str) -> Phrases:
    """The list of that name in the package's data. KeyError when there is none: that would be our own fault."""
    data = tomllib.loads(files(__package__).joinpath("phrases.toml").read_text(encoding="utf-8"))
    return phrases_of(data[name])


def phrases_of(table: Mapping[str, Iterable[str]]) -> Phrases:
    return Phrases(tuple(table.get("whole", ())), tuple(table.get("inside", ())), tuple(table.get("numbers", ())))


def _alternatives(phrases: Iterable[str]) -> str:
    return "|".join(_one(phrase) for phrase in sorted(phrases, key=lambda phrase: (-len(phrase), phrase)))


def _one(phrase: str) -> str:
    """Words of a phrase may be apart by blanks or hyphens: 'fact-check' is 'fact check'."""
    words = _BETWEEN_WORDS.split(folded(phrase).strip())
    return r"[\s-]+".join(re.escape(word) for word in words if word)


def _joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


class Task(StrEnum):
    """In the order in which they are tried; UNKNOWN when none matches."""

    RAG_CRITICAL = "rag_critical"
    STUFF_FRIENDLY = "stuff_friendly"
    HYBRID = "hybrid"
    UNKNOWN = "unknown"


TRIED = (Task.RAG_CRITICAL, Task.STUFF_FRIENDLY, Task.HYBRID)


@dataclass(frozen=True)
class TaskMatch:
    """`because` is the phrase, or the frame, that decided; empty for UNKNOWN."""

    task: Task
    because: str = ""


def classify(question: str, frame: str = "", more: Mapping[Task, Phrases] | None = None) -> TaskMatch:
    """The class of a question. Frame debug is always critical; `more`: phrases that settings add to shipped ones."""
    if frame == "debug":
        return TaskMatch(Task.RAG_CRITICAL, "frame debug")
    for task in TRIED:
        found = _phrases(task, more or {}).found_in(question)
        if found is not None:
            return TaskMatch(task, found)
    return TaskMatch(Task.UNKNOWN)


def _phrases(task: Task, more: Mapping[Task, Phrases]) -> Phrases:
    return shipped(task.value).extended(more[task]) if task in more else shipped(task.value)
