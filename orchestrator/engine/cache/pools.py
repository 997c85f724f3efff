"""The open pools under the governor's grant: when one is opened, enlarged and closed.

    grant   ├── a pool ──┤── another ──┤── one that a thread opens ──┤── free ──┤

A pool is opened when a ticket needs it, moved into a larger context while nobody is answered, and closed when it is idle
and another one needs its cells. While somebody is answered this happens in pieces within the round's time budget.

llama.cpp clears a new context, in host memory 0.3 to 4 s a GB. So a large one is opened in a thread while somebody is
answered, one at a time. Whoever needs room next takes it as a pool: the ticket that it was opened for, or, where that was
cancelled, another one, which may close it.
"""

import logging
import math
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from orchestrator.engine.backend import Backend, BackendError, Memory
from orchestrator.engine.cache.eviction import CARRIED_IN_A_SECOND, Idle, in_order, to_close
from orchestrator.engine.cache.pool import Pool, move
from orchestrator.engine.cache.tree import Node
from orchestrator.engine.costs import OutOfTime, TimeBudget, endless
from orchestrator.engine.messages import Grant
from orchestrator.engine.prefill_cost import PrefillCost

TAIL_ROOM = 8192  # cells a pool opens with beyond its floor, when the grant has them
ROUND = 256  # llama.cpp pads a context to a multiple of this
OPENED_AT_ONCE = 64 << 20  # bytes of KV in host memory, which are cleared within a round
LEAST_ANCHORED = 3  # without ranges: what carries states, and for one answer its floor's state and its own
log = logging.getLogger("lorekeep.engine")


@dataclass(frozen=True)
class Opening:
    """A context that a thread opens for a ticket's pool."""

    name: str
    ticket: int
    cells: int
    memory: "Future[Memory]"


class Pools:
    """`on_evict` sees each node before its cells are freed, again where it raised OutOfTime. `lost_ms` is the cost of
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
        self._lent = 0  # tokens of the grant, for what is opened beside the pools
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
        cells = (*(pool.memory.cells for pool in self.by_name.values()), *opening)
        return self._lent + sum(one + self._aside for one in cells)

    def lend(self, tokens: int) -> bool:
        """Takes so many tokens of the grant for what is opened beside the pools; less than 0 gives them back. False where
        fewer are free."""
        if tokens > max(0, self.free()):
            return False
        self._lent += tokens
        return True

    def exceed_grant(self) -> bool:
        return self.free() < 0

    def free(self) -> int:
        """Tokens of the grant that nobody holds; less than 0 where more is held than granted."""
        return self.grant.cells + self._aside - self.held()

    def carrying_s(self) -> float:
        """Seconds that a round should take at most beside its steps: no more than all cells are saved and restored."""
        held = sum(pool.memory.footprint for pool in self.by_name.values())
        return (held + self.grant.cells * self.backend.info.kv_bytes_per_token) / CARRIED_IN_A_SECOND

    # -- opening

    def opened(self, name: str, need: int, ticket: int) -> Pool | None:
        """The pool of this name, opened for a ticket with at least `need` cells; None while other pools hold them.

        Raises BackendError when it cannot be opened, OutOfTime when it can be in another round.
        """
        if name not in self.by_name:
            self._take_opened(ticket)
        while name not in self.by_name:
            cells = self._affordable(need, need + TAIL_ROOM)
            if cells is None:
                return None
            self._open(name, ticket, rounded(need), cells)
        return self.by_name[name]

    def _open(self, name: str, ticket: int, least: int, cells: int) -> None:
        """With `cells`. To a ticket that was refused these, with the least, once idle pools are closed."""
        self._budget.take()
        if ticket == self._refused:
            cells = least
            for idle in [pool.name for pool in self.by_name.values() if pool.idle()]:
                self.close(idle)
        if self.answering() and self._in_host_memory(cells) > OPENED_AT_ONCE:
            self._opening = Opening(name, ticket, cells, self._thread.submit(self._context, cells))
            raise OutOfTime
        self._add(name, ticket, partial(self._context, cells))

    def _take_opened(self, asking: int | None = None) -> None:
        """Makes a pool of the context that a thread opened, for whatever ticket. Raises OutOfTime while it is not there and
        an answer runs, BackendError where the ticket that asks is refused it for good."""
        if (opening := self._opening) is None:
            return
        if self.answering() and not opening.memory.done():
            raise OutOfTime
        self._opening = None
        try:
            self._add(opening.name, opening.ticket, opening.memory.result)
        except BackendError:
            if opening.ticket == asking:
                raise

    def _add(self, name: str, ticket: int, context: Callable[[], Memory]) -> None:
        """Where there is none the ticket may try again with less; at its second refusal BackendError is raised."""
        refused, self._refused = self._refused, None
        try:
            memory = context()
        except BackendError as error:
            if ticket == refused:
                raise
            log.warning("%s; idle pools are closed to try again with less", error)
            self._refused = ticket
            return
        self._note_buffers(memory)
        self.by_name[name] = Pool(name, memory, self._evicting, self._prefill_cost, ranges=self.backend.info.ranges)

    def _note_buffers(self, memory: Memory) -> None:
        """A further pool is expected to have as large ones beside its cells."""
        info = self.backend.info
        buffers = math.ceil(memory.buffers / info.kv_bytes_per_token) if info.kv_bytes_per_token else 0
        self._aside = max(self._aside, info.pool_tokens + buffers)

    def _in_host_memory(self, cells: int) -> float:
        info = self.backend.info
        return 0.0 if info.gpu_layers else (cells + info.pool_tokens) * info.kv_bytes_per_token

    def _context(self, cells: int) -> Memory:
        return self.backend.open(cells, self._sequences)

    def entered(self, pool: Pool) -> None:
        """Marks a pool as the one used last."""
        self._entries += 1
        pool.used = self._entries

    # -- enlarging

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
        if pool.memory.cells < wanted and rounded(wanted) <= self.free() + pool.memory.cells:
            self._move(pool, wanted)

    def _move(self, pool: Pool, wanted: int) -> bool:
        """Into twice the cells where the grant has as many, so that it moves seldom; through host memory, at once."""
        self._take_opened()  # it may be what has the room
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
        free = self.free() + (moved.memory.cells if moved else -self._aside)
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
