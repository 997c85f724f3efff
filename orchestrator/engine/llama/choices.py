"""Texts to choose from, as a grammar's expression in which what begins alike stands once. Knows no JSON schema.

llama.cpp follows each alternative by itself until they part: of two thousand names in one folder, two thousand ways as
far as the folder's name goes.
"""

from collections.abc import Collection, Iterator
from itertools import groupby
from os.path import commonprefix


def one_of(texts: Collection[str]) -> str:
    """Alternatives that differ in their first characters, and within each again; at most as deep as texts are long."""
    return " | ".join(_branches(sorted(set(texts))))


def literal(text: str) -> str:
    """Any text stays text: nothing of it is read as grammar."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _branches(texts: list[str]) -> Iterator[str]:
    for _, alike in groupby(texts, key=lambda text: text[:1]):
        branch = list(alike)
        start = commonprefix(branch)  # noqa: RUF071 - by characters, as is meant here
        rest = [text[len(start) :] for text in branch]
        yield literal(start) if len(rest) == 1 else f"{literal(start)} ({' | '.join(_branches(rest))})"
