"""Carries checkpoints between a pool's cells and the store: saved behind the answers, restored before a prefill.

    finished path ─ remember ─▶ queue ─ work, a slice a round ─▶ store
    evicted node  ─ evicting ─▶ store
    admitted job  ─ restore  ◀─ store, as far as its prompt is there and the round has time

Two kinds of memory, two managers: `SegmentManager` where memory can be cut in ranges, `PieceManager` where it cannot. Each
restore is checked by the number of cells that are there afterwards. Knows no tickets and no files.
"""

from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.engine.backend import Backend
from orchestrator.engine.cache.pool import Pool, restore_range, save_range
from orchestrator.engine.cache.tree import (
    Boundary,
    Node,
    NoSequence,
    Path,
    Restored,
    Wanted,
    common_prefix,
    deepest,
    path_of,
)
from orchestrator.engine.checkpoints.file import SegmentHeader
from orchestrator.engine.checkpoints.segments import (
    CUT,
    Onward,
    Segment,
    behind,
    boundary,
    chains,
    end_of,
    ground,
    meeting,
    named,
    onward,
    reaching,
    segments,
    segments_from,
)
from orchestrator.engine.checkpoints.store import CheckpointStore
from orchestrator.engine.costs import TimeBudget, endless
from orchestrator.engine.messages import PrefillCost, Reuse, Tier


def checkpoint_manager(
    backend: Backend, store: CheckpointStore | None, clock: Callable[[], float], prefill_cost: Callable[[], PrefillCost]
) -> "CheckpointManager | None":
    """The manager for a model's kind of memory; None without a store. `prefill_cost`: of a prompt token, as known now."""
    if store is None:
        return None
    if backend.info.ranges:
        return SegmentManager(store, clock, prefill_cost)
    return PieceManager(store, clock, prefill_cost, constant=backend.info.kv_bytes_per_token == 0)


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
        self.store.settle()
        while self._queue and self.store.takes_one():
            saving = self._queue.popleft()
            if not saving.tip.gone:
                self._save_queued(saving)
            if self._clock() >= deadline:
                return

    @abstractmethod
    def remember(self, pool: Pool, tip: Node) -> None:
        """Queues what of a path is not kept yet."""

    @abstractmethod
    def kept(self, pool: Pool) -> Mapping[Node, int]:
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

    @abstractmethod
    def restorable(self, path: Path, limit: int, ends: Sequence[int]) -> list[Reuse]:
        """The ranges of [0, limit) that would be restored into a path whose nodes end at `ends`: from 0 to how far the path
        leads in the cells."""

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

    def kept(self, pool: Pool) -> dict[Node, int]:
        """On the first path that leads over a node: a segment may begin in one node and end in the next."""
        found = dict[Node, int]()
        for tip in [node for node in pool.tree.nodes() if not node.children]:
            path = path_of(tip)
            for node in tip.path():
                if node not in found:
                    found[node] = self._arrived(path, tip.computed_end, node)
        return found

    def _arrived(self, path: Path, computed_end: int, node: Node) -> int:
        """Cells of a node that lie below."""
        tokens = 0
        for one in self._over(node, path, computed_end):
            if one.start >= node.computed_end:
                break
            if self.store.arrived(one.name):
                tokens += min(one.end, node.computed_end) - max(one.start, node.start)
        return tokens

    def _over(self, node: Node, path: Path, upto: int) -> Iterator[Segment]:
        """The segments of a path from the one on in which the node begins."""
        found = segments_from(self._place(node, path), path.ids, path.cut, path.owner, upto)
        return (one for one in found if one.end > node.start)

    def _place(self, tip: Node, path: Path) -> Boundary:
        """The last boundary at or before a node's start, noted in all nodes of its path: so a conversation of many turns is
        named once and not with each of them."""
        known = Boundary(self.store.root, 0)
        for node in tip.path():
            known = node.place = node.place or boundary(path.ids, path.cut, path.owner, node.start, known)
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
        memory = pool.memory
        memory.copy(pool.tree.covering(deepest(tip)), pool.scratch, segment.start, segment.end)
        try:
            state = memory.save(pool.scratch)
        finally:
            memory.remove(pool.scratch, 0, -1)
        self._keep(segment, path_of(tip).ids[segment.start : segment.end], state)

    # -- restoring

    def restore(self, pool: Pool, tip: Node, wanted: Wanted, claim: Callable[[Node], bool], budget: TimeBudget) -> None:
        place = Boundary(self.store.root, 0)
        for node in tip.path():
            while not node.complete and node.computed_end < wanted.limit:
                found = onward(self.store.below, wanted.path, place, node.computed_end)
                if found is None or not claim(node) or not self._restore(pool, node, found, wanted, budget):
                    return
                place = found.place

    def restorable(self, path: Path, limit: int, ends: Sequence[int]) -> list[Reuse]:
        found, place, depth = list[Reuse](), Boundary(self.store.root, 0), ends[-1]
        while depth < limit and (segment := onward(self.store.below, path, place, depth)) is not None:
            end = min(segment.end, limit)
            found.append(Reuse(depth, end, Tier.DISK))
            place, depth = segment.place, end
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
        state = self.store.load(header)
        if state is None:
            return False
        if found.end < wanted.limit:
            self._expect(wanted.path, found)
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

    def _expect(self, path: Path, found: Onward) -> None:
        after = onward(self.store.below, path, found.place, found.end)
        if after is not None:
            self.store.expect(after.header)

    def forget_floor(self, ids: "array[int]", others: Sequence["array[int]"]) -> None:
        if not ids or ids in others:
            return
        chain = list(segments(self.store.root, ids, len(ids), 0, len(ids)))
        shared = max((common_prefix(ids, other, 0) for other in others), default=0) // CUT * CUT
        self.store.forget_chain([one.name for one in chain], {one.name for one in chain if one.end <= shared})


