"""Carries whole floors between a pool and the tiers, for memories that cannot be cut in ranges.

A state then is a whole sequence's: recurrent state is one value for all that was read, and a sliding window's cells before
it are gone. So a floor is saved at its end and restored as one; what lies right of it is computed again after a restart.
Same calls as `keeper.Keeper`.
"""

from array import array
from collections import deque
from collections.abc import Callable

from orchestrator.engine.checkpoint_file import Header
from orchestrator.engine.keeper import Path, path_of
from orchestrator.engine.messages import Reuse
from orchestrator.engine.node import Node
from orchestrator.engine.pools import Pool
from orchestrator.engine.segments import named
from orchestrator.engine.tiers import Tiers


class WholeKeeper:
    """`clock` gives seconds; deadlines are in it."""

    def __init__(self, tiers: Tiers, clock: Callable[[], float]) -> None:
        self.tiers = tiers
        self._clock = clock
        self._queue: deque[tuple[Pool, Node]] = deque()

    def remember(self, pool: Pool, tip: Node) -> None:
        """Queues the floor of a path, if it is not kept yet."""
        floor = [node for node in tip.path() if node.owner is None]
        if floor and floor[-1].whole and not self.tiers.holds(self._name(path_of(floor[-1]).ids)):
            self._queue.append((pool, floor[-1]))

    def pending(self) -> int:
        return len(self._queue)

    def work(self, deadline: float) -> None:
        """Saves queued floors until the deadline, at least one."""
        self.tiers.settle()
        while self._queue:
            pool, floor = self._queue.popleft()
            if not floor.gone:
                self._save(pool, floor, through=True)
            if self._clock() >= deadline:
                return

    def evicting(self, pool: Pool, node: Node) -> None:
        if node.owner is None and node.whole:
            self._save(pool, node, through=False)

    def revive(self, pool: Pool, path: Path, limit: int, deadline: float, restored: list[Reuse]) -> bool:
        """Restores the floor of a prompt into a pool that holds nothing of it. Always done in one call."""
        del deadline
        _, depth = pool.tree.match(path.ids[:limit], path.owner)
        found = self.tiers.find(self.tiers.root, self.tiers.root, path.ids, 0) if depth == 0 else None
        if found is not None and found[1] == len(found[0].ids) <= min(path.cut, limit):
            self._restore(pool, path, found[0], restored)
        return True

    def forget_floor(self, ids: "array[int]") -> None:
        self.tiers.forget(self._name(ids))

    def _restore(self, pool: Pool, path: Path, header: Header, restored: list[Reuse]) -> None:
        loaded = self.tiers.load(header)
        if loaded is None:
            return
        state, tier = loaded
        node = pool.tree.graft(path.ids, 0, header.end, path.owner, None)
        try:
            sequence = pool.tree.attach(node)
            if pool.make_room(0) and pool.memory.restore(sequence, state) == header.end:
                node.filled = header.end
                restored.append(Reuse(0, header.end, tier))
            else:
                pool.memory.remove(sequence, 0, -1)
                self.tiers.forget(header.name)
        finally:
            pool.tree.release(node, -1)

    def _save(self, pool: Pool, floor: Node, *, through: bool) -> None:
        ids = path_of(floor).ids
        name = self._name(ids)
        if floor.sequence is None or self.tiers.holds(name):
            return
        header = Header(self.tiers.root, name, self.tiers.root, 0, len(ids), ids)
        self.tiers.keep(header, pool.memory.save(floor.sequence), through=through)

    def _name(self, ids: "array[int]") -> str:
        return named(self.tiers.root, ids)
