"""Pools: llama.cpp contexts with their trees, the arithmetic of their cells, and their size under the governor's grant.

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
This file knows no order of tickets.
"""

import logging
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

from orchestrator.engine.backend import Backend, BackendError, Memory
from orchestrator.engine.cache.eviction import CARRIED_IN_A_SECOND, Idle, in_order, to_close
from orchestrator.engine.cache.state_tree import AnchoredTree
from orchestrator.engine.cache.tree import Node, Tree, common_prefix, path_of
from orchestrator.engine.costs import OutOfTime, TimeBudget, endless
from orchestrator.engine.messages import UNSEEN, Grant, PoolState, PrefillCost

TAIL_ROOM = 8192  # cells a pool opens with beyond its floor, when the grant has them
ROUND = 256  # llama.cpp pads a context to a multiple of this
OPENED_AT_ONCE = 64 << 20  # bytes of KV in host memory: llama.cpp clears a context, 0.3 to 4 s a GB
LEAST_ANCHORED = 3  # without ranges: what carries states, and for one answer its floor's state and its own
log = logging.getLogger("lorekeep.engine")


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


@dataclass(frozen=True)
class Opening:
    """A context that a thread opens for a ticket's pool, while others are answered."""

    name: str
    ticket: int
    cells: int
    memory: "Future[Memory]"