class PieceManager(CheckpointManager):
    """For memories that cannot be cut in ranges.

        floor ■──────── first turn ■──── second turn ■        ■ where a node ends its sequence ends, and is saved
        └── a piece ──┘└── a piece ─┘└── a piece ───┘

    A piece is what llama.cpp saves of a node while its sequence ends at the node's end; joined in ascending order, pieces
    give the whole. `constant`: a state has one size, however much was read (recurrent), so the last piece is all there is
    to know; then each tail is one piece behind its floor, and those of turns that others followed are deleted.
    """

    def __init__(
        self,
        store: CheckpointStore,
        clock: Callable[[], float],
        prefill_cost: Callable[[], PrefillCost],
        *,
        constant: bool,
    ) -> None:
        super().__init__(store, clock, prefill_cost)
        self._constant = constant

    # -- saving

    def remember(self, pool: Pool, tip: Node) -> None:
        for node in tip.path():
            if (node.owner is None or node is tip) and not self._kept(node):
                self._queue.append(Saving(pool, node))

    def _save_queued(self, saving: Saving) -> None:
        self._save(saving.pool, saving.tip, endless())

    def kept(self, pool: Pool) -> dict[Node, int]:
        """Looked for once for each tip: pieces are found by naming all before them."""
        found = dict[Node, int]()
        for tip in [node for node in pool.tree.nodes() if not node.children]:
            ends = self._ends(path_of(tip))
            found.update((node, node.computed) for node in tip.path() if node.computed and node.end in ends)
        return found

    def _ends(self, path: Path) -> set[int]:
        """Where pieces of a path end that have arrived with all before them."""
        rows = chains(self.store.root, self.store.below, path, len(path.ids))
        return {end_of(pieces) for pieces in rows if all(self.store.arrived(piece.name) for piece in pieces)}

    def evicting(self, pool: Pool, node: Node, budget: TimeBudget) -> None:
        if node.saved_end < node.computed_end:
            self._save(pool, node, budget)
            node.saved_end = node.computed_end

    def _kept(self, node: Node) -> bool:
        path = path_of(node)
        return end_of(self._reaching(path, len(path.ids))) == node.end

    def _save(self, pool: Pool, node: Node, budget: TimeBudget) -> None:
        """Keeps what of a path is not kept yet, up to the end of `node`, as one piece."""
        if node.sequence is None or not node.complete:
            return
        path = path_of(node)
        tail = node.owner is not None
        pieces = self._reaching(path, path.cut if tail and self._constant else node.end)
        start = end_of(pieces)
        if start == node.end or (tail and start < path.cut):
            return  # kept already, or behind a floor that is not
        parent, ids = (pieces[-1].name if pieces else self.store.root), path.ids[start:]
        name = named(ground(parent, start, path.cut, path.owner), ids)
        if self.store.holds(name):
            return
        if not self.store.takes_one():
            self.store.lost_one()
            return
        budget.take()
        self._keep(Segment(name, parent, start, node.end), ids, save_range(pool, node, start))
        if tail and self._constant:
            self._forget_followed(path, pieces, node.end)

    def _forget_followed(self, path: Path, floor: list[SegmentHeader], newest: int) -> None:
        """Of the turns that lead to a tail only the last one is kept beside it, for a question that is asked anew."""
        turns = [piece for piece in self._behind(path, floor, newest) if piece.end < newest]
        for piece in sorted(turns, key=lambda piece: piece.end)[:-1]:
            self.store.forget(piece.name)

    # -- restoring

    def restore_before_entry(self, pool: Pool, wanted: Wanted, budget: TimeBudget) -> None:
        """The floor is restored in one go, and so is the tail."""
        path, limit, restored = wanted.path, wanted.limit, wanted.restored
        while True:
            above, _ = pool.tree.match(path.ids[:limit], path.owner)
            pieces = self._reaching(path, limit)
            if not above.complete or end_of(pieces) <= above.end:
                return  # another ticket is computing it, or there is nothing to bring
            nodes = {node.end: node for node in (pool.tree.root, *above.path())}
            end, joined = meeting(nodes, pieces, path.cut)
            if not self._restore(pool, path, nodes[end], joined, budget, restored):
                return

    def restorable(self, path: Path, limit: int, ends: Sequence[int]) -> list[Reuse]:
        found, at = list[Reuse](), list(ends)
        pieces = self._reaching(path, limit)
        while end_of(pieces) > at[-1]:
            end, joined = meeting(at, pieces, path.cut)
            found += [Reuse(piece.start, piece.end, Tier.DISK) for piece in joined]
            at = [*(one for one in at if one <= end), end_of(joined)]
        return found

    def forget_floor(self, ids: "array[int]", others: Sequence["array[int]"]) -> None:
        if not ids or ids in others:
            return
        theirs = {piece.name for other in others for piece in self._reaching(Path(other, len(other), 0), len(other))}
        for pieces in list(chains(self.store.root, self.store.below, Path(ids, len(ids), 0), len(ids))):
            if end_of(pieces) == len(ids):
                self.store.forget_chain([piece.name for piece in pieces], theirs)

    def _restore(
        self, pool: Pool, path: Path, above: Node, pieces: list[SegmentHeader], budget: TimeBudget, restored: Restored
    ) -> bool:
        """Joins pieces to a node behind `above`, as far as they are sound; whether all of them are."""
        start, end = pieces[0].start, pieces[-1].end
        owner = None if start < path.cut else path.owner
        node = pool.tree.insert(above, path.ids[start:end], owner)
        try:
            into = pool.tree.attach(node)
            if not pool.make_room(0):
                return False
            budget.take()
            return all(self._join(pool, node, into, piece, restored) for piece in pieces)
        except NoSequence:
            return False  # as many tickets run as there are sequences; this one will have to wait anyway
        finally:
            pool.tree.release(node, -1)

    def _join(self, pool: Pool, node: Node, into: int, piece: SegmentHeader, restored: Restored) -> bool:
        began = self._clock()
        state = self.store.load(piece)
        if state is None:
            return False
        wanted = (piece.start, piece.end)
        if not restore_range(pool.memory, pool.scratch, state, piece.end, wanted, [into]):
            self.store.forget(piece.name)
            return False
        node.computed += piece.end - piece.start
        took = self._clock() - began
        restored.add(Reuse(piece.start, piece.end, Tier.DISK), took)
        self.store.restored(piece.end - piece.start, took)
        return True

    # -- pieces

    def _reaching(self, path: Path, limit: int) -> list[SegmentHeader]:
        return reaching(self.store.root, self.store.below, path, limit)

    def _behind(self, path: Path, pieces: list[SegmentHeader], limit: int) -> list[SegmentHeader]:
        return behind(self.store.root, self.store.below, path, pieces, limit)
