"""Finds the places that an answer cites, and checks each against what the answer was shown. Pure.

    src/a.py:10   src/a.py:10-12   src/a.py#L10-L12   src\\a.py:10   Makefile:3   C:\\x\\a.py:10:5
    `src/a.py`, lines 10–12   src/a.py (line 10)   lines 10 to 12 of `src/a.py`   File "src/a.py", line 10

A citation is valid when its file exists, has these lines, and the prompt held them: as text, or as the line that a
skeleton or a map lists for them. A place that was not shown is invalid even if it exists: the answer invented it.

A name that is not a file's is a citation only when it looks like a file name: hosts with ports, times, ratios,
`std::vector` and keys with values are not places.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

from codex.outline.languages import LANGUAGES

NO_FILE = "no such file in this codex"
NOT_SHOWN = "these lines were not shown"
_NUMBER = r"\d{1,7}(?!\w)(?!\.\d)"
_TO = r"\s?(?:[-–—]|\bto\b|\bthrough\b)\s?"
_COLUMN = r"(?:C\d{1,5})?"
_LINES = rf"(?:#L|:L?)(?P<start>\d{{1,7}}){_COLUMN}(?:\s?[-–—]\s?L?(?P<end>\d{{1,7}}){_COLUMN})?(?!\w)(?!\.\d)"
_SAID = rf"(?:lines?|ll?\.|L)\s?(?P<start>{_NUMBER})(?:{_TO}(?:line\s)?(?P<end>{_NUMBER}))?"
_SIGNS = r"\w.~+@%\-"
_PATH = rf"(?<![{_SIGNS}/\\:])(?P<path>(?:[A-Za-z]:[/\\])?[{_SIGNS}/\\]+)"
_CLOSED = r"[`'\"*_\])]{0,4}"
_SHORT = re.compile(rf"{_PATH}{_CLOSED}{_LINES}")
_LONG = re.compile(rf"{_PATH}{_CLOSED}[,:;]?\s{{0,2}}[(\[]?(?:at|on|in|from|around)?\s?{_SAID}", re.IGNORECASE)
_BEFORE = re.compile(rf"\b{_SAID} (?:of|in|from) (?:the )?(?:file )?[`'\"*_\[(]{{0,4}}{_PATH}", re.IGNORECASE)
_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s)>\]\"'`]*")
_WIDEST = 120  # characters to the left of a name that may belong to it: spaces and brackets stand in names, too
_EDGE = re.compile(r"(?:^|(?<=[\s`'\"(\[*]))(?=[^\s`'\"*])")
_MORE_ENDINGS = """
    txt rst adoc org tex log csv tsv ini cfg conf env lock xml svg proto graphql vue svelte ipynb patch diff
    swift m mm dart ex exs erl hs ml mli fs clj cljs r jl pl pm tcl vim el zig nim v vhd asm s f f90 pas d
    gradle cmake mk bat cmd ps1 tf hcl nix bzl tmpl j2 jinja scss sass less jsonl json5 ndjson properties
"""
_BARE_NAMES = """
    Makefile GNUmakefile Dockerfile Containerfile Jenkinsfile Procfile Vagrantfile Rakefile Gemfile Brewfile Justfile
    justfile LICENSE LICENCE COPYING README CHANGELOG AUTHORS CONTRIBUTORS CODEOWNERS MAINTAINERS SConstruct Kconfig Kbuild
