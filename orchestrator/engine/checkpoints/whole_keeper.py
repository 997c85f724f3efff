"""Carries what stands between a pool and the tiers, for memories that cannot be cut in ranges.

    floor ■──────── first turn ■──── second turn ■        ■ where a node ends its sequence stands, and is saved
    └── a piece ──┘└── a piece ─┘└── a piece ───┘

A piece is what llama.cpp saves of a node while its sequence stands at the node's end; joined in ascending order, pieces
give the whole. Where a state has one size whatever was read (recurrent), the last piece is all there is to know: then
each tail is one piece behind its floor, and those of turns that others followed go. The port is `keeping.Keeping`.
"""

from array import array
from collections import deque
from collections.abc import Callable, Sequence

from orchestrator.engine.cache.node import Node
from orchestrator.engine.cache.path import Path, Wanted, path_of
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.transfer import restore_range, save_range
from orchestrator.engine.cache.tree import NoSequence
from orchestrator.engine.checkpoints.file import SegmentHeader
from orchestrator.engine.checkpoints.forgetting import forget_chain
from orchestrator.engine.checkpoints.lookup import behind, chains, end_of, meeting, reaching
from orchestrator.engine.checkpoints.segments import ground, named
from orchestrator.engine.checkpoints.store import Tiers
from orchestrator.engine.messages import Reuse
from orchestrator.engine.scheduler.slack import Slack, endless


