"""Places of all chunks of a codex in their order, as arrays: 12 bytes each beside the paths.

As objects a million took 130 MB, and the garbage collector looked at each of them.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codex.archive.definitions import ChunkPlace


@dataclass(frozen=True, eq=False)
class Places:
    """Sorted by path, start and end. `paths` are sorted; `numbers`, `starts` and `ends` have one value a place."""

    paths: Sequence[str]
    numbers: NDArray[np.int32]
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: int) -> ChunkPlace:
        return ChunkPlace(self.paths[self.numbers[at]], int(self.starts[at]), int(self.ends[at]))

    def __iter__(self) -> Iterator[ChunkPlace]:
        return map(self.__getitem__, range(len(self)))

    def at(self, place: ChunkPlace) -> int | None:
        """Where a place stands; None for one that is not among them."""
        number = bisect_left(self.paths, place.path)
        if number == len(self.paths) or self.paths[number] != place.path:
            return None
        first, last = np.searchsorted(self.numbers, [number, number + 1])
        within = np.flatnonzero((self.starts[first:last] == place.start) & (self.ends[first:last] == place.end))
        return int(first + within[0]) if len(within) else None

    def heads(self) -> NDArray[np.int64]:
        """Where the first place of each path stands, in the order of paths."""
        return np.searchsorted(self.numbers, np.arange(len(self.paths)))


def places_of(
    paths: Sequence[str], numbers: NDArray[np.int32], starts: NDArray[np.int32], ends: NDArray[np.int32]
) -> tuple[Places, NDArray[np.int64]]:
    """These places, given in any order with paths in any order, and which of the given ones each is."""
    by_name = sorted(range(len(paths)), key=paths.__getitem__)
    rank = np.empty(len(paths), np.int32)
    rank[by_name] = np.arange(len(paths), dtype=np.int32)
    ranked = rank[numbers]
    order = np.lexsort((ends, starts, ranked))
    return Places([paths[at] for at in by_name], ranked[order], starts[order], ends[order]), order
