"""Texts to choose from, as a grammar's expression in which what begins alike stands once. Knows no JSON schema.

llama.cpp follows each alternative by itself until they part: of two thousand names in one folder, two thousand ways as
far as the folder's name goes.
"""

from collections.abc import Collection
from itertools import groupby
from os.path import commonprefix

Part = str | list[str]  # of an expression: what is written already, or texts to choose from


def one_of(texts: Collection[str]) -> str:
    """Alternatives that differ in their first characters, and within each again; at most as deep as texts are long."""
    written: list[str] = []
    todo: list[Part] = [sorted(set(texts))]  # the next one last
    while todo:
        part = todo.pop()
        if isinstance(part, str):
            written.append(part)
        else:
            todo += reversed(_alternatives(part))
    return "".join(written)


def literal(text: str) -> str:
    """Any text stays text: nothing of it is read as grammar."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _alternatives(texts: list[str]) -> list[Part]:
    """How each beginning is written, and in brackets the texts that go on from it."""
    found: list[Part] = []
    for _, alike in groupby(texts, key=lambda text: text[:1]):
        branch = list(alike)
        start = commonprefix(branch)  # noqa: RUF071 - by characters, as is meant here
        rest = [text[len(start) :] for text in branch]
        found += [" | ", literal(start), *((" (", rest, ")") if len(rest) > 1 else ())]
    return found[1:]