"""
_ENDINGS = {ending for language in LANGUAGES for ending in language.extensions} | {
    f".{end}" for end in _MORE_ENDINGS.split()
}
_NAMES = frozenset(_BARE_NAMES.split())
IsFile = Callable[[str], bool]


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


@dataclass(frozen=True)
class ShownLines:
    """What the prompt held, by path: `spans` of lines (1-based, inclusive), and `heads`, the lines that a skeleton or
    a map lists: a place that begins at one of them was shown by it."""

    spans: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    heads: Mapping[str, Collection[int]] = field(default_factory=dict)

    def has(self, path: str, start: int, end: int) -> bool:
        """Whether the prompt held every line of the place."""
        if start in self.heads.get(path, ()):
            return True
        at = start
        for first, last in sorted(self.spans.get(path, ())):
            if first <= at <= last:
                at = last + 1
        return at > end


@dataclass(frozen=True, slots=True)
class CheckedCitation:
    """A cited place after the check: `why` says what is wrong, '' when valid. `path` is the generation's own name of the
    file when one was found."""

    path: str
    start: int
    end: int
    why: str = ""

    @property
    def valid(self) -> bool:
        return not self.why


@dataclass(frozen=True, slots=True)
class Cited:
    """A place as a text wrote it: characters `at`–`to` of the text, path, lines (1-based, inclusive)."""

    path: str
    start: int
    end: int
    at: int
    to: int


def check(places: Iterable[Cited], files: Files, shown: ShownLines | None = None) -> tuple[CheckedCitation, ...]:
    """Each distinct place once, in order of its first appearance."""
    return tuple(dict.fromkeys(_checked(one, files, shown) for one in places))


def _checked(place: Cited, files: Files, shown: ShownLines | None) -> CheckedCitation:
    start, end = place.start, place.end
    path = files.meant(place.path)
    if path is None:
        return CheckedCitation(place.path, start, end, NO_FILE)
    why = ""
    if start < 1 or end < start:
        why = "not a range of lines"
    elif end > files.count(path):
        why = f"the file has {files.count(path)} lines"
    elif shown is not None and not shown.has(path, start, end):
        why = NOT_SHOWN
    return CheckedCitation(path, start, end, why)


def _tails(path: str) -> Iterable[str]:
    """What an absolute path ends in, longest first."""
    parts = path.split("/")
    return ("/".join(parts[at:]) for at in range(1, len(parts)))


def cited(text: str, is_file: IsFile = lambda name: False) -> tuple[Cited, ...]:  # noqa: ARG005
    """All places that a text cites, in order; a place that is cited again counts again. `is_file`: known names."""
    text = _URL.sub(lambda url: " " * len(url[0]), text)
    found: dict[int, Cited] = {}
    for pattern in (_SHORT, _LONG, _BEFORE):
        for match in pattern.finditer(text):
            path, at = _named(text, match, is_file)
            if path and match.start("start") not in found:
                start = int(match["start"])
                found[match.start("start")] = Cited(path, start, int(match["end"] or start), at, match.end())
    return tuple(sorted(found.values(), key=lambda one: one.at))


def looks_like_file(name: str) -> bool:
    """Whether an unknown name is a file's by its ending, or one of those that have none."""
    last = PurePosixPath(name.replace("\\", "/"))
    return last.name in _NAMES or last.suffix.lower() in _ENDINGS or _is_dot_file(last.name)


def _is_dot_file(name: str) -> bool:
    return name.startswith(".") and name[1:2].isalpha() and len(name) > 3


def _named(text: str, match: re.Match[str], is_file: IsFile) -> tuple[str, int]:
    """The name and where it begins; '' when it is no file's. A known longer name that ends here is meant before it."""
    path, at = match["path"], match.start("path")
    path = path.removeprefix("./")
    if is_file(path):
        return path, min(at, match.start())
    for wider in _wider(text, at):
        whole = text[wider : match.end("path")]
        if is_file(whole):
            return whole, min(wider, match.start())
    return (path, min(at, match.start())) if looks_like_file(path) else ("", at)


def _wider(text: str, at: int) -> Iterator[int]:
    """Where on the same line a longer name may begin, nearest first."""
    nearest = max(0, at - _WIDEST)
    first = max(text.rfind("\n", nearest, at) + 1, nearest)
    edges = [edge.start() for edge in _EDGE.finditer(text, first, at)]
    return reversed(edges)
