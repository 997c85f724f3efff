"""A pool: one llama.cpp context with its tree, the arithmetic of its cells, and their way in and out.

free + reserved + evictable + leased = cells: `free` is computed from the rest, and the law (`conservation`) is that it is
never below 0. Reserved are the prompt tokens still to compute and the room for running answers. A ticket is admitted with
all the cells it may ever need, or not at all.

`save_range` copies a range to the scratch sequence and saves it from there; `restore_range` is the reverse, so llama.cpp
carries the cells of the range alone. Each restore is checked: the number of cells must be the length of the range, or,
where memory cannot be cut, the position must be its end.

`release` evicts what only a dropped floor could use:

    floors of one pool   ├──── shared ────┬── dropped ──┬── its conversations       evicted
                                          └── another ──┴── its conversations       kept

A node belongs to a floor where it lies on it; right of the floors it belongs to the longest that its path begins with.
This file knows no order of tickets.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import TypeAlias

from orchestrator.engine.backend import Backend, BackendError, Memory
from orchestrator.engine.cache.state_tree import AnchoredTree
from orchestrator.engine.cache.tree import Node, Tree, common_prefix, path_of
from orchestrator.engine.costs import OutOfTime
from orchestrator.engine.messages import UNSEEN, PoolState, PrefillCost

ROUND = 256  # llama.cpp pads a context to a multiple of this
LEAST_ANCHORED = 3  # without ranges: what carries states, and for one answer its floor's state and its own


class Pool:
    """`name` is that of its floor or of its floors' lineage; `on_evict` sees each node before its cells go."""

    def __init__(
        self,
        name: str,
        memory: Memory,
        on_evict: Callable[["Pool", Node], None],
        prefill_cost: Callable[[], PrefillCost] = lambda: UNSEEN,
        *,
        ranges: bool = True,
    ) -> None:
        self.name = name
        self.memory = memory
        plant = Tree if ranges else AnchoredTree
        self.tree = plant(memory, range(memory.sequences - 1), lambda node: on_evict(self, node), prefill_cost)
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
            tip.computed_by = ticket
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
            node.saved_end = 0  # it stays

    def beside(self, ids: "array[int]") -> int:
        """Cells that a floor would want that is computed without giving up another one."""
        kept = sum(node.computed for node in self.tree.nodes() if not node.ref_count and node.owner is None)
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
        held = sum(node.ref_count > 0 and node.sequence is not None for node in self.tree.nodes())
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
        return self.memory.cells - self.reserved() - self.tree.cells_used()

    def cells_used(self) -> int:
        """Cells that hold KV."""
        return self.tree.cells_used()

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


def rounded(cells: int) -> int:
    """Up to what llama.cpp makes of it."""
    return -(-cells // ROUND) * ROUND


def sequences_of(backend: Backend, sequences: int, batch: int) -> int:
    """That each pool has; `sequences` are the set ones. A step has a row for each answer that runs.

    Without ranges nobody would ever be let in with fewer than three.
    """
    return max(LEAST_ANCHORED if not backend.info.ranges else 2, min(sequences, batch))


def save_range(pool: Pool, node: Node, start: int | None = None) -> bytes:
    """The state of a node's computed cells, or of its path's from `start` on. Leaves the pool as it was."""
    memory = pool.memory
    memory.copy(pool.tree.covering(node), pool.scratch, node.start if start is None else start, node.computed_end)
    try:
        return memory.save(pool.scratch)
    finally:
        memory.remove(pool.scratch, 0, -1)


def restore_range(
    memory: Memory, scratch: int, state: bytes, computed_end: int, wanted: tuple[int, int], into: list[int]
) -> bool:
    """Loads a state and makes the sequences `into` members of its cells in the half-open range `wanted`.

    False, with nothing left in memory, when the memory does not report `computed_end` after it.
    """
    sound = memory.restore(scratch, state) == computed_end
    if sound:
        for sequence in into:
            memory.copy(scratch, sequence, *wanted)
    memory.remove(scratch, 0, -1)
    return sound


def move(pool: Pool, cells: int, open_memory: Callable[[int], Memory]) -> bool:
    """Re-creates a pool's context in another size, through host memory, because both sizes need not fit at once.

    Sequences keep their numbers, so running tickets go on. False when a context of that size cannot be had: then the pool
    has its former size again. Raises BackendError when that fails too, or a range does not survive.
    """
    kept = [(node, save_range(pool, node)) for node in pool.tree.nodes() if node.computed]
    former = pool.memory.cells
    pool.memory.close()
    try:
        memory, moved = open_memory(cells), True
    except BackendError:
        memory, moved = open_memory(former), False
    pool.rebind(memory)
    for node, state in kept:
        put_back(pool, node, state)
    return moved


def put_back(pool: Pool, node: Node, state: bytes) -> None:
    """Restores a node's cells after those of the nodes above it. Raises BackendError when they are not there afterwards."""
    memory, into = pool.memory, pool.tree.members(node)
    if pool.tree.ranges:
        computed_end = node.computed
    else:
        computed_end, into = node.computed_end, into[:1]
        above = node.parent
        if above is not None and above.sequence is not None:
            memory.copy(above.sequence, into[0], 0, above.end)
    if not restore_range(memory, pool.scratch, state, computed_end, (node.start, node.computed_end), into):
        raise BackendError(f"a range of {node.computed} cells did not survive its move")


Ids: TypeAlias = "array[int]"


def release(pool: Pool, dropped: Ids, others: Sequence[Ids]) -> int:
    """Evicts its unreferenced nodes without saving them, and returns the cells that became free."""
    freed = 0
    for node in reversed(list(pool.tree.nodes())):  # each after all that lie below it
        if node.ref_count == 0 and not node.children and is_forsaken(node, dropped, others):
            node.saved_end = node.computed_end
            freed += pool.tree.evict(node)
    return freed


def is_forsaken(node: Node, dropped: Ids, others: Sequence[Ids]) -> bool:
    """Whether it was the dropped floor's alone; `others` are those that the pool still has."""
    ids = path_of(node).ids
    if node.owner is None:
        return reaches(node, ids, dropped) and not any(reaches(node, ids, other) for other in others)
    mine = [floor for floor in (*others, dropped) if common_prefix(floor, ids, 0) == len(floor)]
    return bool(mine) and max(mine, key=len) is dropped


def reaches(node: Node, ids: Ids, floor: Ids) -> bool:
    """Whether some of the node's own tokens lie on this floor; `ids` are those of its path."""
    return common_prefix(floor, ids, 0) > node.start
