"""Checkpoints of memories that cannot be cut in ranges: pieces of a path, which are joined whole.

    floor ■── environment ■── first turn ■── second turn ■        ■ where a node ends its sequence ends, and is saved
    └ a piece ┘└─ a piece ─┘└── a piece ──┘└── a piece ──┘

A piece is what llama.cpp saves of a node while its sequence ends at the node's end; joined in ascending order, pieces
give the whole. Saved are the floor, the beginning of its owner's tails, and each turn's end.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

from orchestrator.engine.backend import Backend
from orchestrator.engine.cache.pool import Pool, restore_range, save_range
from orchestrator.engine.cache.tree import (
    Node,
    NoSequence,
    Path,
    Restored,
    Wanted,
    common_prefix,
    path_of,
)
from orchestrator.engine.checkpoints.file import SegmentHeader
from orchestrator.engine.checkpoints.manager import CheckpointManager, Saving, Segment, SegmentManager, ground
from orchestrator.engine.checkpoints.store import CheckpointStore, checkpoint_name
from orchestrator.engine.costs import TimeBudget, endless
from orchestrator.engine.messages import Reuse, Tier
from orchestrator.engine.prefill_cost import PrefillCost


def checkpoint_manager(
    backend: Backend, store: CheckpointStore | None, clock: Callable[[], float], prefill_cost: Callable[[], PrefillCost]
) -> CheckpointManager | None:
    """The manager for a model's kind of memory; None without a store. `prefill_cost`: of a prompt token, as known now."""
    if store is None:
        return None
    if backend.info.ranges:
        return SegmentManager(store, clock, prefill_cost)
    return PieceManager(store, clock, prefill_cost, constant=backend.info.kv_bytes_per_token == 0)


