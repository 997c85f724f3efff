"""Finds the places that an answer cites, `path:line` or `path:line-line`, and checks each against what it was shown.

Pure. A citation is valid when its file is in the generation and has these lines; it is `shown` when those lines, or the
line that stands for them in a skeleton, were in the prompt. An answer that cites a place it never saw made it up, even
if the place exists.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_LINES = r"(?:#L|:L?)(?P<start>\d{1,7})(?:\s?[-–]\s?L?(?P<end>\d{1,7}))?(?!\w)(?!\.\d)"
_PATH = r"(?<![\w/:@.~%+\-\\])(?P<path>(?!\w+://)[\w.~+@%\-\\][\w.~+@%/\-\\]*)"
_CITATION = re.compile(_PATH + _LINES)
_HAS_NAME = re.compile(r"[A-Za-z]")
_HOSTLIKE = re.compile(r"^(?:localhost|\d+(?:\.\d+){3}|(?:[\w-]+\.)+(?:com|org|net|io|dev))$")


@dataclass(frozen=True, slots=True)
class Cited:
    """A place as an answer wrote it: characters `at`–`to` of the answer, path, lines (1-based, inclusive)."""

    path: str
    start: int
    end: int
    at: int
    to: int


@dataclass(frozen=True, slots=True)
class Citation:
    """A cited place after the check. `path` is the generation's own name of the file when one was found.

    `why` says what is wrong, '' when valid. `shown` is None when nobody said what was shown.
    """

    path: str
    start: int
    end: int
    valid: bool
    shown: bool | None = None
    why: str = ""


Shown = Mapping[str, Sequence[tuple[int, int]]]
"""Line ranges (1-based, inclusive) of each path that stood in the prompt."""


def cited(answer: str) -> tuple[Cited, ...]:
    """All places that an answer cites, in order; a place that is cited again counts again."""
    found: list[Cited] = []
    for match in _CITATION.finditer(answer):
        path = match["path"].removeprefix("./")
        if _HAS_NAME.search(path) and ("." in path or "/" in path) and not _HOSTLIKE.match(path):
            start = int(match["start"])
            found.append(Cited(path, start, int(match["end"] or start), match.start(), match.end()))
    return tuple(found)


def check(places: Iterable[Cited], line_counts: Mapping[str, int], shown: Shown | None = None) -> tuple[Citation, ...]:
    """Each distinct place once, in order of its first appearance. `line_counts`: lines by path of the generation."""
    distinct = dict.fromkeys((one.path, one.start, one.end) for one in places)
    return tuple(_checked(path, start, end, line_counts, shown) for path, start, end in distinct)


def citations(answer: str, line_counts: Mapping[str, int], shown: Shown | None = None) -> tuple[Citation, ...]:
    """The checked citations of an answer."""
    return check(cited(answer), line_counts, shown)


def _checked(path: str, start: int, end: int, line_counts: Mapping[str, int], shown: Shown | None) -> Citation:
    known = _known_path(path, line_counts)
    if known is None:
        return Citation(path, start, end, False, None if shown is None else False, "no such file in this codex")
    seen = None if shown is None else _was_shown(known, start, end, shown)
    count = line_counts[known]
    if start < 1 or end < start:
        return Citation(known, start, end, False, seen, "not a range of lines")
    if end > count:
        return Citation(known, start, end, False, seen, f"the file has {count} lines")
    if seen is False:
        return Citation(known, start, end, False, seen, "these lines were not shown")
    return Citation(known, start, end, True, seen)


def _known_path(path: str, line_counts: Mapping[str, int]) -> str | None:
    """The path itself, else the only path that ends in it: answers shorten `src/app/main.py` to `main.py`."""
    if path in line_counts:
        return path
    ending = [known for known in line_counts if known.endswith(f"/{path}")]
    return ending[0] if len(ending) == 1 else None


def _was_shown(path: str, start: int, end: int, shown: Shown) -> bool:
    """Whether every cited line stood in the prompt."""
    at = start
    for first, last in sorted(shown.get(path, ())):
        if first <= at <= last:
            at = last + 1
    return at > end
