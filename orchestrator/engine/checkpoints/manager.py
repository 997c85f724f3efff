"""Carries checkpoints between a pool's cells and the store: saved behind the answers, restored before a prefill.

    finished path ─ remember ─▶ queue ─ work, a slice a round ─▶ store
    evicted node  ─ evicting ─▶ store
    admitted job  ─ restore  ◀─ store, as far as its prompt is there and the round has time

Two kinds of memory, two managers: `SegmentManager` where memory can be cut in ranges, `PieceManager` (`pieces`) where it
cannot. Each restore is checked by the number of cells that are there afterwards. Knows no tickets and no files.

    root ─sha256─▶ [0, 256) ─▶ [256, 512) ─▶ … ─▶ [7936, 8012) ─ owner ─▶ [8012, 8268) ─▶ …
                   └────────────── floor ─────────────────┘      └──────── tail ────────

Tokens are cut every 256 ids from the start of the floor and again from its end, so cuts depend on ids and positions alone.
name = sha256(parent's name, ids as uint32); the root's name covers all that KV depends on; right of the floor the chain is
salted with the owner's uid. Same name, same KV.

    cells    ├─────── computed ──────┤
    saved    ├─ 256 ─┼─ 256 ─┼─ 256 ─┼─ 256 ─┼─ 90 ─┤       from the segment in which the cells end, one behind the other

What is saved is restored, unless it is clearly sooner to compute it (`sooner_computed`). That is decided once for a prompt.
"""

import hashlib
from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from orchestrator.engine.cache.pool import Pool, restore_range, save_range
from orchestrator.engine.cache.tree import (
    Boundary,
    Node,
    Path,
    Wanted,
    common_prefix,
    deepest,
    path_of,
)
from orchestrator.engine.checkpoints.file import SegmentHeader
from orchestrator.engine.checkpoints.store import CheckpointStore, checkpoint_name
from orchestrator.engine.costs import TimeBudget
from orchestrator.engine.messages import Reuse, Tier
from orchestrator.engine.prefill_cost import PrefillCost

CUT = 256
SOONER = 1.5  # times: what is less clear than that may be noise, and computing delays others
LEAST_GAIN_MS = 100.0  # in all: less is not worth the difference
Continuations = Callable[[str], Sequence[SegmentHeader]]  # the saved segments that continue from the one of a name


@dataclass(frozen=True)
class Segment:
    """Tokens [start, end) of a path, called `name`, right behind the segment called `parent`."""

    name: str
    parent: str
    start: int
    end: int


@dataclass(frozen=True)
class Onward:
    """A saved segment that continues a prompt: the boundary before it, and the position to which it does."""

    boundary: Boundary
    header: SegmentHeader
    end: int


@dataclass(frozen=True)
class Saving:
    """What waits to be saved of the path down to `tip`: one segment of it, or the piece that ends there."""

    pool: Pool
    tip: Node
    segment: Segment | None = None


