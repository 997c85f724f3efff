"""Checkpoints of segments below VRAM: host RAM, then disk, each within its budget.

A segment is found by its parent and by the ids that come next, so that a short last segment of a conversation is found
too. What is pushed out of RAM goes to disk, what is pushed out of the disk's budget is deleted, longest unused first, but
nothing before what goes on from it. Deleting the whole folder at any moment is safe. Writing happens in a thread of its
own; the loop never waits for it, and saves no more than a bounded heap ahead of it. Every fault of a file is a miss and
is logged. Knows no tree and no llama.cpp.
"""

import logging
import os
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.engine.checkpoint_file import Damaged, Header
from orchestrator.engine.checkpoint_folder import SUFFIX, checkpoints, delete, usable
from orchestrator.engine.messages import Tier
from orchestrator.engine.node import common_prefix
from orchestrator.engine.reading import Reader
from orchestrator.engine.segments import named
from orchestrator.engine.writer import Writer

IN_HAND = 256 << 20  # bytes of states that wait for the disk, beyond which nothing is saved ahead of it

log = logging.getLogger("lorekeep.engine.tiers")


@dataclass
class TierCounters:
    ram_hits: int = 0
    disk_hits: int = 0
    misses: int = 0
    damaged: int = 0
    restored_bytes: int = 0
    ram_evicted: int = 0
    disk_evicted: int = 0
    write_failures: int = 0


@dataclass
class Kept:
    """Where one segment lies: its state in RAM, or its bytes on disk, or both."""

    header: Header
    state: bytes | None = None
    on_disk: int = 0  # bytes of the file; 0: not there