class PieceManager(CheckpointManager):
    """`constant`: a state has one size, however much was read (recurrent), so the last piece is all there is to know; then
    each tail is one piece behind its floor, and those of turns that others followed are deleted, but for the first.
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
            if (node.owner is None or node.begins_tail or node is tip) and not self._is_saved(node):
                self._queue.append(Saving(pool, node))

    def _save_queued(self, saving: Saving) -> None:
        self._save(saving.pool, saving.tip, endless())

    def saved(self, pool: Pool) -> dict[Node, int]:
        """Looked for once for each tip: pieces are found by naming all before them."""
        found = dict[Node, int]()
        for tip in [node for node in pool.tree.nodes() if not node.children]:
            ends = self._ends(path_of(tip))
            found.update((node, node.computed) for node in tip.path() if node.computed and node.end in ends)
        return found

    def _ends(self, path: Path) -> set[int]:
        """Where pieces of a path end that have arrived with all before them."""
        rows = self._chains(path, len(path.ids))
        return {end_of(pieces) for pieces in rows if all(self.store.arrived(piece.name) for piece in pieces)}

    def evicting(self, pool: Pool, node: Node, budget: TimeBudget) -> None:
        if node.saved_end < node.computed_end:
            self._save(pool, node, budget)
            node.saved_end = node.computed_end

    def _is_saved(self, node: Node) -> bool:
        path = path_of(node)
        return end_of(self._reaching(path, len(path.ids))) == node.end

    def _save(self, pool: Pool, node: Node, budget: TimeBudget) -> None:
        """Keeps what of a path is not saved yet, up to the end of `node`, as one piece."""
        if node.sequence is None or not node.complete:
            return
        path = path_of(node)
        tail = node.owner is not None
        pieces = self._reaching(path, path.cut if tail and self._constant else node.end)
        start = end_of(pieces)
        if start == node.end or (tail and start < path.cut):
            return  # saved already, or behind a floor that is not
        parent, ids = (pieces[-1].name if pieces else self.store.root), path.ids[start:]
        name = checkpoint_name(ground(parent, start, path.cut, path.owner), ids)
        if self.store.holds(name):
            return
        if not self.store.takes_one():
            self.store.lost_one()
            return
        budget.take()
        self._keep(Segment(name, parent, start, node.end), ids, save_range(pool, node, start, node.end))
        if tail and self._constant:
            self._forget_followed(path, pieces, node.end)

    def _forget_followed(self, path: Path, floor: list[SegmentHeader], newest: int) -> None:
        """Of the pieces that lead to a tail the first is kept beside it, from which other conversations go on, and the last
        one, for a question that is asked anew."""
        turns = [piece for piece in self._behind(path, floor, newest) if piece.end < newest]
        for piece in sorted(turns, key=lambda piece: piece.end)[1:-1]:
            self.store.forget(piece.name)

    # -- restoring

    def restore_before_entry(self, pool: Pool, wanted: Wanted, budget: TimeBudget) -> None:
        """The floor is restored in one go, then the beginning of the tail, then its rest."""
        path, limit, restored = wanted.path, wanted.limit, wanted.restored
        while True:
            above, _ = pool.tree.match(path.ids[:limit], path.owner)
            pieces = self._reaching(path, limit)
            if not above.complete or end_of(pieces) <= above.end:
                return  # another ticket is computing it, or there is nothing to bring
            nodes = {node.end: node for node in (pool.tree.root, *above.path())}
            if self._passes_over(wanted, [*nodes]):
                return
            end, joined = meeting(nodes, pieces, path.cut)
            if not self._restore(pool, path, nodes[end], joined, budget, restored):
                return

    def _on_disk(self, path: Path, limit: int, ends: Sequence[int]) -> list[Reuse]:
        found, at = list[Reuse](), list(ends)
        pieces = self._reaching(path, limit)
        while end_of(pieces) > at[-1]:
            end, joined = meeting(at, pieces, path.cut)
            found += [Reuse(piece.start, piece.end, Tier.DISK) for piece in joined]
            at = [*(one for one in at if one <= end), end_of(joined)]
        return found

    def _floor_chain(self, ids: "array[int]") -> Sequence[SegmentHeader]:
        return self._reaching(Path(ids, len(ids), 0), len(ids))

    def forget_floor(self, ids: "array[int]", others: Sequence["array[int]"]) -> None:
        if not ids or ids in others:
            return
        theirs = {piece.name for other in others for piece in self._reaching(Path(other, len(other), 0), len(other))}
        for pieces in list(self._chains(Path(ids, len(ids), 0), len(ids))):
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
            pool.tree.release(-1, node)

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

    # -- the search for saved pieces

    def _reaching(self, path: Path, limit: int) -> list[SegmentHeader]:
        """The saved pieces, each behind the one before, that lead furthest within [0, limit)."""
        return max(self._chains(path, limit), key=end_of)

    def _chains(self, path: Path, limit: int) -> Iterator[list[SegmentHeader]]:
        """All saved pieces that lead along a path within [0, limit), each behind the one before; first none at all."""
        stack: list[list[SegmentHeader]] = [[]]
        while stack:
            pieces = stack.pop()
            yield pieces
            stack.extend([*pieces, piece] for piece in self._behind(path, pieces, limit))

    def _behind(self, path: Path, pieces: Sequence[SegmentHeader], limit: int) -> list[SegmentHeader]:
        """The saved pieces that go on from `pieces` as the path does; none of them crosses the end of the floor."""
        parent, at = (pieces[-1].name, pieces[-1].end) if pieces else (self.store.root, 0)
        most = limit if at >= path.cut else min(limit, path.cut)
        fitting = [
            piece
            for piece in self.store.continuations(parent)
            if piece.start == at < piece.end <= most and common_prefix(piece.ids, path.ids, at) == len(piece.ids)
        ]
        below = ground(parent, at, path.cut, path.owner)
        return [piece for piece in fitting if checkpoint_name(below, piece.ids) == piece.name]


def end_of(pieces: Sequence[SegmentHeader]) -> int:
    return pieces[-1].end if pieces else 0


def meeting(ends: Iterable[int], pieces: Sequence[SegmentHeader], cut: int) -> tuple[int, list[SegmentHeader]]:
    """The last of `ends`, where nodes of a path do, that a piece begins at; and what is joined behind it next.

    above   ├──────── floor ────────┤── first turn ──┤
    pieces  ├──────── floor ────────┤──── both turns as one ────┤      they meet at the end of the floor

    That is the floor's pieces, or the first of a tail's, or the rest of these: three nodes. 0, where the root ends, is one
    of `ends` always.
    """
    starts = {piece.start for piece in pieces}
    end = max(end for end in ends if end in starts)
    floor = [piece for piece in pieces if end <= piece.start < cut]
    first = [piece for piece in pieces if end == piece.start == cut]
    return end, floor or first or [piece for piece in pieces if piece.start >= end]