class CheckpointManager(ABC):
    """Deadlines are seconds of `clock`. Never raises for a file; for a pool that fails, BackendError."""

    def __init__(
        self, store: CheckpointStore, clock: Callable[[], float], prefill_cost: Callable[[], PrefillCost]
    ) -> None:
        self.store = store
        self._clock = clock
        self._prefill_cost = prefill_cost
        self._queue: deque[Saving] = deque()

    def pending(self) -> int:
        """How much is queued."""
        return len(self._queue)

    def work(self, deadline: float) -> None:
        """Saves what is queued until the deadline, at least one piece; nothing while the disk does not keep up."""
        self.store.note_written()
        while self._queue and self.store.takes_one():
            saving = self._queue.popleft()
            if not saving.tip.gone:
                self._save_queued(saving)
            if self._clock() >= deadline:
                return

    @abstractmethod
    def remember(self, pool: Pool, tip: Node) -> None:
        """Queues what of a path is not saved yet."""

    @abstractmethod
    def saved(self, pool: Pool) -> Mapping[Node, int]:
        """How many cells of each node of a pool are on disk."""

    @abstractmethod
    def evicting(self, pool: Pool, node: Node, budget: TimeBudget) -> None:
        """Saves what a node alone holds, before its cells go. Raises OutOfTime: call again, it stays until then."""

    def restore_before_entry(self, pool: Pool, wanted: Wanted, budget: TimeBudget) -> None:
        """Restores what can only come back before the prompt's path is leased.

        Raises OutOfTime while there is more than the round has time for: call again. Here there is nothing.
        """
        del pool, wanted, budget

    def restore(self, pool: Pool, tip: Node, wanted: Wanted, claim: Callable[[Node], bool], budget: TimeBudget) -> None:
        """Restores the rest into the leased path down to `tip`, until a node is another ticket's to compute; `claim` says
        whether it is this one's. Raises OutOfTime as well. Here there is nothing.
        """
        del pool, tip, wanted, claim, budget

    def restorable(self, path: Path, limit: int, ends: Sequence[int]) -> tuple[list[Reuse], int]:
        """The ranges of [0, limit) that would be restored into a path whose nodes end at `ends`: from 0 to how far the path
        leads in the cells. And how many tokens are left on disk, because it is sooner to compute them: then none is."""
        found = self._on_disk(path, limit, ends)
        if sooner_computed(self._prefill_cost(), self.store.restore_ms(), found, ends[-1]):
            return [], found[-1].end - ends[-1]
        return found, 0

    def _passes_over(self, wanted: Wanted, ends: Sequence[int]) -> bool:
        """Whether what is on disk of a prompt stays there."""
        if wanted.restored.left is None:
            _, wanted.restored.left = self.restorable(wanted.path, wanted.limit, ends)
            if wanted.restored.left:
                self.store.passed_over()
        return wanted.restored.left > 0

    @abstractmethod
    def _on_disk(self, path: Path, limit: int, ends: Sequence[int]) -> list[Reuse]:
        """All that could be restored."""

    def floor_files(self, ids: "array[int]") -> tuple[list[str], int] | None:
        """The names of what is on disk of a floor, each behind the one before, and how many tokens that is; None while more
        of it is being written."""
        chain = self._floor_chain(ids)
        end = chain[-1].end if chain else 0
        if (end < len(ids) and self._queue) or not all(self.store.arrived(one.name) for one in chain):
            return None
        return [one.name for one in chain], end

    @abstractmethod
    def _floor_chain(self, ids: "array[int]") -> Sequence[Segment | SegmentHeader]:
        """What is kept of a floor from its beginning on, without a gap."""

    @abstractmethod
    def forget_floor(self, ids: "array[int]", others: Sequence["array[int]"]) -> None:
        """Deletes what only this floor and its conversations could use; `others` are the floors that stay."""

    @abstractmethod
    def _save_queued(self, saving: Saving) -> None: ...

    def _keep(self, segment: Segment, ids: "array[int]", state: bytes) -> None:
        header = SegmentHeader(self.store.root, segment.name, segment.parent, segment.start, segment.end, ids)
        self.store.keep(header, state, self._prefill_cost())


