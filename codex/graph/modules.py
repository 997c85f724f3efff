"""Which files an import names: `flask.json.provider`, `./util`, `<net/socket.h>`, `com.acme.Thing`.

Found by the longest run of trailing parts that is unique among the codebase's paths. Knows no language: dots, slashes and
`::` all separate parts.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import PurePosixPath

_PARTED = re.compile(r"[./\\]|::")
_INDEX_NAMES = frozenset({"__init__", "index", "mod", "lib", "main"})
_AMBIGUOUS = 3  # files that one import may lead to


class Modules:
    """The files of a codebase by the trailing parts of their names."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_tail: dict[str, list[str]] = defaultdict(list)
        self._parts: dict[str, tuple[str, ...]] = {}
        self._named: dict[str, list[str]] = {}  # what was asked before: the same modules are imported everywhere
        for path in sorted(paths):
            parts = _parts_of(path)
            if parts:
                self._parts[path] = parts
                self._by_tail[parts[-1]].append(path)

    def of(self, imported: str, by: str = "") -> tuple[str, ...]:
        """Paths that an import may mean, at most three; those nearest to the importing file `by` first."""
        found = self._named.get(imported)
        if found is None:
            found = self._named[imported] = self._meant(imported)
        if len(found) <= 1:
            return tuple(found)
        return tuple(sorted(found, key=lambda path: (-_shared(path.split("/"), by.split("/")), path))[:_AMBIGUOUS])

    def _meant(self, imported: str) -> list[str]:
        parts = [part for part in _PARTED.split(imported.strip()) if part.isidentifier() or "-" in part]
        if parts and imported.rstrip().endswith((".h", ".hpp", ".js", ".ts", ".css", ".rb")):
            parts.pop()
        for tail in (parts, parts[:-1]):  # the last part may be a name inside the module
            found = self._ending(tail) if tail else []
            if found:
                return found
        return []

    def _ending(self, tail: list[str]) -> list[str]:
        """Files whose parts end in as much of the tail as any file's do; none when that is only a common last part."""
        candidates = self._by_tail.get(tail[-1], [])
        matched = [(_shared(self._parts[path][::-1], tail[::-1]), path) for path in candidates]
        best = max((count for count, _ in matched), default=0)
        found = [path for count, path in matched if count == best]
        return found if best == len(tail) or len(found) == 1 else []


def _parts_of(path: str) -> tuple[str, ...]:
    pure = PurePosixPath(path)
    parts = (*pure.parts[:-1], pure.stem)
    return parts[:-1] if parts[-1] in _INDEX_NAMES and len(parts) > 1 else parts


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Leading parts that both have."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
