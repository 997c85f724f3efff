"""What a question is, and how a few are drawn from many: the same ones on every day and machine."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from codex.documents import Document


@dataclass(frozen=True, order=True)
class Question:
    """`files` answer it; it belongs to one kind of one package."""

    package: str
    kind: str
    text: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Repository:
    """A source distribution. `source` leads the paths of what is not test; `tests` are folder names of what is."""

    package: str
    version: str
    source: str
    tests: frozenset[str] = field(default_factory=lambda: frozenset({"test", "tests", "testing"}))

    def is_source(self, path: str) -> bool:
        return path.startswith(self.source) and not self.tests & set(Path(path.removeprefix(self.source)).parts)


@dataclass(frozen=True)
class Made:
    """Questions, and the corpus that they are asked of."""

    questions: tuple[Question, ...]
    documents: tuple[Document, ...]


def drawn(questions: Iterable[Question], number: int) -> tuple[Question, ...]:
    """At most `number` of each kind, by a draw that depends on nothing but the questions."""
    kinds: dict[tuple[str, str], list[Question]] = {}
    for one in sorted(set(questions)):
        kinds.setdefault((one.package, one.kind), []).append(one)
    chosen = []
    for (package, kind), found in sorted(kinds.items()):
        draw = random.Random(f"{package} {kind}")
        chosen += draw.sample(found, min(number, len(found)))
    return tuple(chosen)