class SegmentManager(CheckpointManager):
    """For memories that can be cut in ranges: a path is saved and restored segment by segment, into leased nodes."""

    # -- saving

    def remember(self, pool: Pool, tip: Node) -> None:
        path = path_of(tip)
        for segment in segments(self.store.root, path.ids, path.cut, path.owner, tip.computed_end):
            if not self.store.holds(segment.name):
                self._queue.append(Saving(pool, tip, segment))

    def _save_queued(self, saving: Saving) -> None:
        assert saving.segment is not None
        if not self.store.holds(saving.segment.name):
            self._save(saving.pool, saving.tip, saving.segment)

    def saved(self, pool: Pool) -> dict[Node, int]:
        """On the first path that leads over a node: a segment may begin in one node and end in the next."""
        found = dict[Node, int]()
        for tip in [node for node in pool.tree.nodes() if not node.children]:
            path = path_of(tip)
            for node in tip.path():
                if node not in found:
                    found[node] = self._arrived(path, tip.computed_end, node)
        return found

    def _arrived(self, path: Path, computed_end: int, node: Node) -> int:
        """Cells of a node that are on disk."""
        tokens = 0
        for one in self._over(node, path, computed_end):
            if one.start >= node.computed_end:
                break
            if self.store.arrived(one.name):
                tokens += min(one.end, node.computed_end) - max(one.start, node.start)
        return tokens

    def _over(self, node: Node, path: Path, upto: int) -> Iterator[Segment]:
        """The segments of a path from the one on in which the node begins."""
        found = segments_from(self._boundary(node, path), path.ids, path.cut, path.owner, upto)
        return (one for one in found if one.end > node.start)

    def _boundary(self, tip: Node, path: Path) -> Boundary:
        """The last boundary at or before a node's start, noted in all nodes of its path: so a conversation of many turns is
        named once and not with each of them."""
        known = Boundary(self.store.root, 0)
        for node in tip.path():
            known = node.boundary = node.boundary or boundary(path.ids, path.cut, path.owner, node.start, known)
        return known

    def evicting(self, pool: Pool, node: Node, budget: TimeBudget) -> None:
        """What was saved is noted in the node, so that it is done once."""
        for segment in self._over(node, path_of(node), node.computed_end):
            if segment.end > node.saved_end:
                if not self.store.holds(segment.name):
                    self._save_evicted(pool, node, segment, budget)
                node.saved_end = segment.end

    def _save_evicted(self, pool: Pool, node: Node, segment: Segment, budget: TimeBudget) -> None:
        if not self.store.takes_one():
            self.store.lost_one()
            return
        budget.take()
        self._save(pool, node, segment)

    def _save(self, pool: Pool, tip: Node, segment: Segment) -> None:
        state = save_range(pool, deepest(tip), segment.start, segment.end)
        self._keep(segment, path_of(tip).ids[segment.start : segment.end], state)

    # -- restoring

    def restore(self, pool: Pool, tip: Node, wanted: Wanted, claim: Callable[[Node], bool], budget: TimeBudget) -> None:
        known = Boundary(self.store.root, 0)
        for node in tip.path():
            while not node.complete and node.computed_end < wanted.limit:
                found = onward(self.store.continuations, wanted.path, known, node.computed_end)
                if found is None or self._passes_over(wanted, [node.computed_end]):
                    return
                if not claim(node) or not self._restore(pool, node, found, wanted, budget):
                    return
                known = found.boundary

    def _on_disk(self, path: Path, limit: int, ends: Sequence[int]) -> list[Reuse]:
        found, known, depth = list[Reuse](), Boundary(self.store.root, 0), ends[-1]
        while depth < limit and (segment := onward(self.store.continuations, path, known, depth)) is not None:
            end = min(segment.end, limit)
            found.append(Reuse(depth, end, Tier.DISK))
            known, depth = segment.boundary, end
        return found

    def _restore(self, pool: Pool, node: Node, found: Onward, wanted: Wanted, budget: TimeBudget) -> bool:
        """Puts what a segment has of a node behind the cells that are there; whether it could. Meanwhile what comes next is
        read."""
        header, start, end = found.header, node.computed_end, min(found.end, node.end, wanted.limit)
        length = header.end - header.start
        if not pool.clear(length):
            return False
        budget.take()
        began = self._clock()
        state = self.store.load(header, self._following(wanted, found))
        if state is None:
            return False
        if not restore_range(pool.memory, pool.scratch, state, length, (start, end), [pool.tree.attach(node)]):
            self.store.forget(header.name)
            return False
        node.computed += end - start
        if node.complete:
            node.computed_by = None
        took = self._clock() - began
        wanted.restored.add(Reuse(start, end, Tier.DISK), took)
        self.store.restored(end - start, took)
        return True

    def _following(self, wanted: Wanted, found: Onward) -> SegmentHeader | None:
        """What will be restored after `found`."""
        if found.end >= wanted.limit:
            return None
        after = onward(self.store.continuations, wanted.path, found.boundary, found.end)
        return after.header if after is not None else None

    def _floor_chain(self, ids: "array[int]") -> Sequence[Segment]:
        chain = segments(self.store.root, ids, len(ids), 0, len(ids))
        return list(takewhile(lambda one: self.store.holds(one.name), chain))

    def forget_floor(self, ids: "array[int]", others: Sequence["array[int]"]) -> None:
        if not ids or ids in others:
            return
        chain = list(segments(self.store.root, ids, len(ids), 0, len(ids)))
        shared = max((common_prefix(ids, other, 0) for other in others), default=0) // CUT * CUT
        self.store.forget_chain([one.name for one in chain], {one.name for one in chain if one.end <= shared})


