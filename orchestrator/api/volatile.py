"""Lines of a client's system message that change from request to request: the time, the file that is open in its editor.

A system message stands before the conversation, so that such a line has everything behind it computed again. With
`clients.move_volatile` the lines stand in front of the question instead, where nothing else is behind them. Pure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST = 300  # characters of such a line: a longer one says more than that
# Signs before the first word are never given back: a message of lines of blanks would be tried from each of them.
_SAYS = r"(?: ?\([^)]{0,30}\))?\s*(?::|\bis\b|\bare\b|=)"
_TIME = re.compile(
    r"\W*+(?:today(?:['’]?s (?:date|day))?|now"
    r"|(?:the )?(?:(?:current|local|present) )?(?:date and time|date|time|datetime|timestamp))"
    rf"{_SAYS}.*\d",
    re.IGNORECASE,
)
_PLACE = re.compile(
    r"\W*+(?:the )?(?:user(?:'s|s)? )?(?:current|currently|active|open|opened|focused|visible)"
    rf"(?: open| opened| active| visible)? (?:files?|documents?|tabs?|editors?|selection|cursor){_SAYS}",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class SettledMessages:
    """System messages without their volatile lines, and those lines."""

    texts: tuple[str, ...]
    moved: tuple[str, ...]


def settled(texts: Sequence[str]) -> SettledMessages:
    """A message without such a line is the very same text."""
    kept, moved = [], []
    for text in texts:
        lines = text.splitlines(keepends=True)
        volatile = [line for line in lines if is_volatile(line)]
        moved += [line.strip() for line in volatile]
        kept.append("".join(line for line in lines if not is_volatile(line)) if volatile else text)
    return SettledMessages(tuple(kept), tuple(moved))


def is_volatile(line: str) -> bool:
    """Whether it begins by naming a time with its digits, or a place in an editor."""
    return len(line) <= LONGEST and bool(_TIME.match(line) or _PLACE.match(line))
