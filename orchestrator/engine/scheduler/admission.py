"""Who may come in: floors, pools and their growth, under the governor's grant.

A ticket enters when its pool holds its whole prompt and all it may answer, and has a sequence for it; until then it waits,
and what could not even fit an empty machine is refused at the door. Pools are opened per floor, grown by re-creating, and
closed when idle and another floor needs their cells. While somebody is answered all of it is done in pieces that the
round has time for (`slack`), and a pool grows beside its old context or not at all. One writer calls all of it.
"""

import logging
from collections.abc import Callable, Container, Iterable
from dataclasses import replace

from orchestrator.engine.backend import Backend, BackendError, Memory
from orchestrator.engine.cache.eviction import CARRIED_IN_A_SECOND, Price
from orchestrator.engine.cache.leaving import Idle, leaving, room
from orchestrator.engine.cache.moving import Moving
from orchestrator.engine.cache.node import Node
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.releasing import release
from orchestrator.engine.cache.sizes import ROUND, Growth, Scale, Size, rounded, size_of
from orchestrator.engine.cache.transfer import move
from orchestrator.engine.messages import Grant, InferenceJob
from orchestrator.engine.scheduler.refusals import Floor, Refusal, refused
from orchestrator.engine.scheduler.slack import Slack, endless
from orchestrator.engine.scheduler.ticket import Ticket

TAIL_ROOM = 8192  # cells a pool opens with beyond its floor, when the grant has them

log = logging.getLogger("lorekeep.engine")


