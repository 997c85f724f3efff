"""The few lines of a chunk that show why it was found."""

from collections.abc import Collection
from dataclasses import dataclass

_LINES = 3
_CHARS = 400


@dataclass(frozen=True, slots=True)
class Snippet:
    """`before`: lines of the chunk that stand before the first one shown."""

    before: int
    text: str


def snippet(text: str, query: Collection[str]) -> Snippet:
    """At most three lines: those around the line that holds most of the query's words, the first lines on a tie."""
    lines = text.split("\n")
    whole = text.lower()
    there = [word for word in query if word in whole]  # most words of a question are not in a chunk of its answer
    best, best_count = 0, 0
    for number, line in enumerate(lines):
        if best_count == len(there):
            break
        seen = line[:_CHARS].lower()
        count = sum([word in seen for word in there])
        if count > best_count:
            best, best_count = number, count
    shown = [number for number in range(best, min(len(lines), best + 2 * _LINES)) if lines[number].strip()][:_LINES]
    return Snippet(shown[0] if shown else best, "\n".join(lines[number] for number in shown)[:_CHARS])