def sooner_computed(prefill: PrefillCost, restore_ms: float, saved: Sequence[Reuse], depth: int) -> bool:
    """Whether the tokens from `depth` to the end of what is `saved` are computed clearly sooner than that is read.
    `restore_ms`: of a token."""
    if not saved:
        return False
    end = saved[-1].end
    compute = prefill.per_token(depth, end) * (end - depth)
    read = restore_ms * sum(one.end - one.start for one in saved)
    return read > SOONER * compute and read - compute > LEAST_GAIN_MS


# -- the names of segments


def boundary(ids: "array[int]", cut: int, owner: int, depth: int, known: Boundary) -> Boundary:
    """The last one at or before `depth`, going on from one that is known; at first the root's, (root, 0)."""
    parent, start = known.parent, known.start
    for begin, end in spans(cut, depth + CUT, start):
        if end > depth:
            break
        parent, start = checkpoint_name(ground(parent, begin, cut, owner), ids[begin:end]), end
    return Boundary(parent, start)


def segments(root: str, ids: "array[int]", cut: int, owner: int, upto: int) -> Iterator[Segment]:
    """The segments of a path up to position `upto`; the last of floor and tail may be short."""
    return segments_from(Boundary(root, 0), ids, cut, owner, upto)


def segments_from(known: Boundary, ids: "array[int]", cut: int, owner: int, upto: int) -> Iterator[Segment]:
    """Those behind a boundary that is known: naming 32k tokens takes 2 ms."""
    parent = known.parent
    for start, end in spans(cut, upto, known.start):
        name = checkpoint_name(ground(parent, start, cut, owner), ids[start:end])
        yield Segment(name, parent, start, end)
        parent = name


def spans(cut: int, upto: int, start: int = 0) -> Iterator[tuple[int, int]]:
    """Half-open ranges that tile [start, upto) and never cross the end of the floor; `start` is where one begins."""
    while start < upto:
        limit = cut if start < cut else upto
        end = min(start + CUT, limit, upto)
        yield start, end
        start = end


def ground(parent: str, start: int, cut: int, owner: int) -> str:
    """What the name of the segment at `start` builds on: its parent, or at the end of the floor the owner's own ground."""
    if start != cut:
        return parent
    return hashlib.sha256(f"{parent} owner {owner}".encode()).hexdigest()


# -- which saved segments go on with a prompt: one search, for who restores them and for who predicts it


def onward(continuations: Continuations, path: Path, known: Boundary, depth: int) -> Onward | None:
    """The saved segment that continues from `depth`; it may begin before. `known` is a boundary on the way there."""
    before = boundary(path.ids, path.cut, path.owner, depth, known)
    own = ground(before.parent, before.start, path.cut, path.owner)
    found = find(continuations(before.parent), own, path.ids, before.start)
    if found is None or before.start + found[1] <= depth:
        return None
    return Onward(before, found[0], before.start + found[1])


def find(headers: Iterable[SegmentHeader], ground: str, ids: "array[int]", at: int) -> tuple[SegmentHeader, int] | None:
    """The segment named on `ground` that shares most with `ids` from `at` on, and how much."""
    best: tuple[SegmentHeader, int] | None = None
    for header in headers:
        shared = common_prefix(header.ids, ids, at) if header.start == at else 0
        if shared > (best[1] if best else 0) and checkpoint_name(ground, header.ids) == header.name:
            best = header, shared
    return best