class Admission:
    """The floors known and the pools that stand.

    `on_evict` sees each node before its cells are given up, again where it raised OutOfTime. `lost_ms` is what it would
    take to have again what stands in a pool. `answering` says whether somebody would notice that a round takes long.
    `slack` is the round's; the loop sets it.
    """

    def __init__(
        self,
        backend: Backend,
        scale: Scale,
        on_evict: Callable[[Pool, Node, Slack], None],
        lost_ms: Callable[[Pool], float],
        answering: Callable[[], bool],
        price: Callable[[], Price],
    ) -> None:
        self.grant = Grant(0, 0, 0)
        self.floors: dict[str, Floor] = {}
        self.pools: dict[str, Pool] = {}
        self._backend = backend
        self._scale = scale
        self._on_evict = on_evict
        self._lost_ms = lost_ms
        self._answering = answering
        self._price = price
        self._entries = 0
        self.slack: Slack = endless()
        self._moves: dict[str, Moving] = {}
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
        if self._too_wide(name, need):
            self.close(name)
        return self._pool(name, need, ticket.number)

    def _too_wide(self, name: str, need: int) -> bool:
        """Whether the buffers of an idle pool's further sequences take what a ticket needs, however much else goes."""
        pool = self.pools.get(name)
        if pool is None or not pool.idle() or need <= pool.memory.cells:
            return False
        return rounded(need) + self._scale.beside(pool.memory.sequences) > self.grant.cells

    def admit(self, ticket: Ticket, pool: Pool) -> bool:
        """Gives the ticket its path and its reservation in the pool; False when it has to wait. Raises OutOfTime."""
        if ticket.job.is_in_advance and self._widens(pool, ticket):
            return False
        tip = self._lease(pool, ticket)
        if tip is None and self._grow(pool):
            tip = self._lease(pool, ticket)
        if tip is None:
            return False
        self._entries += 1
        pool.used = self._entries
        ticket.pool, ticket.tip = pool, tip
        return True

    def _widens(self, pool: Pool, ticket: Ticket) -> bool:
        """Whether the pool moves first, where the grant bears that: a floor computed in advance leaves others standing."""
        growth = self._scale.grown(size_of(pool.memory), pool.beside(ticket.ids), 0)
        to_spare = self.grant.cells - self.held()
        if growth is not None and pool.name not in self._moves and self._scale.weight(growth.least) <= to_spare:
            self._move_beside(pool, growth)
        return pool.name in self._moves

    def _lease(self, pool: Pool, ticket: Ticket) -> Node | None:
        return pool.admit(ticket.number, ticket.ids, ticket.cut, ticket.job.owner, ticket.job.max_tokens)

    # -- pools

    def _pool(self, name: str, need: int, ticket: int) -> Pool | None:
        if name not in self.pools:
            least, most = (Size(rounded(cells), self._scale.sequences) for cells in (need, need + TAIL_ROOM))
            size = self._affordable(Growth(least, most), ())
            if size is None:
                return None
            memory = self._open(ticket, least, size)
            self._grown_out.discard(name)
            self.pools[name] = Pool(name, memory, self._evicting, self._price, ranges=self._backend.info.ranges)
        return self.pools[name]

    def _open(self, ticket: int, least: Size, size: Size) -> Memory:
        """A context of `size`, or, where the machine has less than was granted, the least once idle pools are gone."""
        self.slack.take()
        if ticket != self._refused:
            try:
                return self._context(size)
            except BackendError as error:
                log.warning("%s; idle pools are closed to try again with %d tokens", error, least.cells)
        self._refused = ticket  # until they are gone: that may take more than this round
        for idle in [pool.name for pool in self.pools.values() if pool.idle()]:
            self.close(idle)
        self._refused = None
        return self._context(least)

    def _context(self, size: Size) -> Memory:
        return self._backend.open(size.cells, size.sequences)

    def _grow(self, pool: Pool) -> bool:
        """Whether a pool is in a larger context now; sequences keep their numbers, so running tickets go on."""
        growth = self._scale.grown(size_of(pool.memory), pool.wanted, pool.tree.evictable())
        if growth is None or pool.name in self._moves:
            return False
        if pool.name in self._grown_out:
            if pool.idle():
                self.close(pool.name)  # and opened as large as it must be, or not at all
            return False
        return self._move_beside(pool, growth) if self._answering() else self._move(pool, growth)

    def _move(self, pool: Pool, growth: Growth) -> bool:
        """Through host memory, at once: nobody is answered."""
        size = self._affordable(growth, (pool.name,))
        if size is None:
            return False
        if not move(pool, size, self._context):
            self._grown_out.add(pool.name)
            return False
        return True

    def _move_beside(self, pool: Pool, growth: Growth) -> bool:
        """Begins a move that answers do not notice, where both contexts fit; else it grows once nobody is answered."""
        if not pool.tree.ranges:
            return False
        size = self._affordable(growth, (), spared=pool.name)
        if size is None:
            return False
        self.slack.take()
        try:
            larger = self._context(size)
        except BackendError as error:
            log.warning("%s; pool %s grows when nobody is answered", error, pool.name[:12])
            return False
        self._moves[pool.name] = Moving(pool, larger)
        self.go_on()
        return pool.name not in self._moves

    def go_on(self) -> None:
        """What was begun in an earlier round: pools move on, and idle ones go that are not granted. Raises OutOfTime."""
        for name, moving in list(self._moves.items()):
            try:
                moving.go_on(self.slack)
            except BackendError as error:
                log.warning("pool %s stays as large as it is: %s", name[:12], error)
                self._grown_out.add(name)
                moving.abandon()
            del self._moves[name]
        self.shrink_to_grant()

    def left(self) -> bool:
        """Whether `go_on` has something to do: a pool moves, or more is held than granted."""
        return bool(self._moves) or self.held() > self.grant.cells

    def _affordable(self, growth: Growth, kept: Iterable[str], spared: str | None = None) -> Size | None:
        """A size between least and most once idle pools made room; None when not even the least is there.

        Cells of pools in `kept` count as free; `spared` is not closed.
        """
        least, free = self._scale.weight(growth.least), self.grant.cells - self.held() + sum(map(self._held_by, kept))
        made = room(free, self._leaving({*kept, spared}) if free < least else (), least)
        if made is None:
            return None
        for pool in made.closing:
            self.close(pool.name)
        cells = (made.free - self._scale.beside(growth.least.sequences)) // ROUND * ROUND
        return replace(growth.most, cells=min(cells, growth.most.cells))

    def _leaving(self, spared: Container[str | None] = ()) -> list[Idle]:
        """Idle pools, worth least first."""
        idle = [pool for pool in self.pools.values() if pool.idle() and pool.name not in spared]
        return leaving(idle, lambda pool: self._held_by(pool.name), self._lost_ms, self._entries)

    def forget(self, name: str) -> Floor | None:
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
        self._moves.pop(name, None)  # its larger context goes with the memory of the pool
        for node in pool.tree.nodes():
            node.gone = True  # whoever still meant to save it finds no cells
        pool.memory.close()

    def shrink_to_grant(self) -> None:
        """After a smaller grant moves are abandoned and idle pools go, worth least first, until it is kept to."""
        if self.held() <= self.grant.cells:
            return
        for moving in self._moves.values():
            moving.abandon()
        self._moves.clear()
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
        return sum(map(self._held_by, self.pools))

    def _held_by(self, name: str) -> int:
        """Cells of the grant."""
        sizes = self._moves[name].sizes if name in self._moves else (size_of(self.pools[name].memory),)
        return sum(map(self._scale.weight, sizes))
