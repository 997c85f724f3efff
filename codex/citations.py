"""Checks each place that an answer cites against what the answer was shown. Pure; `codex.cited` finds the places.

A citation is valid when its file is known, has these lines, and they stood in the prompt: whole, or by the line that
stands for them in a skeleton or a map. An answer that cites a place it never saw made it up, even if the place exists.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from codex.cited import Cited

NO_FILE = "no such file in this codex"
NOT_SHOWN = "these lines were not shown"


@dataclass(frozen=True, slots=True)
class CheckedCitation:
    """A cited place after the check. `path` is the generation's own name of the file when one was found.

    `why` says what is wrong, '' when valid. `shown` is None when nobody said what was shown.
    """

    path: str
    start: int
    end: int
    valid: bool
    shown: bool | None = None
    why: str = ""


@dataclass(frozen=True)
class ShownLines:
    """What stood in the prompt, by path: `spans` of lines (1-based, inclusive), and `heads`, the lines that a skeleton or
    a map lists: a place that begins at one of them was shown by it."""

    spans: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    heads: Mapping[str, Collection[int]] = field(default_factory=dict)

    def has(self, path: str, start: int, end: int) -> bool:
        """Whether every line of the place stood there."""
        if start in self.heads.get(path, ()):
            return True
        at = start
        for first, last in sorted(self.spans.get(path, ())):
            if first <= at <= last:
                at = last + 1
        return at > end


class Files:
    """Which file a text means by a name. `lines` by path: asked only for files that are cited.

    `behind` are those that are meant where none of these is. Names are sorted once, when one is first shortened: keep the
    object of a large codebase.
    """

    def __init__(self, lines: Mapping[str, int], behind: "Files | None" = None) -> None:
        self._lines = lines
        self._behind = behind

    def count(self, path: str) -> int:
        """Lines of a file that is meant."""
        return self._lines[path] if path in self._lines or self._behind is None else self._behind.count(path)

    def meant(self, name: str) -> str | None:
        """The file itself, with either slash; else the one that an absolute path ends in; else the only one that ends in
        the name: answers shorten `src/app/main.py` to `main.py`."""
        found = self._meant(name)
        return found if found is not None or self._behind is None else self._behind.meant(name)

    def is_file(self, name: str) -> bool:
        """Whether a name is a file's, also when it is not clear which one's."""
        known = self._meant(name) is not None or name in self._by_last
        return known or (self._behind is not None and self._behind.is_file(name))

    def _meant(self, name: str) -> str | None:
        if name in self._lines:
            return name
        plain = name.replace("\\", "/").removeprefix("./")
        if plain in self._lines:
            return plain
        if plain.startswith("/") or plain[1:3] == ":/":
            return next((tail for tail in _tails(plain) if tail in self._lines), None)
        ending = [path for path in self._by_last.get(plain.rpartition("/")[2], ()) if path.endswith(f"/{plain}")]
        return ending[0] if len(ending) == 1 else None

    @cached_property
    def _by_last(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for path in self._lines:
            found[path.rpartition("/")[2]].append(path)
        return dict(found)


def check(places: Iterable[Cited], files: Files, shown: ShownLines | None = None) -> tuple[CheckedCitation, ...]:
    """Each distinct place once, in order of its first appearance."""
    return tuple(dict.fromkeys(_checked(one, files, shown) for one in places))


def _checked(place: Cited, files: Files, shown: ShownLines | None) -> CheckedCitation:
    start, end = place.start, place.end
    path = files.meant(place.path)
    if path is None:
        return CheckedCitation(place.path, start, end, False, None if shown is None else False, NO_FILE)
    seen = None if shown is None else shown.has(path, start, end)
    if start < 1 or end < start:
        return CheckedCitation(path, start, end, False, seen, "not a range of lines")
    if end > files.count(path):
        return CheckedCitation(path, start, end, False, seen, f"the file has {files.count(path)} lines")
    if seen is False:
        return CheckedCitation(path, start, end, False, seen, NOT_SHOWN)
    return CheckedCitation(path, start, end, True, seen)


def _tails(path: str) -> Iterable[str]:
    """What an absolute path ends in, longest first."""
    parts = path.split("/")
    return ("/".join(parts[at:]) for at in range(1, len(parts)))
