"""Checkpoints of segments on disk, within a budget of bytes that they share with those of models that are not loaded.

A segment is found by its parent and by the ids that come next, so that a short last segment of a conversation is found
too. Room is made before a file is written: the longest unused model's files go first, then what of this one is worth
least, but nothing before what goes on from it. Files are written, read ahead and deleted in threads; the loop never waits
for them, and saves no more than a bounded heap ahead of a slow disk. The system's page cache keeps recent files in memory.
Deleting the whole folder at any moment is safe. Every fault of a file is a miss and is logged. Knows no tree and no
llama.cpp.
"""

import hashlib
import heapq
import logging
import os
from array import array
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.engine.cache.eviction import CARRIED_IN_A_SECOND, retention_value
from orchestrator.engine.checkpoints.coding import PLAIN, Coding, DamagedCheckpoint
from orchestrator.engine.checkpoints.file import (
    SUFFIX,
    Arrival,
    Put,
    Reader,
    SegmentHeader,
    Writer,
    checkpoints,
    delete,
    file_size,
    other_models,
    read_header,
    reason,
)
from orchestrator.engine.prefill_cost import UNSEEN, PrefillCost

WAITING_BYTES = 256 << 20  # of states that wait for the disk, beyond which nothing is saved ahead of it
SPARE = 64  # of a full budget one part in so many is made free at once: finding what goes looks at all that is there
FORETOLD = 256  # tokens that the first estimate of a restore counts for, beside those that were restored
FADING = 0.98  # of what is known of restores, with each further one: a disk may become slow, and quick again
DOUBT = 0.5  # the same, with each prompt that is computed because restores are slow: else they were slow for ever

log = logging.getLogger("lorekeep.engine.checkpoints")


@dataclass
class CheckpointCounters:
    disk_hits: int = 0
    misses: int = 0
    damaged: int = 0
    restored_bytes: int = 0
    restored_tokens: int = 0
    restored_ms: float = 0.0
    lost_segments: int = 0  # evicted from the cells unsaved, because the disk did not keep up
    disk_evicted: int = 0
    write_failures: int = 0


@dataclass(eq=False)
class StoredSegment:
    """One segment on disk, or on its way there."""

    header: SegmentHeader
    size: int = 0  # bytes of its file
    waiting: Put | None = None  # its write, until the store has taken note of it
    used: int = 0  # clock of the last use


