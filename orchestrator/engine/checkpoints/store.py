"""Checkpoints of segments below VRAM: host RAM, then disk, each within its budget.

A segment is found by its parent and by the ids that come next, so that a short last segment of a conversation is found
too. What is pushed out of RAM goes to disk, what is pushed out of the disk's budget is deleted: first what is worth least,
but nothing before what goes on from it. Deleting the whole folder at any moment is safe. Files are written and deleted in
a thread of its own; the loop never waits for it, and saves no more than a bounded heap ahead of it. Every fault of a file
is a miss and is logged. Knows no tree and no llama.cpp.
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.engine.cache.eviction import CARRIED_IN_A_SECOND, UNSEEN, Price
from orchestrator.engine.checkpoints.checkpoint_folder import SUFFIX, checkpoints, usable
from orchestrator.engine.checkpoints.file import DamagedCheckpoint, SegmentHeader
from orchestrator.engine.checkpoints.index import Index, StoredSegment
from orchestrator.engine.checkpoints.reading import Reader
from orchestrator.engine.checkpoints.writer import Writer
from orchestrator.engine.messages import Tier

IN_HAND = 256 << 20  # bytes of states that wait for the disk, beyond which nothing is saved ahead of it

SPARE = 64  # of a full tier one part in so many is made free at once: finding what goes looks at all that is there

FORETOLD = 256  # tokens that this counts for, beside those that were restored

log = logging.getLogger("lorekeep.engine.tiers")


@dataclass
class TierCounters:
    ram_hits: int = 0
    disk_hits: int = 0
    misses: int = 0
    damaged: int = 0
    restored_bytes: int = 0
    restored_tokens: int = 0
    restored_ms: float = 0.0
    ram_evicted: int = 0
    disk_evicted: int = 0
    write_failures: int = 0


@dataclass
class Tiers:
    """All segments of one root. `folder` None: no disk tier. Budgets in bytes.

    `twice`: whether RAM may hold what has a file too. Where the cells lie on a GPU that saves reading it; where they lie in
    RAM it would hold a floor there twice, and the system's page cache does the same with memory that nobody else wants.
    `written` is called in the writer's thread after each file: there is something to `settle`. `price` is what a prompt
    token costs, as known now: it is set where a keeper is made (`keepers`).
    """

    root: str
    folder: Path | None
    ram_budget: int
    disk_budget: int
    twice: bool = True
    written: Callable[[], None] = lambda: None
    price: Callable[[], Price] = lambda: UNSEEN
    counters: TierCounters = field(default_factory=TierCounters)

    def __post_init__(self) -> None:
        self._index = Index(self.root)
        self.ram_bytes = 0
        self.disk_bytes = 0
        self._bytes_per_token = 0.0
        self._disk_fails = False
        self._writer = Writer(self._failed, self.written)
        self._reader = Reader()
        if self.folder is not None and not usable(self.folder):
            self.folder = None
        if self.folder is not None:
            self._find_files(self.folder)

    # -- keeping

    def holds(self, name: str) -> bool:
        return self._index.get(name) is not None

    def arrived(self, name: str) -> bool:
        """Whether a segment lies in a tier for good, and not only in the writer's hands."""
        kept = self._index.get(name)
        return kept is not None and (kept.on_disk > 0 or self._only_in_ram(kept))

    def keep(self, header: SegmentHeader, state: bytes, *, through: bool) -> None:
        """Takes a segment's state. `through`: write it to disk now, not only when RAM runs out. Where it has no
        budget it runs out at once."""
        kept = self._index.use(header)
        self._bytes_per_token = len(state) / len(header.ids)
        if kept.state is None and (self.twice or not kept.on_disk):
            kept.state = state
            self.ram_bytes += len(state)
        if through or (not self.ram_budget and not self.crowded()):
            self._write(kept)
        self._fit_ram()

    def load(self, header: SegmentHeader) -> tuple[bytes, Tier] | None:
        """The state of a segment and where it was; None when it is gone or damaged, and then forgotten."""
        kept = self._index.get(header.name)
        if kept is None:
            self.counters.misses += 1
            return None
        self._index.use(header)
        if kept.state is not None:
            self.counters.ram_hits += 1
            self.counters.restored_bytes += len(kept.state)
            return kept.state, Tier.RAM
        return self._load_file(kept)

    def brought(self, tokens: int, seconds: float) -> None:
        """So many tokens stand in the cells again, which took so long from the search for them on."""
        self.counters.restored_tokens += tokens
        self.counters.restored_ms += seconds * 1000

    def restore_ms(self) -> float:
        """What it takes to bring back a token, as seen so far; before that, by its bytes."""
        seen, foretold = self.counters, FORETOLD * self._bytes_per_token * 1000 / CARRIED_IN_A_SECOND
        return (seen.restored_ms + foretold) / (seen.restored_tokens + FORETOLD)

    def expect(self, header: SegmentHeader) -> None:
        """A segment that will be loaded next: reads it ahead where it lies on disk alone."""
        kept = self._index.get(header.name)
        if kept is not None and kept.state is None:
            self._reader.expect(self._path(header.name), header)

    def forget(self, name: str) -> None:
        """Drops a segment from every tier."""
        kept = self._index.remove(name)
        if kept is None:
            return
        if kept.state is not None:
            self.ram_bytes -= len(kept.state)
        if kept.on_disk:
            self.disk_bytes -= kept.on_disk
            self._writer.drop(self._path(name))

    def below(self, name: str) -> list[SegmentHeader]:
        """The segments that go on from this one."""
        return self._index.below(name)

    def tier(self, header: SegmentHeader) -> Tier:
        """Where a kept segment would come from."""
        kept = self._index.get(header.name)
        return Tier.DISK if kept is None or kept.state is None else Tier.RAM

    def figures(self) -> dict[str, float]:
        """Counters and bytes, for statistics."""
        sizes = {"segments": len(self._index), "ram_bytes": self.ram_bytes, "disk_bytes": self.disk_bytes}
        return {f"tier_{name}": value for name, value in {**vars(self.counters), **sizes}.items()}

    def takes_one(self) -> bool:
        """Whether a segment that leaves the cells now has a place below: in RAM, or on a disk that keeps up. If not, it
        need not be saved."""
        return self.ram_budget > 0 or (self.folder is not None and not self.crowded())

    def lost_one(self) -> None:
        """A segment left the cells that had no place below."""
        self.counters.ram_evicted += 1

    def crowded(self) -> bool:
        """Whether so much waits for the disk that more should wait in the cells; `written` tells when it may go on."""
        return self._writer.in_hand() >= IN_HAND

    def flush(self) -> None:
        """Waits until all that was to be written or deleted is, and nothing is being read."""
        self._reader.settle()
        self._writer.flush()
        self.settle()
        self._writer.flush()  # files that went with that

    def settle(self) -> None:
        """Takes note of what the writer finished and keeps the budgets; only the loop changes the index."""
        for name, size in self._writer.finished():
            self._note_written(name, size)

    def close(self) -> None:
        self.flush()
        self._writer.close()
        self._reader.close()

    # -- RAM to disk

    def _fit_ram(self) -> None:
        """Sends out of RAM what is worth least, until it is within the budget; what is being written goes once it is. What
        would go to a disk that does not keep up is lost."""
        over = self.ram_bytes - self.ram_budget - sum(self._size_in_ram(name) for name in self._writer.pending())
        if over <= 0:
            return
        for kept in self._index.leaving(self._only_in_ram, self.price()):
            if over <= -(self.ram_budget // SPARE):
                return
            over -= self._size_in_ram(kept.header.name)
            if kept.on_disk:
                self.counters.ram_evicted += 1
                self._leave_ram(kept)
            elif self.folder is not None and not self.crowded():
                self._write(kept)
            else:
                self.counters.ram_evicted += 1
                self.forget(kept.header.name)

    def _only_in_ram(self, kept: StoredSegment) -> bool:
        return kept.state is not None and not self._writer.has(kept.header.name)

    def _size_in_ram(self, name: str) -> int:
        kept = self._index.get(name)
        return len(kept.state) if kept is not None and kept.state is not None else 0

    def _leave_ram(self, kept: StoredSegment) -> None:
        assert kept.state is not None and kept.on_disk
        self.ram_bytes -= len(kept.state)
        kept.state = None

    def _write(self, kept: StoredSegment) -> None:
        if self.folder is None or kept.on_disk or kept.state is None or self._writer.has(kept.header.name):
            return
        self._writer.put(self._path(kept.header.name), kept.header, kept.state)

    def _failed(self, name: str, error: OSError) -> None:
        """Told once, until a write succeeds again: a full disk fails each one."""
        self.counters.write_failures += 1
        if not self._disk_fails:
            log.warning("checkpoint %s was not written: %s", name[:12], error.strerror or error)
        self._disk_fails = True

    def _note_written(self, name: str, size: int) -> None:
        kept = self._index.get(name)
        if kept is None:
            self._writer.drop(self._path(name))
            return
        if size:
            self._disk_fails = False
            self.disk_bytes += size - kept.on_disk
            kept.on_disk = size
            self._fit_disk()
        over = self.ram_bytes > self.ram_budget
        if kept.state is None or not (over or (kept.on_disk and not self.twice)):
            return
        self.counters.ram_evicted += over
        if kept.on_disk:
            self._leave_ram(kept)
        else:
            self.forget(name)

    # -- disk

    def _fit_disk(self) -> None:
        if self.disk_bytes <= self.disk_budget:
            return
        for kept in self._index.leaving(lambda kept: kept.on_disk > 0, self.price()):
            if self.disk_bytes <= self.disk_budget - self.disk_budget // SPARE:
                return
            self.counters.disk_evicted += 1
            if kept.state is not None:
                self.disk_bytes -= kept.on_disk
                kept.on_disk = 0
                self._writer.drop(self._path(kept.header.name))
            else:
                self.forget(kept.header.name)

    def _load_file(self, kept: StoredSegment) -> tuple[bytes, Tier] | None:
        path = self._path(kept.header.name)
        try:
            state = self._reader.read(path, kept.header)
        except (OSError, DamagedCheckpoint) as error:
            self._damaged(error)
            self.forget(kept.header.name)
            return None
        with suppress(OSError):
            os.utime(path)  # the next process takes its order of use from here
        self.counters.disk_hits += 1
        self.counters.restored_bytes += len(state)
        return state, Tier.DISK

    def _find_files(self, folder: Path) -> None:
        """Builds the index from the files' headers, longest unused first."""
        for header, size in checkpoints(folder, self.root, self._damaged):
            self._index.use(header).on_disk = size
            self.disk_bytes += size
        self._fit_disk()

    def _damaged(self, error: Exception) -> None:
        log.warning("a checkpoint is not usable and was dropped: %s", error)
        self.counters.damaged += 1

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}{SUFFIX}"
