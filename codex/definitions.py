"""Where each name is defined: chunks by the names that they define, kept up to date file by file.

Knows nothing of how chunks are stored. Not thread-safe: its owner holds a lock for changes; look-ups may run beside them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Lines `start`–`end` (1-based, inclusive) of a file: one chunk."""

    path: str
    start: int
    end: int


_TELLING = 64  # `__init__`, `get`, `main`: what so many define leads nowhere, and costs time


class Definitions:
    """Names to the chunks that define them."""

    def __init__(self) -> None:
        self._by_name: dict[
            str, list[Place]
        ] = {}  # a list is never changed once a look-up may hold it, only appended to
        self._by_path: dict[str, tuple[str, ...]] = {}

    def replace(self, path: str, chunks: Iterable[tuple[Place, Sequence[str]]]) -> None:
        """What `path` defines now, in place of what it defined."""
        for name in self._by_path.pop(path, ()):
            left = [place for place in self._by_name.get(name, ()) if place.path != path]
            if left:
                self._by_name[name] = left
            else:
                self._by_name.pop(name, None)
        names: dict[str, None] = {}
        for place, defined in chunks:
            for name in defined:
                self._by_name.setdefault(name, []).append(place)
                names[name] = None
        if names:
            self._by_path[path] = tuple(names)

    def of(self, name: str) -> tuple[Place, ...]:
        """The chunks that define a name, in no particular order; empty when none does, or when more than 64 do."""
        places = self._by_name.get(name, ())
        return tuple(places) if len(places) <= _TELLING else ()
