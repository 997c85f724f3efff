"""Which jobs may run: floors, pools and their size under the governor's grant, and what is refused.

A ticket enters when its pool has room for its whole prompt and for all it may answer, and a sequence; until then it waits.
What could not fit in an empty machine is refused, and so are foreign token ids and settings out of range: llama.cpp takes
any setting, fails a whole step for one foreign id, and the API checks its own clients only.

Pools are opened per floor, moved into a larger context while nobody is answered, and closed when idle and another floor
needs their cells. While somebody is answered this happens in pieces within the round's time budget. One writer calls
all of it.
"""

import logging
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from orchestrator.engine.backend import Backend, BackendError, Memory
from orchestrator.engine.cache.eviction import CARRIED_IN_A_SECOND, Idle, in_order, room
from orchestrator.engine.cache.pool import ROUND, Pool, move, release, rounded
from orchestrator.engine.cache.tree import Node
from orchestrator.engine.costs import TimeBudget, endless
from orchestrator.engine.messages import Grant, InferenceJob, PrefillCost, Reason, Sampling
from orchestrator.engine.scheduler.ticket import Ticket

TAIL_ROOM = 8192  # cells a pool opens with beyond its floor, when the grant has them
# Name, least, most; both are allowed.
RANGES = (
    ("temperature", 0.0, 2.0),
    ("top_k", 0, 2**31 - 1),
    ("top_p", 1e-6, 1.0),
    ("min_p", 0.0, 1.0),
    ("repeat_penalty", 0.1, 10.0),
)
WHOLE = ("top_k", "seed", "logprobs")
MOST_LOGPROBS = 100
log = logging.getLogger("lorekeep.engine")


@dataclass(frozen=True)
class FloorIds:
    """A floor's ids, and the name of its pool."""

    ids: "array[int]"
    pool: str

    @cached_property
    def highest(self) -> int:
        """Of its ids; -1 where it has none."""
        return highest(self.ids)


@dataclass(frozen=True)
class Refusal:
    reason: Reason
    detail: str


class Admission:
    """The known floors and the open pools.

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
        self.floors: dict[str, FloorIds] = {}
        self.pools: dict[str, Pool] = {}
        self._backend = backend
        self._sequences = sequences
        self._on_evict = on_evict
        self._lost_ms = lost_ms
        self._answering = answering
        self._prefill_cost = prefill_cost
        self._entries = 0
        self._budget: TimeBudget = endless()
        self._refused: int | None = None  # the ticket for which there was no context of the size wanted
        self._grown_out: set[str] = set()  # pools with no room for a larger context: asked once, not each round

    @contextmanager
    def within(self, budget: TimeBudget) -> Iterator[None]:
        """Openings and evictions inside take their time from `budget`; elsewhere, in a step above all, none waits."""
        self._budget = budget
        try:
            yield
        finally:
            self._budget = endless()

    def take(self, grant: Grant) -> None:
        """Applies a grant, rounded down to what llama.cpp makes of a context."""
        self.grant = replace(grant, cells=grant.cells // ROUND * ROUND)
        if not self._answering():
            self.shrink_to_grant()

    # -- at the door

    def refusal(self, job: InferenceJob) -> Refusal | None:
        """Why this job can never run under the present grant; None when it may wait."""
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
            self.pools[name] = Pool(name, memory, self._evicting, self._prefill_cost, ranges=self._backend.info.ranges)
        return self.pools[name]

    def _open(self, ticket: int, least: int, cells: int) -> Memory:
        """A context of `cells`, or, where the machine has less than was granted, the least once idle pools are gone."""
        self._budget.take()
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
        """Whether the pool was moved to a larger context. While an answer runs it is not moved: the answer would stall."""
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
        """Idle pools, lowest retention value first."""
        idle = [pool for pool in self.pools.values() if pool.idle() and pool is not spared]
        judge = self._lost_ms if len(idle) > 1 else lambda _: 0.0  # the value of one alone decides nothing
        pools = (Idle(pool.name, pool.memory.cells, judge(pool), pool.used) for pool in idle)
        return in_order(pools, self._entries)

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
        self._on_evict(pool, node, self._budget)

    def discard(self, name: str) -> None:
        """Frees a pool as it is: no tier takes anything of it, and tickets inside hold nothing from then on."""
        pool = self.pools.pop(name)
        for node in pool.tree.nodes():
            node.gone = True  # whoever still meant to save it finds no cells
        pool.memory.close()

    def shrink_to_grant(self) -> None:
        """Closes idle pools, lowest retention value first, until the grant is kept. Raises OutOfTime."""
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


def refused(job: InferenceJob, floors: Mapping[str, FloorIds], grant: Grant, tokens: int) -> Refusal | None:
    """Why a job can never run under this grant; None when it may wait for its turn. `tokens`: of the vocabulary."""
    if job.floor not in floors:
        return Refusal(Reason.UNKNOWN_FLOOR, f"the engine does not know floor {job.floor[:12]}")
    return _foreign(job, floors[job.floor], tokens) or _too_long(job, floors[job.floor], grant)


def highest(ids: "array[int] | bytes") -> int:
    """The highest of these ids; -1 where there are none."""
    found = np.frombuffer(ids, np.uint32)
    return int(found.max()) if found.size else -1


def _foreign(job: InferenceJob, floor: FloorIds, tokens: int) -> Refusal | None:
    """llama.cpp fails a whole step for an id without a token, and ends the process where it is asked for its text."""
    for what, token in ((f"floor {job.floor[:12]}", floor.highest), ("the prompt", highest(job.tail))):
        if token >= tokens:
            why = f"{what} has token {token}, the vocabulary {tokens} tokens: its ids are damaged or another model's"
            return Refusal(Reason.TOKENS, why)
    return None


def _too_long(job: InferenceJob, floor: FloorIds, grant: Grant) -> Refusal | None:
    prompt = len(floor.ids) + len(job.tail) // 4
    need = prompt + job.max_tokens
    if need > grant.window:
        return Refusal(Reason.WINDOW, f"{prompt} + {job.max_tokens} tokens exceed the window of {grant.window}")
    if need > grant.cells:
        stale = job.grant not in (0, grant.number)
        reason = Reason.STALE if stale else Reason.CELLS
        return Refusal(reason, f"{need} tokens of KV are needed, {grant.cells} are granted")
    return None


def out_of_range(job: InferenceJob) -> Refusal | None:
    """What is wrong with a job's settings, in words; None when nothing is."""
    fault = _sampling_fault(job.sampling) or _ending_fault(job)
    return Refusal(Reason.SAMPLING, fault) if fault else None


def _ending_fault(job: InferenceJob) -> str | None:
    if not isinstance(job.max_tokens, int):
        return f"max_tokens {job.max_tokens!r} is no whole number"
    if job.max_tokens < 0:
        return f"max_tokens {job.max_tokens} is below 0"
    odd = [stop for stop in job.stop if not isinstance(stop, str)]
    return f"the stop string {odd[0]!r} is no text" if odd else None


def _sampling_fault(sampling: Sampling) -> str | None:
    for name, least, most in RANGES:
        value = getattr(sampling, name)
        if not least <= value <= most:  # NaN fails it too; a whole number may be too large for isfinite
            return f"{name} {value} is not between {least} and {most}"
    for name in WHOLE:
        value = getattr(sampling, name)
        if value is not None and not isinstance(value, int):
            return f"{name} {value!r} is no whole number"
    wanted = sampling.logprobs
    if wanted is not None and not 0 <= wanted <= MOST_LOGPROBS:
        return f"logprobs {wanted} is not between 0 and {MOST_LOGPROBS}"
    return None
