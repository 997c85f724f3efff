"""The few lines of a chunk that show why it was found."""

from collections.abc import Collection

from codex.identifiers import words

_LINES = 3
_CHARS = 400


def snippet(text: str, query: Collection[str]) -> str:
    """At most three lines: those around the line that holds most of the query's words, the first lines on a tie."""
    lines = text.split("\n")
    asked = set(query)
    best, best_count = 0, 0
    for number, line in enumerate(lines):
        count = len(asked.intersection(words(line[:_CHARS])))
        if count > best_count:
            best, best_count = number, count
    shown = [line for line in lines[best : best + 2 * _LINES] if line.strip()][:_LINES]
    return "\n".join(shown)[:_CHARS]
