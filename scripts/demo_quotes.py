"""Finds sentences that stand once in a tree of Python files: their first words ask, their rest is the answer."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ASKED = 6  # words of the question: the built-in model looks for the longest match of a handful of tokens
ANSWERED = 3  # least words of the answer
RARE = 3  # lines that a word may stand in to tell a question apart; retrieval finds passages by such words


@dataclass(frozen=True)
class Quote:
    path: str
    line: int
    question: str
    answer: str


def quotes(folder: Path, number: int) -> list[Quote]:
    """`number` of them, evenly spread over the tree; fewer where it has fewer."""
    found = list(candidates(folder))
    begun = Counter(key(candidate.question) for candidate in found)
    common = Counter(word for candidate in found for word in set(candidate.question.lower().split()))
    once = [
        candidate
        for candidate in found
        if begun[key(candidate.question)] == 1
        and sum(common[word] <= RARE for word in set(candidate.question.lower().split()) if len(word) > 3) >= 2
    ]
    step = max(len(once) // max(number, 1), 1)
    return once[step // 2 :: step][:number]


def candidates(folder: Path) -> Iterator[Quote]:
    for path in sorted(folder.rglob("*.py")):
        lines = path.read_text(errors="replace").splitlines()
        for number, line in prose(lines):
            words = line.split()
            yield Quote(str(path.relative_to(folder)), number, " ".join(words[:ASKED]), " ".join(words[ASKED:]))


def prose(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Lines that read as language: words of letters, single spaces, long enough to be asked and answered."""
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("#").strip().strip('"')
        words = text.split()
        plain = all(word.strip(".,:;`'()-").isalpha() for word in words)
        if plain and len(words) >= ASKED + ANSWERED and text == " ".join(words) and words[0][0].isupper():
            yield number, text


def key(question: str) -> tuple[str, ...]:
    """What the model can tell questions apart by: their last words."""
    return tuple(question.lower().split()[-3:])
