"""Who may come in: floors, pools and their growth, under the governor's grant.

A ticket enters when its pool holds its whole prompt and all it may answer, and has a sequence for it; until then it waits,
and what could not even fit an empty machine is refused. Pools are opened per floor, moved into a larger context while
nobody is answered, and closed when idle and another floor needs their cells. While somebody is answered all of it is done
in pieces that the round has time for (`time_budget`). One writer calls all of it.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from orchestrator.engine.backend import Backend, BackendError, Memory
from orchestrator.engine.cache.eviction import CARRIED_IN_A_SECOND, Price
from orchestrator.engine.cache.node import Node
from orchestrator.engine.cache.pool import ROUND, Pool, rounded
from orchestrator.engine.cache.releasing import Idle, leaving, release, room
from orchestrator.engine.cache.time_budget import TimeBudget, endless
from orchestrator.engine.cache.transfer import move
from orchestrator.engine.messages import Grant, InferenceJob
from orchestrator.engine.scheduler.refusals import FloorIds, Refusal, refused
from orchestrator.engine.scheduler.ticket import Ticket

TAIL_ROOM = 8192  # cells a pool opens with beyond its floor, when the grant has them

log = logging.getLogger("lorekeep.engine")


class Admission:
    """The floors known and the pools that stand.

    `on_evict` sees each node before its cells are given up, again where it raised OutOfTime. `lost_ms` is what it would
    take to have again what stands in a pool. `answering` says whether somebody would notice that a round takes long.
    `time_budget` is the round's; the loop sets it.
    """

    def __init__(
        self,
        backend: Backend,
        sequences: int,
        on_evict: Callable[[Pool, Node, TimeBudget], None],
        lost_ms: Callable[[Pool], float],
        answering: Callable[[], bool],
        price: Callable[[], Price],
    ) -> None:
        self.grant = Grant(0, 0, 0)
        self.floors: dict[str, FloorIds] = {}
        self.pools: dict[str, Pool] = {}
        self._backend = backend
        self._sequences = sequences
        self._on_evict = on_evict
        self._lost_ms = lost_ms
        self._answering = answering
        self._price = price
        self._entries = 0
        self.slack: TimeBudget = endless()
        self._refused: int | None = None  # the ticket for which there was no context of the size wanted
        self._grown_out: set[str] = set()  # pools with no room for a larger context: asked once, not each round

    def take(self, grant: Grant) -> None:
        """From now on this grant holds. In whole rounds, as llama.cpp makes contexts: a part of one is nobody's."""
        self.grant = replace(grant, cells=grant.cells // ROUND * ROUND)
        if not self._answering():
            self.shrink_to_grant()

    # -- at the door

    def refusal(self, job: InferenceJob) -> Refusal | None:
        """Why this job can never run, as things stand; None when it may wait for its turn."""
        return refused(job, self.floors, self.grant, self._backend.tokens)

    def pool_name(self, ticket: Ticket) -> str:
        return self.floors[ticket.job.floor].pool

    def pool_for(self, ticket: Ticket) -> Pool | None:
        """The pool that the ticket would run in, opened if need be; None when it has to wait for one.

        Raises BackendError when it cannot be opened, OutOfTime when it can be in another round. While more is held than
        granted nobody enters: what runs ends, and idle pools go.
        """
        self.shrink_to_grant()
        if self.held() > self.grant.cells:
            return None
        name, need = self.pool_name(ticket), len(ticket.ids) + ticket.job.max_tokens
        return self._pool(name, need, ticket.number)

    def admit(self, ticket: Ticket, pool: Pool) -> bool:
        """Gives the ticket its path and its reservation in the pool; False when it has to wait. Raises OutOfTime."""
        if ticket.job.is_in_advance and not self._answering():
            self._make_room_beside(pool, ticket)
        tip = self._lease(pool, ticket)
        if tip is None and self._grow(pool):
            tip = self._lease(pool, ticket)
        if tip is None:
            return False
        self._entries += 1
        pool.used = self._entries
        ticket.pool, ticket.tip = pool, tip
        return True

    def _make_room_beside(self, pool: Pool, ticket: Ticket) -> None:
        """Moves the pool where the grant allows, so that a floor that is computed in advance leaves other floors there."""
        wanted = pool.beside(ticket.ids)
        if pool.memory.cells < wanted and rounded(wanted) <= self.grant.cells - self.held() + pool.memory.cells:
            self._move(pool, wanted)

    def _lease(self, pool: Pool, ticket: Ticket) -> Node | None:
        return pool.admit(ticket.number, ticket.ids, ticket.cut, ticket.job.owner, ticket.job.max_tokens)

    # -- pools

    def _pool(self, name: str, need: int, ticket: int) -> Pool | None:
        if name not in self.pools:
            cells = self._affordable(need, need + TAIL_ROOM)
            if cells is None:
                return None
            memory = self._open(ticket, rounded(need), cells)
            self._grown_out.discard(name)
            self.pools[name] = Pool(name, memory, self._evicting, self._price, ranges=self._backend.info.ranges)
        return self.pools[name]

    def _open(self, ticket: int, least: int, cells: int) -> Memory:
        """A context of `cells`, or, where the machine has less than was granted, the least once idle pools are gone."""
        self.slack.take()
        if ticket != self._refused:
            try:
                return self._context(cells)
            except BackendError as error:
                log.warning("%s; idle pools are closed to try again with %d tokens", error, least)
        self._refused = ticket  # until they are gone: that may take more than this round
        for idle in [pool.name for pool in self.pools.values() if pool.idle()]:
            self.close(idle)
        self._refused = None
        return self._context(least)

    def _context(self, cells: int) -> Memory:
        return self._backend.open(cells, self._sequences)

    def _grow(self, pool: Pool) -> bool:
        """Whether a pool is in a larger context now. While somebody is answered it is not: they would stand still."""
        if pool.wanted <= pool.memory.cells or self._answering():
            return False
        if pool.name in self._grown_out:
            if pool.idle():
                self.close(pool.name)  # and opened as large as it must be, or not at all
            return False
        return self._move(pool, pool.wanted)

    def _move(self, pool: Pool, wanted: int) -> bool:
        """Into twice the cells where the grant has as many, so that it moves seldom; through host memory, at once."""
        cells = self._affordable(wanted, max(wanted, 2 * pool.memory.cells), moved=pool)
        if cells is None:
            return False
        if not move(pool, cells, self._context):
            self._grown_out.add(pool.name)
            return False
        return True

    def left(self) -> bool:
        """Whether more is held than granted."""
        return self.held() > self.grant.cells

    def _affordable(self, least: int, most: int, moved: Pool | None = None) -> int | None:
        """Cells for a context, between these, once idle pools made room; None where not even the least are there.

        The cells of a pool that is `moved` count as free.
        """
        least, most = rounded(least), rounded(most)
        free = self.grant.cells - self.held() + (moved.memory.cells if moved else 0)
        made = room(free, self._leaving(moved) if free < least else (), least)
        if made is None:
            return None
        for pool in made.closing:
            self.close(pool.name)
        return min(made.free // ROUND * ROUND, most)

    def _leaving(self, spared: Pool | None = None) -> list[Idle]:
        """Idle pools, worth least first."""
        idle = [pool for pool in self.pools.values() if pool.idle() and pool is not spared]
        return leaving(idle, self._lost_ms, self._entries)

    def forget(self, name: str) -> FloorIds | None:
        """Forgets a floor, and gives up the cells that only it could use; its pool goes with the last floor in it.
        Nothing of it may run. The tiers keep what they have of it."""
        floor = self.floors.pop(name, None)
        if floor is None or floor.pool not in self.pools:
            return floor
        others = [other.ids for other in self.floors.values() if other.pool == floor.pool]
        if others:
            release(self.pools[floor.pool], floor.ids, others)
        else:
            self.discard(floor.pool)
        return floor

    def close(self, name: str) -> None:
        """Frees an idle pool; `on_evict` sees its nodes first, so that tiers can take them, and may raise OutOfTime."""
        pool = self.pools[name]
        assert pool.idle()
        try:
            for node in pool.tree.nodes():
                self._evicting(pool, node)
        except BackendError as error:
            log.warning("what stood in pool %s was not kept: %s", name, error)
        self.discard(name)

    def _evicting(self, pool: Pool, node: Node) -> None:
        self._on_evict(pool, node, self.slack)

    def discard(self, name: str) -> None:
        """Frees a pool as it is: no tier takes anything of it, and tickets inside hold nothing from then on."""
        pool = self.pools.pop(name)
        for node in pool.tree.nodes():
            node.gone = True  # whoever still meant to save it finds no cells
        pool.memory.close()

    def shrink_to_grant(self) -> None:
        """After a smaller grant idle pools go, worth least first, until it is kept to. Raises OutOfTime."""
        if self.held() <= self.grant.cells:
            return
        for pool in self._leaving():
            if self.held() <= self.grant.cells:
                return
            self.close(pool.name)

    def carrying_s(self) -> float:
        """Seconds that a round should take at most beside its steps: no more can be carried about than all that stands,
        and all that is granted."""
        held = sum(pool.memory.footprint for pool in self.pools.values())
        return (held + self.grant.cells * self._backend.info.kv_bytes_per_token) / CARRIED_IN_A_SECOND

    def held(self) -> int:
        """Cells of the grant."""
        return sum(pool.memory.cells for pool in self.pools.values())
