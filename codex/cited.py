"""Finds the places that a text cites, in the ways in which people and models write them. Pure.

    src/a.py:10   src/a.py:10-12   src/a.py#L10-L12   src\\a.py:10   Makefile:3   C:\\x\\a.py:10:5
    `src/a.py`, lines 10–12   src/a.py (line 10)   lines 10 to 12 of `src/a.py`   File "src/a.py", line 10

A name that no file is known by counts only when it looks like a file's: hosts with ports, times, ratios, `std::vector`
and keys with values are no places. Knows no codex: who asks says which names are files.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from codex.outline.languages import LANGUAGES

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


@dataclass(frozen=True, slots=True)
class Cited:
    """A place as a text wrote it: characters `at`–`to` of the text, path, lines (1-based, inclusive)."""

    path: str
    start: int
    end: int
    at: int
    to: int


IsFile = Callable[[str], bool]


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
