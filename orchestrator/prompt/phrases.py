"""What a question asks for, by its words: the task, and whether it asks for what was said before. Pure.

The phrases are data (`phrases.toml`), to which the settings add. Knows no model and no conversation.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files

MOST_READ = 20_000  # characters of a question that are read for what it asks


class Task(StrEnum):
    """What a question asks for; in the order in which they are tried, UNKNOWN when none matches."""

    RAG_CRITICAL = "rag_critical"
    STUFF_FRIENDLY = "stuff_friendly"
    HYBRID = "hybrid"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class MorePhrases:
    """A user's own phrases for each list of `phrases.toml`; they match as whole words."""

    crisis: tuple[str, ...] = ()
    debug: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    stuff_friendly: tuple[str, ...] = ()
    hybrid: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()


_LISTS = {
    Task.RAG_CRITICAL: ("crisis", "debug", "facts"),
    Task.STUFF_FRIENDLY: ("stuff_friendly",),
    Task.HYBRID: ("hybrid",),
}
_FORMS = {
    "whole": r"(?<!\w)(?:{})(?!\w)",
    "inside": r"(?:{})",
    "numbers": r"(?<!\w)(?<!\d[.,])(?:{})(?!\w)(?![.,]\d)",  # 988, but not 1988 or 988.5
}
_APOSTROPHES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "´": "'", "`": "'"})
_HYPHENS = re.compile(r"[\u2010-\u2013\u2212]")
_BETWEEN_WORDS = re.compile(r"[\s-]+")
NO_MORE = MorePhrases()


def classify(question: str, frame: str = "", more: MorePhrases = NO_MORE) -> tuple[Task, str]:
    """What a question asks for, and the phrase that decided it, as it stands there in small letters. The frame debug is
    always critical."""
    if frame == "debug":
        return Task.RAG_CRITICAL, "frame debug"
    text = _folded(question)
    for task, lists in _LISTS.items():
        found = _pattern(lists, more).search(text)
        if found is not None:
            return task, found[0]
    return Task.UNKNOWN, ""


def asks_for_memory(question: str, more: MorePhrases = NO_MORE) -> bool:
    """Whether it is about what was said or settled before."""
    return _pattern(("memory",), more).search(_folded(question)) is not None


def read_part(question: str) -> str:
    """What is read of a question to learn what it asks: of a long one the beginning and the end, between which a log or a
    file was pasted. Reading a megabyte takes seconds."""
    half = MOST_READ // 2
    return question if len(question) <= MOST_READ else f"{question[:half]}\n{question[-half:]}"


@cache
def _pattern(lists: tuple[str, ...], more: MorePhrases) -> re.Pattern[str]:
    """The phrases of these lists in one pattern."""
    tables = [_table()[name] | {"more": getattr(more, name)} for name in lists]
    forms = [(_FORMS.get(kind, _FORMS["whole"]), phrases) for table in tables for kind, phrases in table.items()]
    return re.compile("|".join(form.format(_alternatives(phrases)) for form, phrases in forms if phrases))


@cache
def _table() -> Mapping[str, dict[str, Iterable[str]]]:
    return tomllib.loads(files(__package__).joinpath("phrases.toml").read_text(encoding="utf-8"))


def _alternatives(phrases: Iterable[str]) -> str:
    """The longest first. Words of a phrase may be apart by blanks or hyphens: 'fact-check' is 'fact check'."""
    longest = sorted(phrases, key=lambda phrase: (-len(phrase), phrase))
    return "|".join(r"[\s-]+".join(map(re.escape, _BETWEEN_WORDS.split(_folded(one).strip()))) for one in longest)


def _folded(text: str) -> str:
    """Small letters, one kind of apostrophe, one kind of hyphen: how people type must not decide what they asked."""
    return _HYPHENS.sub("-", text.translate(_APOSTROPHES)).lower()
