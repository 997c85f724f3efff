"""Where an answer's own words stand in what it was shown, and whether the places that it cites exist. Pure.

An answer that quotes is given the place of its quote, also when it names none: the model need not count lines.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from codex.citations import citations as checked
from orchestrator.wire.lore import Citation

LEAST = 12  # characters: shorter lines stand everywhere
MOST_QUOTES = 5


@dataclass(frozen=True)
class Passage:
    """Lines of a file that stood in the prompt; `start` is the number of the first."""

    path: str
    start: int
    text: str


def citations_of(
    answer: str, question: str, shown: Iterable[Passage], lines: Mapping[str, int]
) -> tuple[Citation, ...]:
    """Places that the answer names, each checked against the generation, then places that it quotes."""
    named = [Citation(path=one.path, start=one.start, end=one.end, valid=one.valid) for one in checked(answer, lines)]
    quoted = quotes(answer, question, shown)
    return tuple(dict.fromkeys([*named, *quoted]))


def quotes(answer: str, question: str, shown: Iterable[Passage]) -> list[Citation]:
    """Where the answer's lines stand to the letter. The first continues the question, as a quoting model's does."""
    wanted = quotable(answer, question)
    found: list[Citation] = []
    for passage in shown:
        for text in wanted:
            at = passage.text.find(text)
            if at >= 0:
                line = passage.start + passage.text.count("\n", 0, at)
                found.append(Citation(path=passage.path, start=line, end=line + text.count("\n"), valid=True))
        if len(found) >= MOST_QUOTES:
            break
    return found[:MOST_QUOTES]


def quotable(answer: str, question: str) -> list[str]:
    """What to look for: the end of the question with the answer's first line, else the answer's own long lines."""
    lines = [line.strip() for line in answer.strip().splitlines() if line.strip()]
    if not lines:
        return []
    joined = question.rstrip().rpartition("\n")[2].lstrip() + answer.rstrip("\n").partition("\n")[0]
    return [text for text in dict.fromkeys([joined, *lines]) if len(text) >= LEAST]