@dataclass
class Tiers:
    """All segments of one root. `folder` None: no disk tier. Budgets in bytes.

    `twice`: whether RAM may hold what has a file too. Where the cells lie on a GPU that saves reading it; where they lie in
    RAM it would hold a floor there twice, and the system's page cache does the same with memory that nobody else wants.
    `written` is called in the writer's thread after each file: there is something to `settle`.
    """

    root: str
    folder: Path | None
    ram_budget: int
    disk_budget: int
    twice: bool = True
    written: Callable[[], None] = lambda: None
    counters: TierCounters = field(default_factory=TierCounters)

    def __post_init__(self) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()  # longest unused first
        self._below: dict[str, dict[str, None]] = {}
        self.ram_bytes = 0
        self.disk_bytes = 0
        self._disk_fails = False
        self._writer = Writer(self._failed, self.written)
        self._reader = Reader()
        if self.folder is not None and not usable(self.folder):
            self.folder = None
        if self.folder is not None:
            self._find_files(self.folder)

    # -- keeping

    def holds(self, name: str) -> bool:
        return name in self._kept

    def keep(self, header: Header, state: bytes, *, through: bool) -> None:
        """Takes a segment's state. `through`: write it to disk now, not only when RAM runs out."""
        kept = self._kept.setdefault(header.name, Kept(header))
        self._below.setdefault(header.parent, {})[header.name] = None
        if kept.state is None and (self.twice or not kept.on_disk):
            kept.state = state
            self.ram_bytes += len(state)
        self._kept.move_to_end(header.name)
        if through:
            self._write(kept)
        self._fit_ram()

    def find(self, parent: str, ground: str, ids: "array[int]", at: int) -> tuple[Header, int] | None:
        """The segment behind `parent`, named on `ground`, that shares most with `ids` from `at` on, and how much."""
        best: tuple[Header, int] | None = None
        for name in self._below.get(parent, ()):
            header = self._kept[name].header
            shared = common_prefix(header.ids, ids, at) if header.start == at else 0
            if shared > (best[1] if best else 0) and named(ground, header.ids) == name:
                best = header, shared
        return best

    def load(self, header: Header) -> tuple[bytes, Tier] | None:
        """The state of a segment and where it was; None when it is gone or damaged, and then forgotten."""
        kept = self._kept.get(header.name)
        if kept is None:
            self.counters.misses += 1
            return None
        self._kept.move_to_end(header.name)
        if kept.state is not None:
            self.counters.ram_hits += 1
            self.counters.restored_bytes += len(kept.state)
            return kept.state, Tier.RAM
        return self._load_file(kept)

    def expect(self, header: Header) -> None:
        """A segment that will be loaded next: reads it ahead where it lies on disk alone."""
        kept = self._kept.get(header.name)
        if kept is not None and kept.state is None:
            self._reader.expect(self._path(header.name), header)

    def forget(self, name: str) -> None:
        """Drops a segment from every tier."""
        kept = self._kept.pop(name, None)
        if kept is None:
            return
        self._below[kept.header.parent].pop(name, None)
        if not self._below[kept.header.parent]:
            del self._below[kept.header.parent]
        if kept.state is not None:
            self.ram_bytes -= len(kept.state)
        if kept.on_disk:
            self.disk_bytes -= kept.on_disk
            delete(self._path(name))

    def below(self, name: str) -> Iterator[Header]:
        """The segments that go on from this one."""
        return (self._kept[below].header for below in tuple(self._below.get(name, ())))

    def has_below(self, name: str) -> bool:
        return bool(self._below.get(name))

    def forget_below(self, name: str) -> None:
        """Drops all segments that go on from this one, whoever owns them."""
        for below in list(self._below.get(name, ())):
            self.forget_below(below)
            self.forget(below)

    def figures(self) -> dict[str, float]:
        """Counters and bytes, for statistics."""
        sizes = {"segments": len(self._kept), "ram_bytes": self.ram_bytes, "disk_bytes": self.disk_bytes}
        return {f"tier_{name}": value for name, value in {**vars(self.counters), **sizes}.items()}

    def crowded(self) -> bool:
        """Whether so much waits for the disk that more should wait in the cells; `written` tells when it may go on."""
        return self._writer.in_hand() >= IN_HAND

    def flush(self) -> None:
        """Waits until all that was to be written is written, and nothing is being read."""
        self._reader.settle()
        self._writer.flush()
        self.settle()

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
        """Sends the oldest out of RAM until what stays is within the budget; what is being written goes once it is."""
        over = self.ram_bytes - self.ram_budget - sum(self._size_in_ram(name) for name in self._writer.pending())
        while over > 0 and (kept := self._oldest(self._only_in_ram)) is not None:
            over -= self._size_in_ram(kept.header.name)
            if kept.on_disk:
                self.counters.ram_evicted += 1
                self._leave_ram(kept)
            elif self.folder is not None:
                self._write(kept)
            else:
                self.counters.ram_evicted += 1
                self.forget(kept.header.name)

    def _only_in_ram(self, kept: Kept) -> bool:
        return kept.state is not None and not self._writer.has(kept.header.name)

    def _size_in_ram(self, name: str) -> int:
        kept = self._kept.get(name)
        return len(kept.state) if kept is not None and kept.state is not None else 0

    def _oldest(self, there: Callable[[Kept], bool]) -> Kept | None:
        """The longest unused in a tier from which nothing there goes on: behind a gap a segment is found no more.

        What already lies behind one goes first.
        """
        oldest = None
        for name, kept in self._kept.items():
            if there(kept):
                if kept.header.parent != self.root and kept.header.parent not in self._kept:
                    return kept
                if oldest is None and not any(there(self._kept[below]) for below in self._below.get(name, ())):
                    oldest = kept
        return oldest

    def _leave_ram(self, kept: Kept) -> None:
        assert kept.state is not None and kept.on_disk
        self.ram_bytes -= len(kept.state)
        kept.state = None

    def _write(self, kept: Kept) -> None:
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
        kept = self._kept.get(name)
        if kept is None:
            delete(self._path(name))
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
        while self.disk_bytes > self.disk_budget and (kept := self._oldest(lambda kept: kept.on_disk > 0)) is not None:
            self.counters.disk_evicted += 1
            if kept.state is not None:
                self.disk_bytes -= kept.on_disk
                kept.on_disk = 0
                delete(self._path(kept.header.name))
            else:
                self.forget(kept.header.name)

    def _load_file(self, kept: Kept) -> tuple[bytes, Tier] | None:
        path = self._path(kept.header.name)
        try:
            state = self._reader.read(path, kept.header)
        except (OSError, Damaged) as error:
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
            self._kept[header.name] = Kept(header, on_disk=size)
            self._below.setdefault(header.parent, {})[header.name] = None
            self.disk_bytes += size
        self._fit_disk()

    def _damaged(self, error: Exception) -> None:
        log.warning("a checkpoint is not usable and was dropped: %s", error)
        self.counters.damaged += 1

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}{SUFFIX}"