class WholeKeeper:
    """`clock` gives seconds; deadlines are in it. `constant`: a state has one size, however much was read."""

    def __init__(self, tiers: Tiers, clock: Callable[[], float], *, constant: bool) -> None:
        self.tiers = tiers
        self._clock = clock
        self._constant = constant
        self._queue: deque[tuple[Pool, Node]] = deque()

    # -- down

    def remember(self, pool: Pool, tip: Node) -> None:
        """Queues a path's floor and its end, where they are not kept yet; they are written through to disk."""
        for node in tip.path():
            if (node.owner is None or node is tip) and not self._kept(node):
                self._queue.append((pool, node))

    def pending(self) -> int:
        return len(self._queue)

    def work(self, deadline: float) -> None:
        """Saves queued pieces until the deadline, at least one where the writer keeps up."""
        self.tiers.settle()
        while self._queue and not self.tiers.crowded():
            pool, node = self._queue.popleft()
            if not node.gone:
                self._save(pool, node, endless(), through=True)
            if self._clock() >= deadline:
                return

    def kept(self, pool: Pool) -> dict[Node, int]:
        """Looked for once for each tip: pieces are found by naming all before them."""
        found = dict[Node, int]()
        for tip in [node for node in pool.tree.nodes() if not node.children]:
            ends = self._ends(path_of(tip))
            found.update((node, node.filled) for node in tip.path() if node.filled and node.end in ends)
        return found

    def _ends(self, path: Path) -> set[int]:
        """Where pieces of a path end that have arrived with all before them."""
        rows = chains(self.tiers.root, self.tiers.below, path, len(path.ids))
        return {end_of(pieces) for pieces in rows if all(self.tiers.arrived(piece.name) for piece in pieces)}

    def evicting(self, pool: Pool, node: Node, slack: Slack) -> None:
        if node.handed < node.stands:
            self._save(pool, node, slack, through=False)
            node.handed = node.stands

    def _kept(self, node: Node) -> bool:
        path = path_of(node)
        return end_of(self._reaching(path, len(path.ids))) == node.end

    def _save(self, pool: Pool, node: Node, slack: Slack, *, through: bool) -> None:
        """Keeps what of a path is not kept yet, up to the end of `node`, as one piece."""
        if node.sequence is None or not node.whole:
            return
        path = path_of(node)
        tail = node.owner is not None
        pieces = self._reaching(path, path.cut if tail and self._constant else node.end)
        start = end_of(pieces)
        if start == node.end or (tail and start < path.cut):
            return  # kept already, or behind a floor that is not
        parent, ids = (pieces[-1].name if pieces else self.tiers.root), path.ids[start:]
        name = named(ground(parent, start, path.cut, path.owner), ids)
        if self.tiers.holds(name):
            return
        if not (through or self.tiers.takes_one()):
            self.tiers.lost_one()
            return
        slack.take()
        header = SegmentHeader(self.tiers.root, name, parent, start, node.end, ids)
        self.tiers.keep(header, save_range(pool, node, start), through=through)
        if tail and self._constant:
            self._forget_followed(path, pieces, node.end)

    def _forget_followed(self, path: Path, floor: list[SegmentHeader], newest: int) -> None:
        """Of the turns that lead to a tail only the last one is kept beside it, for a question that is asked anew."""
        turns = [piece for piece in self._behind(path, floor, newest) if piece.end < newest]
        for piece in sorted(turns, key=lambda piece: piece.end)[:-1]:
            self.tiers.forget(piece.name)

    # -- up

    def revive(self, pool: Pool, wanted: Wanted, slack: Slack) -> None:
        """Restores what is kept below and not in the pool. Raises OutOfTime: call again.

        The floor is restored in one go, and so is the tail.
        """
        path, limit, restored = wanted.path, wanted.limit, wanted.restored
        while True:
            above, _ = pool.tree.match(path.ids[:limit], path.owner)
            pieces = self._reaching(path, limit)
            if not above.whole or end_of(pieces) <= above.end:
                return  # another ticket is computing it, or there is nothing to bring
            nodes = {node.end: node for node in (pool.tree.root, *above.path())}
            end, joined = meeting(nodes, pieces, path.cut)
            if not self._restore(pool, path, nodes[end], joined, slack, restored):
                return

    def restorable(self, path: Path, limit: int, ends: Sequence[int]) -> list[Reuse]:
        """As `revive` joins them, one joining after the other."""
        found, at = list[Reuse](), list(ends)
        pieces = self._reaching(path, limit)
        while end_of(pieces) > at[-1]:
            end, joined = meeting(at, pieces, path.cut)
            found += [Reuse(piece.start, piece.end, self.tiers.tier(piece)) for piece in joined]
            at = [*(one for one in at if one <= end), end_of(joined)]
        return found

    def refill(self, pool: Pool, tip: Node, wanted: Wanted, claim: Callable[[Node], bool], slack: Slack) -> None:
        """Nothing: a leased path has ends where its tokens say, pieces have them where they were saved."""

    def forget_floor(self, ids: "array[int]", others: Sequence["array[int]"]) -> None:
        """Deletes what only this floor and its conversations could use."""
        if not ids or ids in others:
            return
        theirs = {piece.name for other in others for piece in self._reaching(Path(other, len(other), 0), len(other))}
        for pieces in list(chains(self.tiers.root, self.tiers.below, Path(ids, len(ids), 0), len(ids))):
            if end_of(pieces) == len(ids):
                forget_chain(self.tiers, [piece.name for piece in pieces], theirs)

    def _restore(
        self, pool: Pool, path: Path, above: Node, pieces: list[SegmentHeader], slack: Slack, restored: list[Reuse]
    ) -> bool:
        """Joins pieces to a node behind `above`, as far as they are sound; whether all of them are."""
        start, end = pieces[0].start, pieces[-1].end
        owner = None if start < path.cut else path.owner
        node = pool.tree.graft(above, path.ids[start:end], owner)
        try:
            into = pool.tree.attach(node)
            if not pool.make_room(0):
                return False
            slack.take()
            return all(self._join(pool, node, into, piece, restored) for piece in pieces)
        except NoSequence:
            return False  # as many tickets run as there are sequences; this one will have to wait anyway
        finally:
            pool.tree.release(node, -1)

    def _join(self, pool: Pool, node: Node, into: int, piece: SegmentHeader, restored: list[Reuse]) -> bool:
        began = self._clock()
        loaded = self.tiers.load(piece)
        if loaded is None:
            return False
        state, tier = loaded
        wanted = (piece.start, piece.end)
        if not restore_range(pool.memory, pool.scratch, state, piece.end, wanted, [into]):
            self.tiers.forget(piece.name)
            return False
        node.filled += piece.end - piece.start
        restored.append(Reuse(piece.start, piece.end, tier))
        self.tiers.brought(piece.end - piece.start, self._clock() - began)
        return True

    # -- pieces

    def _reaching(self, path: Path, limit: int) -> list[SegmentHeader]:
        return reaching(self.tiers.root, self.tiers.below, path, limit)

    def _behind(self, path: Path, pieces: list[SegmentHeader], limit: int) -> list[SegmentHeader]:
        return behind(self.tiers.root, self.tiers.below, path, pieces, limit)