class Index:
    """The segments of one root, by name and by what they go on from, and in which order they go. Knows no files.

    root ─▶ [0, 256) ─▶ [256, 512) ─┬─▶ alice [512, 600)      the last of each chain may leave: behind a gap
                                    └─▶ bob   [512, 768)      nothing is found any more
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._segments: dict[str, StoredSegment] = {}
        self._continuations: dict[str, dict[str, None]] = {}
        self._clock = 0

    def __len__(self) -> int:
        return len(self._segments)

    def get(self, name: str) -> StoredSegment | None:
        return self._segments.get(name)

    def use(self, header: SegmentHeader) -> StoredSegment:
        """The entry of a segment, made if need be; from now on it is the one used last."""
        stored = self._segments.setdefault(header.name, StoredSegment(header))
        self._continuations.setdefault(header.parent, {})[header.name] = None
        self._clock += 1
        stored.used = self._clock
        return stored

    def remove(self, name: str) -> StoredSegment | None:
        stored = self._segments.pop(name, None)
        if stored is not None:
            siblings = self._continuations[stored.header.parent]
            del siblings[name]
            if not siblings:
                del self._continuations[stored.header.parent]
        return stored

    def continuations(self, name: str) -> list[SegmentHeader]:
        """The segments that go on from this one."""
        return [self._segments[one].header for one in self._continuations.get(name, ())]

    def leaving(self, prefill_cost: PrefillCost) -> Iterator[StoredSegment]:
        """What is given up, worth least first, each after all that go on from it.

        The caller removes each before it asks for the next. What lies behind a gap already goes before all others.
        """
        waiting = [self._entry(stored, prefill_cost) for stored in self._segments.values() if self._may_go(stored)]
        heapq.heapify(waiting)
        while waiting:
            stored = heapq.heappop(waiting)[-1]
            if self._segments.get(stored.header.name) is not stored:
                continue
            above = self._segments.get(stored.header.parent)
            behind = tuple(self._continuations.get(stored.header.name, ()))
            yield stored
            for freed in (above, *map(self._segments.get, behind)):
                if freed is not None and self._may_go(freed):
                    heapq.heappush(waiting, self._entry(freed, prefill_cost))

    def _entry(self, stored: StoredSegment, prefill_cost: PrefillCost) -> tuple[float, int, int, StoredSegment]:
        header = stored.header
        age = self._clock - stored.used
        loss = 0.0 if self._cut_off(stored) else retention_value(prefill_cost, header.start, header.end, age)
        return loss, stored.used, id(stored), stored

    def _may_go(self, stored: StoredSegment) -> bool:
        return self._cut_off(stored) or stored.header.name not in self._continuations

    def _cut_off(self, stored: StoredSegment) -> bool:
        return stored.header.parent != self._root and stored.header.parent not in self._segments


class CheckpointStore:
    """All segments of one root. `folder` exists; other models' lie beside it. `budget`: bytes of all their files.

    `written` is called in the writer's thread after each file: there is something for `note_written`. `coding`: of all
    files; those of another one are deleted.
    """

    def __init__(
        self,
        root: str,
        folder: Path,
        budget: int,
        written: Callable[[], None] = lambda: None,
        coding: Coding = PLAIN,
    ) -> None:
        self.root = coding.root(root)
        self.bytes = 0  # of all files, once what waits is written and deleted
        self.counters = CheckpointCounters()
        self._folder = folder
        self._budget = budget
        self._index = Index(self.root)
        self._bytes_per_token = 0.0
        self._seen_tokens = self._seen_ms = 0.0  # of restores, the last ones above all
        self._disk_fails = False
        self._others = deque(other_models(folder.parent, folder.name))
        self._coding = coding
        self._writer = Writer(self._failed, written, coding)
        self._reader = Reader(coding)
        self._find_files()

    # -- keeping

    def holds(self, name: str) -> bool:
        return self._index.get(name) is not None

    def arrived(self, name: str) -> bool:
        """Whether a segment is on disk, and not only waiting to be written."""
        stored = self._index.get(name)
        return stored is not None and stored.waiting is None

    def keep(self, header: SegmentHeader, state: bytes, prefill_cost: PrefillCost) -> None:
        """Takes a segment's state, to be written. `prefill_cost`: of a prompt token now; it decides what is evicted for it.

        The writer deletes and writes in the order of the calls, so the folder is within its budget at any time.
        """
        if self.holds(header.name):
            return
        stored = self._index.use(header)
        stored.size = file_size(header, state, self._coding)
        self._bytes_per_token = len(state) / len(header.ids)
        self.bytes += stored.size
        self._fit(prefill_cost)
        if self.holds(header.name):
            stored.waiting = self._writer.put(self._path(header.name), header, state)

    def adopt(self, paths: Sequence[Path], prefill_cost: PrefillCost, told: Callable[[str], None]) -> None:
        """Takes files that were checked by who wrote them beside their places, all or none; room is made for them as for
        others. `told` is called once they are found by prompts, or with why they are not taken.

        What is known already is written again: a file may have been deleted behind the index.
        """
        try:
            found = [(read_header(path), path, path.stat().st_size) for path in paths]
        except (OSError, DamagedCheckpoint) as error:
            told(why_not(error))
            return
        for header in [header for header, _, _ in found if self.holds(header.name)]:
            self._index.use(header)
        reserved = sum(size for header, _, size in found if not self.holds(header.name))
        self.bytes += reserved
        self._fit(prefill_cost)
        self._writer.take(Arrival(found, reserved, told), self._path)

    def load(self, header: SegmentHeader, following: SegmentHeader | None = None) -> bytes | None:
        """The state of a segment; None when it is gone or damaged, and then forgotten.

        `following`, which will be loaded next, is read while this one is checked and used.
        """
        stored = self._index.get(header.name)
        if stored is None:
            self.counters.misses += 1
            return None
        self._index.use(header)
        state = stored.waiting.state if stored.waiting is not None else self._read(stored, following)
        if state is not None:
            self.counters.disk_hits += 1
            self.counters.restored_bytes += len(state)
        return state

    def restored(self, tokens: int, seconds: float) -> None:
        """So many tokens are in cells again, which took so long from the search for them on."""
        self.counters.restored_tokens += tokens
        self.counters.restored_ms += seconds * 1000
        self._fade(FADING)
        self._seen_tokens += tokens
        self._seen_ms += seconds * 1000

    def passed_over(self) -> None:
        """A prompt is computed that could have been restored."""
        self._fade(DOUBT)

    def _fade(self, share: float) -> None:
        self._seen_tokens *= share
        self._seen_ms *= share

    def restore_ms(self) -> float:
        """What it takes to restore a token, as seen lately; before that, by its bytes."""
        foretold = FORETOLD * self._bytes_per_token * 1000 / CARRIED_IN_A_SECOND
        return (self._seen_ms + foretold) / (self._seen_tokens + FORETOLD)

    def continuations(self, name: str) -> list[SegmentHeader]:
        """The segments that go on from this one."""
        return self._index.continuations(name)

    def takes_one(self) -> bool:
        """Whether the disk keeps up, so that a further segment may be saved; `written` tells when it may again."""
        return self._writer.waiting_bytes < WAITING_BYTES

    def lost_one(self) -> None:
        """A segment left the cells while the disk did not keep up."""
        self.counters.lost_segments += 1

    def figures(self) -> dict[str, float]:
        """Counters and bytes, for statistics."""
        sizes = {"segments": len(self._index), "disk_bytes": self.bytes}
        return {f"tier_{name}": value for name, value in {**vars(self.counters), **sizes}.items()}

    # -- forgetting

    def forget(self, name: str) -> None:
        stored = self._index.remove(name)
        if stored is not None:
            self.bytes -= stored.size
            self._writer.drop(self._path(name))

    def forget_chain(self, chain: Sequence[str], others: Container[str]) -> None:
        """Drops what only a floor and its conversations could use.

            ■──■──■ its end ──┬── alice's, named on her own ground (`segments`): goes
                              └── a longer floor, named on this one's end: stays, with all that goes on from it

        `chain`: the names that lead to the floor's end, at least one; `others`: those that other floors are made of. Of its
        own segments those go that nothing goes on from and no other floor is made of.
        """
        for header in self.continuations(chain[-1]):
            if not is_floor(header):
                self.forget_from(header)
        for name in reversed(chain):
            if name in others or self.continuations(name):
                return
            self.forget(name)

    def forget_from(self, header: SegmentHeader) -> None:
        """Drops a segment and all that go on from it, the last ones first; a conversation may be thousands of them."""
        found = [header]
        for one in found:
            found.extend(self.continuations(one.name))
        for one in reversed(found):
            self.forget(one.name)

    # -- the writer

    def note_written(self) -> None:
        """Takes note of what the writer finished; only the loop changes the index."""
        for work, fault in self._writer.finished():
            if isinstance(work, Put):
                self._note_put(work, fault)
            else:
                self._note_arrival(work, fault)

    def _note_put(self, put: Put, fault: str) -> None:
        stored = self._index.get(put.header.name)
        if stored is None or stored.waiting is not put:
            return  # forgotten meanwhile, and deleted behind its write
        stored.waiting = None
        if fault:
            self.bytes -= stored.size
            self._index.remove(put.header.name)
        else:
            self._disk_fails = False

    def _note_arrival(self, arrival: Arrival, fault: str) -> None:
        self.bytes -= arrival.reserved
        for header, path, size in arrival.staged:
            if fault:
                delete(path)
            elif not self.holds(header.name):
                self._index.use(header).size = size
                self.bytes += size
        arrival.told(fault)

    def flush(self) -> None:
        """Waits until all that was to be written or deleted is, and nothing is being read."""
        self._reader.forget_expected()
        self._writer.flush()
        self.note_written()

    def close(self) -> None:
        self.flush()
        self._writer.close()
        self._reader.close()

    def _failed(self, name: str, error: OSError) -> None:
        """Logged once, until a write succeeds again: a full disk fails each one."""
        self.counters.write_failures += 1
        if not self._disk_fails:
            log.warning("checkpoint %s was not written: %s", name[:12], reason(error))
        self._disk_fails = True

    # -- the folder

    def _fit(self, prefill_cost: PrefillCost) -> None:
        """Forgets what is worth least until all is within the budget."""
        while self._others and self._all_bytes() > self._budget:
            self._writer.drop_model(self._others.popleft().folder)
        if self.bytes <= self._budget:
            return
        for stored in self._index.leaving(prefill_cost):
            if self.bytes <= most_of(self._budget):
                return
            self.counters.disk_evicted += 1
            self.forget(stored.header.name)

    def _all_bytes(self) -> int:
        return self.bytes + sum(other.size for other in self._others)

    def _read(self, stored: StoredSegment, following: SegmentHeader | None) -> bytes | None:
        path = self._path(stored.header.name)
        ahead = self._path(following.name) if following is not None and self.arrived(following.name) else None
        try:
            state = self._reader.read(path, stored.header, ahead)
        except (OSError, DamagedCheckpoint) as error:
            self._damaged(error)
            self.forget(stored.header.name)
            return None
        with suppress(OSError):
            os.utime(path)  # the next process takes its order of use from here
        return state

    def _find_files(self) -> None:
        """Builds the index from the files' headers, longest unused first."""
        for header, size in checkpoints(self._folder, self.root, self._damaged, self._coding):
            self._index.use(header).size = size
            self.bytes += size
        self._fit(UNSEEN)
        for other in self._others:
            self._writer.drop_other_codings(other.folder)

    def _damaged(self, error: Exception) -> None:
        log.warning("a checkpoint is not usable and was dropped: %s", error)
        self.counters.damaged += 1

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{SUFFIX}"


def most_of(budget: int) -> int:
    """Bytes of a budget that are full once room was made."""
    return budget - budget // SPARE


def is_floor(header: SegmentHeader) -> bool:
    """Whether a segment behind a floor's end is a longer floor's."""
    return header.name == checkpoint_name(header.parent, header.ids)


def checkpoint_name(parent: str, ids: "array[int]") -> str:
    """The name of the segment of these ids behind the one called `parent`."""
    digest = hashlib.sha256(parent.encode())
    digest.update(ids)
    return digest.hexdigest()


def why_not(error: OSError | DamagedCheckpoint) -> str:
    """In words, why files that were written beside their places are not taken."""
    if isinstance(error, FileNotFoundError):
        return "what had come was deleted meanwhile"
    return reason(error) if isinstance(error, OSError) else str(error)
