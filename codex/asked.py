"""What a question asks for, read from its words: names written as code, plain words, whether tests are meant."""

import re
from dataclasses import dataclass
from functools import lru_cache

from codex.identifiers import identifiers, query_words, split
from codex.stems import stem

_TESTS = re.compile(r"\b(?i:test)|_test\b|\bTest[A-Z]|\b(?i:fixture)|\b(?i:spec)s?\b")
_CAPITALISED = re.compile(r"(?<![.?!]\s)(?<!^)\b[A-Z][A-Za-z]{3,}\b")  # a class named in a sentence


@dataclass(frozen=True)
class Asked:
    """A question as search sees it. `names` are identifiers that it writes out, last part of a dotted one."""

    words: tuple[str, ...]
    stems: frozenset[str]
    names: frozenset[str]
    tests: bool


def asked(question: str) -> Asked:
    """Reads a question."""
    words = query_words(question)
    names = {name.rsplit(".", 1)[-1] for name in identifiers(question)} | set(_CAPITALISED.findall(question))
    return Asked(tuple(words), frozenset(map(stem, words)), frozenset(names), bool(_TESTS.search(question)))


@lru_cache(maxsize=200_000)
def name_stems(name: str) -> frozenset[str]:
    """Stems of a name's parts; of the whole when it has one."""
    parts = split(name)
    return frozenset(map(stem, parts[1:] or parts))


def overlap(question: Asked, name: str) -> float:
    """Share of a name's parts that the question speaks of, 0 to 1."""
    parts = name_stems(name)
    return len(parts & question.stems) / len(parts) if parts else 0.0
