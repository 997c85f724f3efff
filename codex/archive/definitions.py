"""Where each name is defined: chunks by the names that they define, updated file by file.

    replaced lately (a dictionary) ──when they are many──▶ settled (arrays, 20 bytes a definition)

A gigabyte of source has 1.6 million definitions, which took 400 MB as objects. Settled names are stored by a hash of
64 bits: one in ten million such codebases has two names with the same hash.

Does not know how chunks are stored. Not thread-safe: the owner locks changes; look-ups may run in parallel.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, order=True)
class ChunkPlace:
    """Lines `start`–`end` (1-based, inclusive) of a file: one chunk."""

    path: str
    start: int
    end: int


_TELLING = 64  # `__init__`, `get`, `main`: what so many define leads nowhere, and costs time
_LATELY = 20_000  # definitions, 5 MB; settling them sorts all
_SHARE = 64  # or so small a part of those that are settled: of 1.5 million 14 MB less than with 16, and as quick

_Row = tuple[str, int, int]
_MANY: list[_Row] = [("", 0, 0)] * (_TELLING + 1)


class Definitions:
    """Names to the chunks that define them."""

    def __init__(self) -> None:
        self._state: tuple[_Settled | None, _Lately] = (None, _Lately())

    def replace(self, path: str, chunks: Iterable[tuple[ChunkPlace, Sequence[str]]]) -> None:
        """What `path` defines now, in place of what it defined."""
        settled, lately = self._state
        if settled is not None:
            settled.forget(path)
        lately.forget(path)
        for place, names in chunks:
            self.add(place, names)

    def add(self, place: ChunkPlace, names: Iterable[str]) -> None:
        """One more chunk of a path, beside what the path defines already."""
        settled, lately = self._state
        lately.add(place, names)
        if lately.count > max(_LATELY, (len(settled.names) if settled is not None else 0) // _SHARE):
            self._state = (_settled(settled, lately.rows()), _Lately())

    def of(self, name: str) -> tuple[ChunkPlace, ...]:
        """The chunks that define a name, sorted; empty when none does, or when more than 64 do."""
        return self.found((name,)).get(name, ())

    def found(self, names: Iterable[str]) -> dict[str, tuple[ChunkPlace, ...]]:
        """The chunks that define each of these names, sorted; names without one, or with more than 64, are left out."""
        settled, lately = self._state
        asked = list(dict.fromkeys(names))
        rows: list[list[_Row]] = [[] for _ in asked]
        if settled is not None:
            settled.look_up(asked, rows)
        for name, before in zip(asked, rows, strict=True):
            before.extend(lately.of(name))
        return {
            name: tuple(ChunkPlace(*row) for row in sorted(every))
            for name, every in zip(asked, rows, strict=True)
            if 0 < len(every) <= _TELLING
        }


class _Lately:
    """Definitions of files that were replaced since the last were settled."""

    def __init__(self) -> None:
        self.count = 0
        self._by_name: dict[str, list[_Row]] = {}  # a list is only appended to once a look-up may hold it
        self._by_path: dict[str, set[str]] = {}

    def forget(self, path: str) -> None:
        for name in self._by_path.pop(path, ()):
            left = [row for row in self._by_name.get(name, ()) if row[0] != path]
            if left:
                self._by_name[name] = left
            else:
                self._by_name.pop(name, None)

    def add(self, place: ChunkPlace, names: Iterable[str]) -> None:
        row = (place.path, place.start, place.end)
        ours = self._by_path.setdefault(place.path, set())
        for name in names:
            self._by_name.setdefault(name, []).append(row)
            ours.add(name)
            self.count += 1

    def of(self, name: str) -> Sequence[_Row]:
        return self._by_name.get(name, ())

    def rows(self) -> Iterator[tuple[int, str, int, int]]:
        for name, rows in self._by_name.items():
            key = hash(name)
            for path, start, end in rows:
                yield key, path, start, end


@dataclass(frozen=True)
class _Settled:
    """Definitions by the hash of their names, in its order; paths by their numbers."""

    names: "NDArray[np.int64]"
    paths: "NDArray[np.int32]"
    starts: "NDArray[np.int32]"
    ends: "NDArray[np.int32]"
    numbers: dict[str, int]  # of paths; these two only grow
    texts: list[str]
    gone: "NDArray[np.bool_]"  # by the path's number: what it defines stands elsewhere now

    def forget(self, path: str) -> None:
        number = self.numbers.get(path)
        if number is not None and number < len(self.gone):
            self.gone[number] = True

    def look_up(self, names: Sequence[str], rows: Sequence[list[_Row]]) -> None:
        """Adds the rows of each name to its own; to those of one that more define than are telling, more than those."""
        import numpy as np

        keys = np.fromiter(map(hash, names), np.int64, len(names))
        firsts = np.searchsorted(self.names, keys, "left")
        counts = np.searchsorted(self.names, keys, "right") - firsts
        some_gone = bool(self.gone.any())
        if not some_gone:
            for many in np.flatnonzero(counts > _TELLING).tolist():
                rows[many].extend(_MANY)
                counts[many] = 0
        owners = np.repeat(np.arange(len(names)), counts)
        at = np.repeat(firsts - np.cumsum(counts) + counts, counts) + np.arange(len(owners))
        if some_gone:
            there = ~self.gone[self.paths[at]]
            owners, at = owners[there], at[there]
        columns = (owners, self.paths[at], self.starts[at], self.ends[at])
        for owner, path, start, end in zip(*(column.tolist() for column in columns), strict=True):
            rows[owner].append((self.texts[path], start, end))


def _settled(before: _Settled | None, rows: Iterable[tuple[int, str, int, int]]) -> _Settled:
    """These definitions, one at least, beside those that stand, without what is gone."""
    import numpy as np

    numbers = before.numbers if before is not None else {}
    texts = before.texts if before is not None else []
    keys, paths, starts, ends = zip(*rows, strict=True)
    for path in dict.fromkeys(paths):
        if path not in numbers:
            numbers[path] = len(texts)
            texts.append(path)
    names = np.array(keys, np.int64)
    where = np.array([list(map(numbers.__getitem__, paths)), starts, ends], np.int32)
    if before is not None:
        there = ~before.gone[before.paths]
        names = np.concatenate([before.names[there], names])
        where = np.concatenate([np.array([before.paths, before.starts, before.ends])[:, there], where], axis=1)
    order = np.argsort(names, kind="stable")
    where = where[:, order]
    return _Settled(names[order], where[0], where[1], where[2], numbers, texts, np.zeros(len(texts), np.bool_))
