"""The segments of a store, by name and by what they go on from, and in which order they go. Knows no files and no budgets.

root ─▶ [0, 256) ─▶ [256, 512) ─┬─▶ alice [512, 600)      the last of each chain may leave: behind a gap
                                └─▶ bob   [512, 768)      nothing is found any more
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.engine.cache.eviction import PrefillCost, retention_value
from orchestrator.engine.checkpoints.file import SegmentHeader
from orchestrator.engine.checkpoints.writer import Put


@dataclass(eq=False)
class StoredSegment:
    """One segment on disk, or on its way there."""

    header: SegmentHeader
    size: int = 0  # bytes of its file
    waiting: Put | None = None  # its write, until the store has taken note of it
    used: int = 0  # clock of the last use


class Index:
    """Segments of one root."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._kept: dict[str, StoredSegment] = {}
        self._below: dict[str, dict[str, None]] = {}
        self._clock = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: str) -> StoredSegment | None:
        return self._kept.get(name)

    def use(self, header: SegmentHeader) -> StoredSegment:
        """The entry of a segment, made if need be; from now on it is the one used last."""
        kept = self._kept.setdefault(header.name, StoredSegment(header))
        self._below.setdefault(header.parent, {})[header.name] = None
        self._clock += 1
        kept.used = self._clock
        return kept

    def remove(self, name: str) -> StoredSegment | None:
        kept = self._kept.pop(name, None)
        if kept is not None:
            siblings = self._below[kept.header.parent]
            del siblings[name]
            if not siblings:
                del self._below[kept.header.parent]
        return kept

    def below(self, name: str) -> list[SegmentHeader]:
        """The segments that go on from this one."""
        return [self._kept[below].header for below in self._below.get(name, ())]

    def leaving(self, prefill_cost: PrefillCost) -> Iterator[StoredSegment]:
        """What is given up, worth least first, each after all that go on from it.

        The caller removes each before it asks for the next. What lies behind a gap already goes before all others.
        """
        waiting = [self._entry(kept, prefill_cost) for kept in self._kept.values() if self._may_go(kept)]
        heapq.heapify(waiting)
        while waiting:
            kept = heapq.heappop(waiting)[-1]
            if self._kept.get(kept.header.name) is not kept:
                continue
            above, below = self._kept.get(kept.header.parent), tuple(self._below.get(kept.header.name, ()))
            yield kept
            for freed in (above, *map(self._kept.get, below)):
                if freed is not None and self._may_go(freed):
                    heapq.heappush(waiting, self._entry(freed, prefill_cost))

    def _entry(self, kept: StoredSegment, prefill_cost: PrefillCost) -> tuple[float, int, int, StoredSegment]:
        header = kept.header
        loss = (
            0.0
            if self._cut_off(kept)
            else retention_value(prefill_cost, header.start, header.end, self._clock - kept.used)
        )
        return loss, kept.used, id(kept), kept

    def _may_go(self, kept: StoredSegment) -> bool:
        return self._cut_off(kept) or kept.header.name not in self._below

    def _cut_off(self, kept: StoredSegment) -> bool:
        return kept.header.parent != self._root and kept.header.parent not in self._kept
