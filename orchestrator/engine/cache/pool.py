"""A pool: one llama.cpp context with its tree, and the arithmetic of its cells.

free + reserved + evictable + leased = cells: `free` is computed from the rest, and the law (`conservation`) is that it is
never below 0. Reserved are the prompt tokens still to compute and the room for running answers. A ticket is admitted with
all the cells it may ever need, or not at all.

`save_range` copies a range to the scratch sequence and saves it from there; `restore_range` is the reverse, so llama.cpp
carries the cells of the range alone. Each restore is checked: the number of cells must be the length of the range, or,
where memory cannot be cut, the position must be its end.

`evict_floor` evicts what only a dropped floor could use:

    floors of one pool   ├──── shared ────┬── dropped ──┬── its conversations       evicted
                                          └── another ──┴── its conversations       kept

A node belongs to a floor where it lies on it; right of the floors it belongs to the longest that its path begins with.
This file knows no other pool (`pools`) and no order of tickets.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import TypeAlias

from orchestrator.engine.backend import BackendError, Memory
from orchestrator.engine.cache.state_tree import AnchoredTree
from orchestrator.engine.cache.tree import Node, Tree, common_prefix, path_of
from orchestrator.engine.costs import OutOfTime
from orchestrator.engine.prefill_cost import UNSEEN, PrefillCost
from orchestrator.engine.snapshot import PoolState

Ids: TypeAlias = "array[int]"


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

    def admit(
        self, ticket: int, ids: "array[int]", cut: int, owner: int, max_tokens: int, marks: Sequence[int] = ()
    ) -> Node | None:
        """Leases a prompt and reserves what it and its answer need, evicting what nobody uses; None when that fails.

        The last token of a prompt that wants an answer is always computed, and by this ticket: its logits are needed.
        Raises OutOfTime while more is to be evicted than the round has time for.
        """
        limit = len(ids) - 1 if max_tokens else len(ids)
        tip = self.tree.lease(ids, cut, owner, limit, marks)
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

    def cells_to_keep_all(self, ids: "array[int]") -> int:
        """Cells that the pool needs to hold this floor and every floor that it holds now."""
        kept = sum(node.computed for node in self.tree.nodes() if not node.ref_count and node.owner is None)
        _, shared = self.tree.match(ids, 0)
        return self.in_use() + kept + len(ids) - shared

    def make_room(self, cells: int) -> bool:
        """Evicts, stalest first, until `cells` are free; False, and nothing evicted, when too much is in use."""
        return self._evict_to(self.memory.cells - self.reserved() - cells)

    def clear(self, cells: int) -> bool:
        """Evicts until so many cells hold no KV now; unlike after `make_room`, they may be reserved for tickets. False, and
        nothing evicted, when too much is in use. Raises OutOfTime."""
        return self._evict_to(self.memory.cells - cells)

    def _evict_to(self, most: int) -> bool:
        """Evicts until at most so many cells hold KV."""
        if self.tree.leased() > most:
            return False
        while self.cells_used() > most:
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
        self.tree.release(ticket, tip)

    def count_token(self, ticket: int) -> None:
        """A generated token became part of the prompt: it was reserved as growth, now it counts as a promised cell."""
        self._growth[ticket] -= 1

    def move_to(self, memory: Memory) -> None:
        """Goes on in another context with as many sequences; the caller puts the cells of all nodes back there."""
        self.memory = self.tree.cells = memory

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
            buffers=self.memory.buffers,
        )


def save_range(pool: Pool, node: Node, start: int, end: int) -> bytes:
    """The state of the cells [start, end) on a node's path. Leaves the pool as it was."""
    memory = pool.memory
    memory.copy(pool.tree.covering(node), pool.scratch, start, end)
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
    nodes = [node for node in pool.tree.nodes() if node.computed]
    kept = [(node, save_range(pool, node, node.start, node.computed_end)) for node in nodes]
    former = pool.memory.cells
    pool.memory.close()
    try:
        memory, moved = open_memory(cells), True
    except BackendError:
        memory, moved = open_memory(former), False
    pool.move_to(memory)
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


def evict_floor(pool: Pool, dropped: Ids, others: Sequence[Ids]) -> int:
    """Evicts the unreferenced nodes that were the dropped floor's alone, without saving them. Returns the cells freed."""
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
