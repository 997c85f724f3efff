"""Lines of a file of the codex."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Passage:
    """`start` is the number of the first line."""

    path: str
    start: int
    text: str
