"""A pool: one llama.cpp context with its tree, and the arithmetic of its cells.

free + reserved + evictable + leased = cells: so `free` is counted, and the law (`conservation`) is that it is never below
0. Reserved are the prompt tokens still to compute and what running answers may still grow by. A ticket is admitted with
all it may ever need, or not at all. What this file does not know: who comes first, and what a token means.
"""

from array import array
from collections.abc import Callable

from orchestrator.engine.backend import Backend, Memory
from orchestrator.engine.cache.eviction import UNSEEN, Price
from orchestrator.engine.cache.node import Node
from orchestrator.engine.cache.state_tree import AnchoredTree
from orchestrator.engine.cache.time_budget import OutOfTime
from orchestrator.engine.cache.tree import Tree
from orchestrator.engine.messages import PoolState


class Pool:
    """`name` is that of its floor or of its floors' lineage; `on_evict` sees each node before its cells go."""

    def __init__(
        self,
        name: str,
        memory: Memory,
        on_evict: Callable[["Pool", Node], None],
        price: Callable[[], Price] = lambda: UNSEEN,
        *,
        ranges: bool = True,
    ) -> None:
        self.name = name
        self.memory = memory
        plant = Tree if ranges else AnchoredTree
        self.tree = plant(memory, range(memory.sequences - 1), lambda node: on_evict(self, node), price)
        # Where every node holds a sequence, a ticket may need one for its floor and one for its tail.
        self._each = 1 if ranges else 2
        self.used = 0  # number of the last entry
        self.wanted = 0  # cells that the last ticket which did not fit would have needed in all
        self._growth: dict[int, int] = {}

    @property
    def scratch(self) -> int:
        """The sequence that saves and restores ranges: the last one, which the tree does not have."""
        return self.memory.sequences - 1

    def rebind(self, memory: Memory) -> None:
        """From now on it is in another memory, which holds the same cells and has as many sequences."""
        self.memory = memory
        self.tree.rebind(memory)

    def admit(self, ticket: int, ids: "array[int]", cut: int, owner: int, max_tokens: int) -> Node | None:
        """Leases a prompt and reserves what it and its answer need, evicting what nobody uses; None when that fails.

        The last token of a prompt that wants an answer is always computed, and by this ticket: its logits are needed.
        Raises OutOfTime while more is to be evicted than the round has time for.
        """
        limit = len(ids) - 1 if max_tokens else len(ids)
        tip = self.tree.lease(ids, cut, owner, limit)
        if max_tokens:
            tip.filler = ticket
        self._growth[ticket] = max_tokens
        self.wanted = self.in_use()
        try:
            if self.wanted <= self.memory.cells and len(self._growth) * self._each < self.memory.sequences:
                self._make_sequences()
                self.make_room(0)
                self._entered(tip)
                return tip
        except OutOfTime:
            self._give_back(ticket, tip)
            raise
        self._give_back(ticket, tip)
        return None

    def _entered(self, tip: Node) -> None:
        self.tree.use(tip)
        for node in tip.path():
            node.handed = 0  # it stays

    def beside(self, ids: "array[int]") -> int:
        """Cells that a floor would want that is computed without giving up another one."""
        kept = sum(node.filled for node in self.tree.nodes() if not node.leases and node.owner is None)
        _, shared = self.tree.match(ids, 0)
        return self.in_use() + kept + len(ids) - shared

    def make_room(self, cells: int) -> bool:
        """Evicts, stalest first, until `cells` are free; False, and nothing evicted, when too much is in use."""
        if self.in_use() + cells > self.memory.cells:
            return False
        while self.free() < cells:
            tip = self.tree.stalest()
            assert tip is not None, "what is not in use can be evicted"
            self.tree.evict(tip)
        return True

    def clear(self, cells: int) -> bool:
        """Evicts until so many cells hold nothing, for a moment: they may be promised. False, and nothing evicted, when
        too much is in use. Raises OutOfTime."""
        if self.tree.leased() + cells > self.memory.cells:
            return False
        while self.cells_used() + cells > self.memory.cells:
            tip = self.tree.stalest()
            assert tip is not None, "what is not leased can be evicted"
            self.tree.evict(tip)
        return True

    def _make_sequences(self) -> None:
        """Evicts until each ticket can have a sequence: while a step is made there is no time for it."""
        while self.tree.ranges and self._sequences_at_hand() < len(self._growth):
            tip = self.tree.stalest()
            if tip is None:
                return
            self.tree.evict(tip)

    def _sequences_at_hand(self) -> int:
        held = sum(node.leases > 0 and node.sequence is not None for node in self.tree.nodes())
        return held + len(self.tree.spare_sequences())

    def release(self, ticket: int, tip: Node) -> None:
        self.tree.use(tip)
        self._give_back(ticket, tip)

    def _give_back(self, ticket: int, tip: Node) -> None:
        del self._growth[ticket]
        self.tree.release(tip, ticket)

    def grew(self, ticket: int) -> None:
        """A generated token became part of the prompt: it was reserved as growth, now it counts as a promised cell."""
        self._growth[ticket] -= 1

    def reserved(self) -> int:
        return sum(self._growth.values()) + self.tree.promised()

    def free(self) -> int:
        return self.memory.cells - self.reserved() - self.tree.standing()

    def cells_used(self) -> int:
        """Cells that hold KV."""
        return self.tree.standing()

    def in_use(self) -> int:
        """Cells that no eviction can free."""
        return self.reserved() + self.tree.leased()

    def idle(self) -> bool:
        return not self._growth

    def state(self) -> PoolState:
        return PoolState(
            name=self.name,
            size=self.memory.cells,
            free=self.free(),
            reserved=self.reserved(),
            evictable=self.tree.evictable(),
            leased=self.tree.leased(),
            sequences=self.memory.sequences - 1 - len(self.tree.spare_sequences()),
            bytes=self.memory.footprint,
        )


ROUND = 256  # llama.cpp pads a context to a multiple of this
LEAST_ANCHORED = 3  # without ranges: what carries states, and for one answer its floor's state and its own


def rounded(cells: int) -> int:
    """Up to what llama.cpp makes of it."""
    return -(-cells // ROUND) * ROUND


def sequences_of(backend: Backend, sequences: int, batch: int) -> int:
    """That each pool has; `sequences` are the set ones. A step has a row for each answer that runs.

    Without ranges nobody would ever be let in with fewer than three.
    """
    return max(LEAST_ANCHORED if not backend.info.ranges else 2, min(sequences, batch))
