"""What is done behind the answers: cells are carried down to the tiers while nobody waits for them.

    a floor stands whole ─┐
    a ticket ended        ├─▶ remembered ─▶ written, a slice a round
    the engine stops      ┘

Decides when; how it is done is the keepers' (`keeping`). Without a keeper nothing outlives the cells.
"""

import math
from collections.abc import Callable, Iterable

from orchestrator.engine.cache.eviction import Price
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.tree import Node
from orchestrator.engine.checkpoints.manager import CheckpointManager
from orchestrator.engine.costs import TimeBudget
from orchestrator.engine.messages import Outcome
from orchestrator.engine.scheduler.reporting import Counters

SLICE_SECONDS = 0.02  # of a round
MOMENT_SECONDS = 0.002  # of one without tickets: who comes meanwhile waits for it


class Behind:
    """`price` is what a prompt token costs, as known now. `clock` gives seconds."""

    def __init__(
        self,
        keeper: CheckpointManager | None,
        counters: Counters,
        price: Callable[[], Price],
        clock: Callable[[], float],
    ) -> None:
        self._keeper = keeper
        self._price = price
        self._counters = counters
        self._clock = clock

    # -- what is to be kept

    def floor_stands(self, pool: Pool, end: Node) -> None:
        """A floor was computed to its end: it is kept from now on, however long its ticket answers, or how it ends."""
        if self._keeper is not None:
            self._keeper.remember(pool, end)

    def ended(self, pool: Pool, standing: Node, outcome: Outcome) -> None:
        """What a ticket leaves that came to its end or was called off; what an engine's fault left is not trusted."""
        if self._keeper is not None and outcome in (Outcome.DONE, Outcome.CANCELLED):
            self._keeper.remember(pool, standing)

    def evicting(self, pool: Pool, node: Node, slack: TimeBudget) -> None:
        """Sees a node before its cells go. Raises OutOfTime: it stays, and is seen again."""
        counted = node.handed == node.stands  # in an earlier round, before its pool's other nodes were taken
        if self._keeper is not None:
            self._keeper.evicting(pool, node, slack)
        if not counted:
            self._counters.evicted_tokens += node.filled

    def lost_ms(self, pool: Pool) -> float:
        """What it takes to have again all that stands in a pool: restored where it arrived below, else computed."""
        kept = self._keeper.kept(pool) if self._keeper is not None else {}
        restore = self._keeper.store.restore_ms() if self._keeper is not None else math.inf
        price, lost = self._price(), 0.0
        for node in pool.tree.nodes():
            again, below = price.again(node.start, node.stands), kept.get(node, 0)
            lost += again * (node.filled - below) + min(again, restore) * below
        return lost

    # -- doing it

    def left(self) -> bool:
        """Whether something could be done now. What waits for the writer is not: `settle` follows when it is done."""
        return self._keeper is not None and self._keeper.pending() > 0 and self._keeper.store.takes_one()

    def work(self, *, alone: bool) -> None:
        """A slice of it; `alone` a short one, because the next round follows at once where nobody has come."""
        if self._keeper is not None and self.left():
            self._keeper.work(self._clock() + (MOMENT_SECONDS if alone else SLICE_SECONDS))

    def settle(self) -> None:
        """The writer has finished something: what waited for it goes on, and budgets are kept, also in an idle process."""
        if self._keeper is not None:
            self._keeper.store.settle()

    def close(self, pools: Iterable[Pool]) -> None:
        """Keeps all that stands, so that the next process finds it."""
        if self._keeper is None:
            return
        for pool in pools:
            for node in pool.tree.nodes():
                if node.filled and not any(child.filled for child in node.children):
                    self._keeper.remember(pool, node)
        while self._keeper.pending():
            self._keeper.work(float("inf"))
            self._keeper.store.flush()
        self._keeper.store.close()