class Pools:
    """The open pools under the governor's grant, by name.

    A pool is opened when a ticket needs it, moved into a larger context while nobody is answered, and closed when it is
    idle and another one needs its cells. While somebody is answered this happens in pieces within the round's time budget,
    and a large context is opened in a thread. One whose ticket was called off meanwhile becomes an idle pool.

    `on_evict` sees each node before its cells are freed, again where it raised OutOfTime. `lost_ms` is the cost of
    rebuilding a pool's content. `answering` says whether an answer runs, which a long round would stall.
    """

    def __init__(
        self,
        backend: Backend,
        sequences: int,
        on_evict: Callable[[Pool, Node, TimeBudget], None],
        lost_ms: Callable[[Pool], float],
        answering: Callable[[], bool],
        prefill_cost: Callable[[], PrefillCost],
    ) -> None:
        self.grant = Grant(0, 0, 0)
        self.by_name: dict[str, Pool] = {}
        self.backend = backend
        self.answering = answering
        self._sequences = sequences
        self._aside = backend.info.pool_tokens  # of each pool beside its cells; the grant has left out one pool's
        self._on_evict = on_evict
        self._lost_ms = lost_ms
        self._prefill_cost = prefill_cost
        self._entries = 0
        self._budget: TimeBudget = endless()
        self._refused: int | None = None  # the ticket for which there was no context of the size wanted
        self._opening: Opening | None = None
        self._thread = ThreadPoolExecutor(1, "opening")
        self._cramped: set[str] = set()  # pools for which there was no larger context: asked once, not each round

    @contextmanager
    def within(self, budget: TimeBudget) -> Iterator[None]:
        """Openings and evictions inside take their time from `budget`; elsewhere, in a step above all, none waits."""
        self._budget = budget
        try:
            yield
        finally:
            self._budget = endless()

    def apply(self, grant: Grant) -> None:
        """Rounds a grant down to what llama.cpp makes of a context, and closes pools that exceed it."""
        self.grant = replace(grant, cells=grant.cells // ROUND * ROUND)
        if not self.answering():
            self.shrink_to_grant()

    def held(self) -> int:
        """Tokens of what was granted, with those that pools take beside their cells."""
        opening = [self._opening.cells] if self._opening else []
        return sum(cells + self._aside for cells in (*(pool.memory.cells for pool in self.by_name.values()), *opening))

    def exceed_grant(self) -> bool:
        return self._left() < 0

    def _left(self) -> int:
        return self.grant.cells + self._aside - self.held()

    def carrying_s(self) -> float:
        """Seconds that a round should take at most beside its steps: no more than all cells are saved and restored."""
        held = sum(pool.memory.footprint for pool in self.by_name.values())
        return (held + self.grant.cells * self.backend.info.kv_bytes_per_token) / CARRIED_IN_A_SECOND

    # -- opening and enlarging

    def opened(self, name: str, need: int, ticket: int) -> Pool | None:
        """The pool of this name, opened for a ticket with at least `need` cells; None while other pools hold them.

        Raises BackendError when it cannot be opened, OutOfTime when it can be in another round.
        """
        if name not in self.by_name:
            self._take_opened()
        if name not in self.by_name:
            cells = self._affordable(need, need + TAIL_ROOM)
            if cells is None:
                return None
            self._open(name, ticket, rounded(need), cells)
        return self.by_name[name]

    def _open(self, name: str, ticket: int, least: int, cells: int) -> None:
        """Of `cells`, or, where the machine has less than was granted, the least once idle pools are closed."""
        self._budget.take()
        if ticket != self._refused:
            if self.answering() and self._in_host_memory(cells) > OPENED_AT_ONCE:
                self._opening = Opening(name, ticket, cells, self._thread.submit(self._context, cells))
                raise OutOfTime
            try:
                self._add(name, self._context(cells))
                return
            except BackendError as error:
                self._refuse(ticket, error)
        for idle in [pool.name for pool in self.by_name.values() if pool.idle()]:
            self.close(idle)
        self._refused = None
        self._add(name, self._context(least))

    def _take_opened(self) -> None:
        """Takes the context that was opened beside answers. Raises OutOfTime while it is not there and an answer runs."""
        if (opening := self._opening) is None:
            return
        if self.answering() and not opening.memory.done():
            raise OutOfTime
        self._opening = None
        try:
            self._add(opening.name, opening.memory.result())
        except BackendError as error:
            self._refuse(opening.ticket, error)

    def _refuse(self, ticket: int, error: BackendError) -> None:
        log.warning("%s; idle pools are closed to try again with less", error)
        self._refused = ticket  # until they are closed: that may take more than this round

    def _add(self, name: str, memory: Memory) -> None:
        """A further pool is expected to have as large buffers beside its cells."""
        info = self.backend.info
        buffers = math.ceil(memory.buffers / info.kv_bytes_per_token) if info.kv_bytes_per_token else 0
        self._aside = max(self._aside, info.pool_tokens + buffers)
        self.by_name[name] = Pool(name, memory, self._evicting, self._prefill_cost, ranges=self.backend.info.ranges)

    def _in_host_memory(self, cells: int) -> float:
        return 0.0 if self.backend.info.gpu_layers else cells * self.backend.info.kv_bytes_per_token

    def _context(self, cells: int) -> Memory:
        return self.backend.open(cells, self._sequences)

    def entered(self, pool: Pool) -> None:
        """Marks a pool as the one used last."""
        self._entries += 1
        pool.used = self._entries

    def enlarge(self, pool: Pool) -> bool:
        """Moves a pool into a larger context where its last ticket wants one; whether it did. While an answer runs it is
        not moved, because the answer would stall."""
        if pool.wanted <= pool.memory.cells or self.answering():
            return False
        if pool.name in self._cramped:
            if pool.idle():
                self.close(pool.name)  # and opened as large as it must be, or not at all
            return False
        return self._move(pool, pool.wanted)

    def make_room_beside(self, pool: Pool, ids: "array[int]") -> None:
        """Moves the pool where the grant allows, so that a floor that is computed in advance leaves other floors there."""
        wanted = pool.cells_to_keep_all(ids)
        if pool.memory.cells < wanted and rounded(wanted) <= self._left() + pool.memory.cells:
            self._move(pool, wanted)

    def _move(self, pool: Pool, wanted: int) -> bool:
        """Into twice the cells where the grant has as many, so that it moves seldom; through host memory, at once."""
        cells = self._affordable(wanted, max(wanted, 2 * pool.memory.cells), moved=pool)
        if cells is None:
            return False
        if not move(pool, cells, self._context):
            self._cramped.add(pool.name)
            return False
        return True

    def _affordable(self, least: int, most: int, moved: Pool | None = None) -> int | None:
        """Cells for a context, between these, once idle pools made room; None where not even the least are there.

        The cells of a pool that is `moved` count as free.
        """
        least, most = rounded(least), rounded(most)
        free = self._left() + (moved.memory.cells if moved else -self._aside)
        closing = to_close(free, self._leaving(moved) if free < least else (), least)
        if closing is None:
            return None
        for pool in closing:
            self.close(pool.name)
        return min((free + sum(pool.cells for pool in closing)) // ROUND * ROUND, most)

    # -- closing

    def shrink_to_grant(self) -> None:
        """Closes idle pools, lowest retention value first, until the grant is kept. Raises OutOfTime."""
        if not self.exceed_grant():
            return
        for pool in self._leaving():
            self.close(pool.name)
            if not self.exceed_grant():
                return
        self._take_opened()

    def _leaving(self, spared: Pool | None = None) -> list[Idle]:
        """Idle pools, lowest retention value first."""
        idle = [pool for pool in self.by_name.values() if pool.idle() and pool is not spared]
        judge = self._lost_ms if len(idle) > 1 else lambda _: 0.0  # the value of one alone decides nothing
        pools = (Idle(pool.name, pool.memory.cells + self._aside, judge(pool), pool.used) for pool in idle)
        return in_order(pools, self._entries)

    def close(self, name: str) -> None:
        """Frees an idle pool; `on_evict` sees its nodes first, so that they can be saved, and may raise OutOfTime."""
        pool = self.by_name[name]
        assert pool.idle()
        try:
            for node in pool.tree.nodes():
                self._evicting(pool, node)
        except BackendError as error:
            log.warning("the content of pool %s was not saved: %s", name, error)
        self.discard(name)

    def _evicting(self, pool: Pool, node: Node) -> None:
        self._on_evict(pool, node, self._budget)

    def discard(self, name: str) -> None:
        """Frees a pool as it is: nothing of it is saved, and tickets inside hold nothing from then on."""
        pool = self.by_name.pop(name)
        self._cramped.discard(name)
        for node in pool.tree.nodes():
            node.gone = True  # whoever still meant to save it finds no cells
        pool.memory.close()


def rounded(cells: int) -> int:
    """Up to what llama.cpp makes of it."""
    return -(-cells // ROUND) * ROUND


def sequences_of(backend: Backend, sequences: int, batch: int) -> int:
    """That each pool has; `sequences` are the set ones. A step has a row for each answer that runs.

    Without ranges nobody would ever be let in with fewer than three.
    """
    return max(LEAST_ANCHORED if not backend.info.ranges else 2, min(sequences, batch))


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


Ids: TypeAlias = "array[int]"


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
