"""Cells are saved to disk behind the answers, a slice a round.

a floor is computed  ─┐
a ticket ended        ├─▶ remembered ─▶ written, a slice a round
the engine stops      ┘
"""

import math
from collections.abc import Callable, Iterable

from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.tree import Node
from orchestrator.engine.checkpoints.manager import CheckpointManager
from orchestrator.engine.costs import TimeBudget
from orchestrator.engine.messages import ALONE, UNSAVED
from orchestrator.engine.prefill_cost import PrefillCost
from orchestrator.engine.scheduler.planner import WRITE_SECONDS, Timing
from orchestrator.engine.scheduler.ticket import Counters

MOMENT_SECONDS = 0.002  # of writing while there are no tickets: who comes meanwhile waits for it


def is_saved(pool: Pool) -> bool:
    return pool.name != UNSAVED and not pool.name.startswith(ALONE)


class WriteBehind:
    """`prefill_cost` is what a prompt token costs, as known now. `clock` gives seconds."""

    def __init__(
        self,
        checkpoints: CheckpointManager | None,
        counters: Counters,
        prefill_cost: Callable[[], PrefillCost],
        clock: Callable[[], float],
    ) -> None:
        self._checkpoints = checkpoints
        self._prefill_cost = prefill_cost
        self._counters = counters
        self._clock = clock

    def remember(self, pool: Pool, tip: Node) -> None:
        """Queues the path down to a node, however long its ticket answers, or how it ends."""
        if self._checkpoints is not None and is_saved(pool):
            self._checkpoints.remember(pool, tip)

    def evicting(self, pool: Pool, node: Node, budget: TimeBudget) -> None:
        """Saves a node before its cells are freed. Raises OutOfTime: the node stays and is offered again."""
        counted = node.saved_end == node.computed_end  # in an earlier round, before its pool's other nodes were taken
        if self._checkpoints is not None and is_saved(pool):
            self._checkpoints.evicting(pool, node, budget)
        if not counted:
            self._counters.evicted_tokens += node.computed

    def lost_ms(self, pool: Pool) -> float:
        """The cost of rebuilding a pool's content: restored where checkpoints hold it, else computed."""
        kept = self._checkpoints.saved(pool) if self._checkpoints is not None else {}
        restore = self._checkpoints.store.restore_ms() if self._checkpoints is not None else math.inf
        prefill_cost, lost = self._prefill_cost(), 0.0
        for node in pool.tree.nodes():
            compute, on_disk = prefill_cost.per_token(node.start, node.computed_end), kept.get(node, 0)
            lost += compute * (node.computed - on_disk) + min(compute, restore) * on_disk
        return lost

    def left(self) -> bool:
        """Whether something could be done now. What waits for the writer is not: `note_written` follows when it is done."""
        return self._checkpoints is not None and self._checkpoints.pending() > 0 and self._checkpoints.store.takes_one()

    def work(self, timing: Timing, *, alone: bool) -> None:
        """Writes for one slice of time, where the round has any left. A slice without tickets is short (`alone`), because a
        ticket that comes meanwhile waits for it."""
        if self._checkpoints is not None and timing.may_write() and self.left():
            self._checkpoints.work(self._clock() + (MOMENT_SECONDS if alone else WRITE_SECONDS))

    def note_written(self) -> None:
        """The writer has finished something: what waited for it goes on, and budgets are kept, also in an idle process."""
        if self._checkpoints is not None:
            self._checkpoints.store.note_written()

    def close(self, pools: Iterable[Pool]) -> None:
        """Saves all cells, so that the next process finds them."""
        if self._checkpoints is None:
            return
        for pool in pools:
            for node in pool.tree.nodes():
                if node.computed and not any(child.computed for child in node.children):
                    self.remember(pool, node)
        while self._checkpoints.pending():
            self._checkpoints.work(float("inf"))
            self._checkpoints.store.flush()
        self._checkpoints.store.close()
