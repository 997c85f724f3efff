"""Carries segments between a pool's cells and the tiers below: saved behind the answers, restored before a prefill.

    finished path ─ remember ─▶ queue ─ work, a slice a round ─▶ tiers, and through to disk
    evicted node  ─ evicting ─▶ tiers (RAM first)
    waiting job   ─ revive   ◀─ tiers, as far as its prompt is there and time allows

Each restore is checked by the number of cells that stand afterwards. Knows no tickets and no files.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.engine.cache.boundary import Boundary
from orchestrator.engine.cache.node import Node, common_prefix
from orchestrator.engine.cache.path import Path, Wanted, deepest, path_of
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.transfer import restore_range
from orchestrator.engine.checkpoints.file import SegmentHeader
from orchestrator.engine.checkpoints.forgetting import forget_chain
from orchestrator.engine.checkpoints.lookup import Onward, onward
from orchestrator.engine.checkpoints.segments import CUT, Segment, boundary, segments, segments_from
from orchestrator.engine.checkpoints.store import Tiers
from orchestrator.engine.messages import Reuse
from orchestrator.engine.scheduler.slack import Slack


@dataclass(frozen=True)
class Saving:
    """One segment that waits to be saved: it lies on the path down to `tip`."""

    pool: Pool
    tip: Node
    segment: Segment


class Keeper:
    """`clock` gives seconds; deadlines are in it."""

    def __init__(self, tiers: Tiers, clock: Callable[[], float]) -> None:
        self.tiers = tiers
        self._clock = clock
        self._queue: deque[Saving] = deque()

    # -- down

    def remember(self, pool: Pool, tip: Node) -> None:
        """Queues what of a path is not kept yet; it is written through to disk."""
        path = path_of(tip)
        for segment in segments(self.tiers.root, path.ids, path.cut, path.owner, tip.stands):
            if not self.tiers.holds(segment.name):
                self._queue.append(Saving(pool, tip, segment))

    def pending(self) -> int:
        return len(self._queue)

    def work(self, deadline: float) -> None:
        """Saves queued segments until the deadline, at least one where the writer keeps up."""
        self.tiers.settle()
        while self._queue and not self.tiers.crowded():
            saving = self._queue.popleft()
            if not saving.tip.gone and not self.tiers.holds(saving.segment.name):
                self._save(saving.pool, saving.tip, saving.segment, through=True)
            if self._clock() >= deadline:
                return

    def kept(self, pool: Pool) -> dict[Node, int]:
        """On the first path that leads over a node: a segment may begin in one node and end in the next."""
        found = dict[Node, int]()
        for tip in [node for node in pool.tree.nodes() if not node.children]:
            path = path_of(tip)
            for node in tip.path():
                if node not in found:
                    found[node] = self._arrived(path, tip.stands, node)
        return found

    def _arrived(self, path: Path, stands: int, node: Node) -> int:
        """Cells of a node that lie below."""
        tokens = 0
        for one in self._over(node, path, stands):
            if one.start >= node.stands:
                break
            if self.tiers.arrived(one.name):
                tokens += min(one.end, node.stands) - max(one.start, node.start)
        return tokens

    def _over(self, node: Node, path: Path, upto: int) -> Iterator[Segment]:
        """The segments of a path from the one on in which the node begins."""
        found = segments_from(self._place(node, path), path.ids, path.cut, path.owner, upto)
        return (one for one in found if one.end > node.start)

    def _place(self, tip: Node, path: Path) -> Boundary:
        """The last boundary at or before a node's start, noted in all nodes of its path: so a conversation of many turns is
        named once and not with each of them."""
        known = Boundary(self.tiers.root, 0)
        for node in tip.path():
            known = node.place = node.place or boundary(path.ids, path.cut, path.owner, node.start, known)
        return known

    def evicting(self, pool: Pool, node: Node, slack: Slack) -> None:
        """Takes what a node alone holds, before its cells go; what is noted in the node as taken, once."""
        for segment in self._over(node, path_of(node), node.stands):
            if segment.end > node.handed:
                if not self.tiers.holds(segment.name):
                    self._hand_down(pool, node, segment, slack)
                node.handed = segment.end

    def _hand_down(self, pool: Pool, node: Node, segment: Segment, slack: Slack) -> None:
        if not self.tiers.takes_one():
            self.tiers.lost_one()
            return
        slack.take()
        self._save(pool, node, segment, through=False)

    def _save(self, pool: Pool, tip: Node, segment: Segment, *, through: bool) -> None:
        memory = pool.memory
        memory.copy(pool.tree.covering(deepest(tip)), pool.scratch, segment.start, segment.end)
        try:
            state = memory.save(pool.scratch)
        finally:
            memory.remove(pool.scratch, 0, -1)
        ids = path_of(tip).ids[segment.start : segment.end]
        header = SegmentHeader(self.tiers.root, segment.name, segment.parent, segment.start, segment.end, ids)
        self.tiers.keep(header, state, through=through)

    # -- up

    def revive(self, pool: Pool, wanted: Wanted, slack: Slack) -> None:
        """Nothing: a segment is restored into a leased path, piece by piece."""

    def refill(self, pool: Pool, tip: Node, wanted: Wanted, claim: Callable[[Node], bool], slack: Slack) -> None:
        """Restores what of a leased path is kept and does not stand, until a node is another ticket's to fill.

        Raises OutOfTime: call again.
        """
        place = Boundary(self.tiers.root, 0)
        for node in tip.path():
            while not node.whole and node.stands < wanted.limit:
                found = onward(self.tiers.below, wanted.path, place, node.stands)
                if found is None or not claim(node) or not self._restore(pool, node, found, wanted, slack):
                    return
                place = found.place

    def restorable(self, path: Path, limit: int, ends: Sequence[int]) -> list[Reuse]:
        """As `refill` brings them back, one segment after the other."""
        found, place, depth = list[Reuse](), Boundary(self.tiers.root, 0), ends[-1]
        while depth < limit and (segment := onward(self.tiers.below, path, place, depth)) is not None:
            end = min(segment.end, limit)
            found.append(Reuse(depth, end, self.tiers.tier(segment.header)))
            place, depth = segment.place, end
        return found

    def _restore(self, pool: Pool, node: Node, found: Onward, wanted: Wanted, slack: Slack) -> bool:
        """Puts what a segment has of a node behind the cells that stand there; whether it could. Meanwhile what comes next
        is read."""
        header, start, end = found.header, node.stands, min(found.end, node.end, wanted.limit)
        length = header.end - header.start
        if not pool.clear(length):
            return False
        slack.take()
        began = self._clock()
        loaded = self.tiers.load(header)
        if loaded is None:
            return False
        if found.end < wanted.limit:
            self._expect(wanted.path, found)
        state, tier = loaded
        if not restore_range(pool.memory, pool.scratch, state, length, (start, end), [pool.tree.attach(node)]):
            self.tiers.forget(header.name)
            return False
        node.filled += end - start
        if node.whole:
            node.filler = None
        wanted.restored.append(Reuse(start, end, tier))
        self.tiers.brought(end - start, self._clock() - began)
        return True

    def _expect(self, path: Path, found: Onward) -> None:
        after = onward(self.tiers.below, path, found.place, found.end)
        if after is not None:
            self.tiers.expect(after.header)

    def forget_floor(self, ids: "array[int]", others: Sequence["array[int]"]) -> None:
        """Deletes what only this floor and its conversations could use."""
        if not ids or ids in others:
            return
        chain = list(segments(self.tiers.root, ids, len(ids), 0, len(ids)))
        shared = max((common_prefix(ids, other, 0) for other in others), default=0) // CUT * CUT
        forget_chain(self.tiers, [one.name for one in chain], {one.name for one in chain if one.end <= shared})
