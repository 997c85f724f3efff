"""The few lines of a chunk that show why it was found."""

from collections.abc import Collection

_LINES = 3
_CHARS = 400


def snippet(text: str, query: Collection[str]) -> str:
    """At most three lines: those around the line that holds most of the query's words, the first lines on a tie."""
    lines = text.split("\n")
    best, best_count = 0, 0
    for number, line in enumerate(lines):
        seen = line[:_CHARS].lower()
        count = sum(word in seen for word in query)
        if count > best_count:
            best, best_count = number, count
    shown = [line for line in lines[best : best + 2 * _LINES] if line.strip()][:_LINES]
    return "\n".join(shown)[:_CHARS]
