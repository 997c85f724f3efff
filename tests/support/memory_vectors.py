"""Vectors in memory: every one compared, for tests and as the oracle of the index on disk."""

import math
import threading
from collections.abc import Collection, Mapping, Sequence

from codex.vectors.embedder import Space


class MemoryVectors:
    """A `VectorIndex` that lives as long as the process."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, Space], dict[str, tuple[float, ...]]] = {}
        self._writing = threading.Lock()

    def held(self, codex: str, space: Space) -> frozenset[str]:
        return frozenset(self._held.get((codex, space), ()))

    def count(self, codex: str, space: Space) -> int:
        return len(self._held.get((codex, space), ()))

    def add(self, codex: str, space: Space, vectors: Mapping[str, Sequence[float]]) -> None:
        if vectors:
            with self._writing:
                new = {digest: tuple(vector) for digest, vector in vectors.items()}
                self._held[codex, space] = {**new, **self._held.get((codex, space), {})}

    def adopt(self, codex: str, space: Space, digests: Collection[str]) -> frozenset[str]:
        found: dict[str, Sequence[float]] = {}
        for (other, same), vectors in list(self._held.items()):
            if other != codex and same == space:
                found.update({digest: vectors[digest] for digest in digests if digest in vectors})
        self.add(codex, space, found)
        return frozenset(found)

    def nearest(self, codex: str, space: Space, vector: Sequence[float], n: int) -> tuple[tuple[str, float], ...]:
        held = self._held.get((codex, space), {})
        found = ((digest, _cosine(vector, other)) for digest, other in held.items())
        return tuple(sorted(found, key=lambda pair: (-pair[1], pair[0]))[: max(0, n)])

    def sweep(self, codex: str, space: Space, used: Collection[str]) -> int:
        with self._writing:
            for key in [key for key in self._held if key[0] == codex and key[1] != space]:
                del self._held[key]
            held = self._held.get((codex, space), {})
            kept = {digest: held[digest] for digest in held.keys() & set(used)}
            unused = len(held) - len(kept)
            if unused <= len(used):
                return 0
            self._held[codex, space] = kept
        return unused

    def drop(self, codex: str) -> None:
        with self._writing:
            for key in [key for key in self._held if key[0] == codex]:
                del self._held[key]

    def codices(self) -> frozenset[str]:
        return frozenset(codex for codex, _ in self._held)

    def close(self) -> None:
        """There is no file."""


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) / (math.hypot(*one) * math.hypot(*other))
