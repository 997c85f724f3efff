"""What the tiers hold, as an immutable value that another thread may search while the loop goes on.

It lies in shards, so that the next one is made by copying those in which something changed: a hundred thousand segments
took 20 ms to copy, and a new view is wanted ten times a second.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.engine.checkpoints.file import SegmentHeader
from orchestrator.engine.messages import Tier


@dataclass(frozen=True)
class Lies:
    """A kept segment and where it would come from."""

    header: SegmentHeader
    tier: Tier


Lying: TypeAlias = Mapping[str, tuple[Lies, ...]]  # by the name of what they go on from

SHARDS = 256


@dataclass(frozen=True)
class View:
    """Segments of one root."""

    root: str = ""
    shards: tuple[Lying, ...] = ({},) * SHARDS

    def below(self, name: str) -> list[SegmentHeader]:
        return [one.header for one in self._lying(name)]

    def tier(self, header: SegmentHeader) -> Tier:
        """Of a segment that it holds."""
        return next(one.tier for one in self._lying(header.parent) if one.header.name == header.name)

    def changed(self, news: Lying) -> "View":
        """What it is with these in the place of what lay there."""
        parts = defaultdict[int, dict[str, tuple[Lies, ...]]](dict)
        for name, lying in news.items():
            parts[shard_of(name)][name] = lying
        shards = list(self.shards)
        for number, part in parts.items():
            shards[number] = {name: lying for name, lying in {**shards[number], **part}.items() if lying}
        return View(self.root, tuple(shards))

    def _lying(self, name: str) -> tuple[Lies, ...]:
        return self.shards[shard_of(name)].get(name, ())


def shard_of(name: str) -> int:
    return hash(name) % SHARDS
