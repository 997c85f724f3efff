"""Which jobs may run: what is refused, how a waiting ticket enters a pool, and what follows when llama.cpp fails in one.

    refused? ─▶ sampler ─▶ pool ─▶ cells reserved ─▶ checkpoints of the prompt restored ─▶ the rest computed

A ticket enters when its pool has room for its whole prompt and for all it may answer, and a sequence; until then it waits.
The first ticket in line enters or waits for room; nobody overtakes it. One with a JSON schema joins the line once that is
compiled, at the place of its arrival. Interactive tickets stand before background ones,
older before younger. A prompt that is restored piece by piece has its cells already and holds up nobody else. Memories
that cannot be cut restore before they enter, at once.

What could not fit in an empty machine is refused, and so are foreign token ids and settings out of range: llama.cpp takes
any setting, fails a whole step for one foreign id, and the API checks its own clients only.

    failure ─▶ the context is freed, its KV is lost ─▶ tickets that had begun to answer fail, the others wait again
       │
       ├─ again, before a step of that pool succeeded:  a ticket that was there before fails; it then was alone in it
       └─ and again, or with nobody who was there before: the error is raised, which ends the process

A new context helps where a ticket or a context was at fault; where neither was, only a new process may help. A ticket that
waits again enters alone, so that it fails no other ticket twice. Floors computed in the background do not enter alone,
because no question may wait for them.
"""

import logging
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from orchestrator.engine.backend import BackendError, SchemaRefused
from orchestrator.engine.cache.pool import Pool, evict_floor
from orchestrator.engine.cache.pools import Pools
from orchestrator.engine.cache.tree import Node, Path
from orchestrator.engine.checkpoints.manager import CheckpointManager
from orchestrator.engine.costs import OutOfTime, TimeBudget
from orchestrator.engine.messages import (
    ALONE,
    Admitted,
    Grant,
    InferenceJob,
    Matched,
    Outcome,
    PrefixMatch,
    PutFloor,
    Reason,
    Reuse,
    Sampling,
    Urgency,
    bytes_to_ids,
)
from orchestrator.engine.scheduler.step import Speculation
from orchestrator.engine.scheduler.ticket import (
    Due,
    Phase,
    Reporting,
    Ticket,
    claim,
    covering,
    in_order,
    reuse_of,
    waits_for,
)

MOST_IN_A_ROW = 2  # failures of one pool
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
    """The known floors, and the line of waiting tickets. `tickets` are all there are, by number."""

    def __init__(
        self,
        pools: Pools,
        checkpoints: CheckpointManager | None,
        speculation: Speculation,
        tickets: Mapping[int, Ticket],
        reporting: Reporting,
    ) -> None:
        self.floors: dict[str, FloorIds] = {}
        self._pools = pools
        self._checkpoints = checkpoints
        self._speculation = speculation
        self._tickets = tickets
        self._reporting = reporting
        self._in_a_row: dict[str, int] = {}  # failures, by pool

    # -- floors

    def put_floor(self, message: PutFloor) -> None:
        known = FloorIds(bytes_to_ids(message.ids), message.pool or message.name)
        self.floors.setdefault(message.name, known)

    def drop_floor(self, name: str) -> None:
        """Forgets a floor that no ticket uses, and what only it could use in the cells and on disk; its pool goes with the
        last floor in it."""
        floor = self.floors.pop(name, None)
        self._speculation.forget(name)
        if floor is None:
            return
        if floor.pool in self._pools.by_name:
            others = [other.ids for other in self.floors.values() if other.pool == floor.pool]
            if others:
                evict_floor(self._pools.by_name[floor.pool], floor.ids, others)
            else:
                self._pools.discard(floor.pool)
        if self._checkpoints is not None:
            self._checkpoints.forget_floor(floor.ids, [other.ids for other in self.floors.values()])

    def floor_ids(self, name: str) -> "array[int]":
        """Empty for a floor that is not known."""
        return self.floors[name].ids if name in self.floors else array("I")

    def match(self, asked: PrefixMatch) -> Matched:
        """What a job of this prompt would reuse if it were admitted now, and how many of its tokens need no computing.

            prompt  ├──── cells ────┼── checkpoints ──┼── computed ──┤

        The searches are those of admission and of restores. Not considered are how much room there is, damaged files, and
        jobs that arrive before. With an answer wanted the last token is computed in any case.
        """
        floor = self.floor_ids(asked.floor)
        path = Path(floor + bytes_to_ids(asked.tail), len(floor), asked.owner)
        length = len(path.ids)
        limit = length - 1 if asked.max_tokens else length
        depth, computed_end, ends = 0, 0, [0]
        if asked.floor in self.floors and (pool := self._pools.by_name.get(self.floors[asked.floor].pool)) is not None:
            node, depth = pool.tree.match(path.ids[:limit], path.owner)
            computed_end, ends = node.computed_end, [0, *(one.end for one in node.path() if one.end < depth), depth]
        restored, left, end = list[Reuse](), 0, min(depth, computed_end)
        if end == depth and self._checkpoints is not None:  # else somebody is computing it, or nothing is on disk
            restored, left = self._checkpoints.restorable(path, limit, ends)
            end = restored[-1].end if restored else depth
        return Matched(asked.call, end, covering(restored, end, length), left)

    # -- the line

    def refusal(self, job: InferenceJob) -> Refusal | None:
        """Why this job can never run under the present grant; None when it may wait."""
        return refused(job, self.floors, self._pools.grant, self._pools.backend.tokens)

    def admit(self, budget: TimeBudget) -> None:
        """Admits tickets in the order of the line while there is room, and restores their prompts, as far as the round
        has time for it.

        Raises BackendError when the backend is not to be trusted.
        """
        moving = True  # whether the line moves
        for ticket in in_order(self._tickets):
            if ticket.phase is Phase.WAITING and moving and not ticket.awaits_sampler:
                moving = self._moved_up(ticket, budget)
            if ticket.phase is Phase.RESTORING:
                self._restore(ticket, budget)

    def _moved_up(self, ticket: Ticket, budget: TimeBudget) -> bool:
        """Whether the next one may try: the ticket is in, or out."""
        refusal = self.refusal(ticket.job)
        if refusal:
            self._reporting.end(ticket, Outcome.REFUSED, refusal.reason, refusal.detail)
            return True
        try:
            return self._enter(ticket, budget)
        except OutOfTime:
            return False

    def _enter(self, ticket: Ticket, budget: TimeBudget) -> bool:
        try:
            ticket.sampler = ticket.sampler or self._pools.backend.sampler(ticket.job.sampling)
        except SchemaRefused as error:
            self._reporting.end(ticket, Outcome.REFUSED, Reason.SCHEMA, str(error))
            return True
        name = f"{ALONE}{ticket.number}" if ticket.job.uncached else self.floors[ticket.job.floor].pool
        try:
            pool = self._pool_for(ticket, name)
        except BackendError as error:
            if name in self._in_a_row:
                raise  # a context that had failed cannot be replaced
            log.error("pool %s could not be opened: %s", name, error)
            self._reporting.end(ticket, Outcome.FAILED, Reason.ENGINE, str(error))
            return True
        if pool is None or not self._free_for(ticket, pool) or not self._given(ticket, pool, budget):
            return False
        ticket.enter(Phase.RESTORING)
        ticket.due = self._due(ticket)
        return True

    def _pool_for(self, ticket: Ticket, name: str) -> Pool | None:
        """The pool that the ticket would run in, opened if need be; None when it has to wait for one.

        While more is held than granted nobody enters: what runs ends, and idle pools go.
        """
        self._pools.shrink_to_grant()
        if self._pools.exceed_grant():
            return None
        return self._pools.opened(name, len(ticket.ids) + ticket.job.max_tokens, ticket.number)

    def _free_for(self, ticket: Ticket, pool: Pool) -> bool:
        """Whether the ticket may enter now: one that saw a failure enters alone."""
        if alone(ticket):
            return pool.idle()
        return not any(alone(other) and other.pool is pool for other in self._tickets.values())

    def _given(self, ticket: Ticket, pool: Pool, budget: TimeBudget) -> bool:
        """Whether the ticket has its path and its cells now. Raises OutOfTime."""
        try:
            if self._checkpoints is not None and not ticket.job.uncached:
                self._checkpoints.restore_before_entry(pool, ticket.wanted, budget)
            if ticket.job.is_in_advance and not self._pools.answering():
                self._pools.make_room_beside(pool, ticket.ids)
            tip = self._lease(pool, ticket)
            if tip is None and self._pools.enlarge(pool):
                tip = self._lease(pool, ticket)
        except BackendError as error:
            self.failed(pool, error)
            return False
        if tip is None:
            return False
        self._pools.entered(pool)
        ticket.pool, ticket.tip = pool, tip
        return True

    def _lease(self, pool: Pool, ticket: Ticket) -> Node | None:
        job, marks = ticket.job, [ticket.cut + mark for mark in ticket.job.marks]
        return pool.admit(ticket.number, ticket.ids, ticket.cut, job.owner, job.max_tokens, marks)

    def _due(self, ticket: Ticket) -> Due:
        progress = ticket.progress()
        return self._reporting.counters.computed_tokens + progress.total - progress.done, ticket.in_line

    def _restore(self, ticket: Ticket, budget: TimeBudget) -> None:
        """Restores the prompt of an admitted ticket from checkpoints; the rest is computed then."""
        assert ticket.pool is not None and ticket.tip is not None
        try:
            if self._checkpoints is not None and not ticket.job.uncached:
                claiming = partial(claim, ticket, tickets=self._tickets)
                self._checkpoints.restore(ticket.pool, ticket.tip, ticket.wanted, claiming, budget)
        except OutOfTime:
            return
        except BackendError as error:
            self.failed(ticket.pool, error)
            return
        other = waits_for(ticket, self._tickets)
        if other is None or other.phase is not Phase.RESTORING:
            self._begin(ticket)

    def _begin(self, ticket: Ticket) -> None:
        assert ticket.sampler is not None
        if (node := ticket.unfinished()) is not None:
            claim(ticket, node, self._tickets)  # before another one enters who needs it too
        ticket.enter(Phase.PREFILL)
        ticket.admitted_at = self._reporting.clock()
        ticket.due = min(ticket.due, self._due(ticket))
        ticket.reuse = reuse_of(ticket)
        ticket.sampler.accept_prompt(ticket.ids)
        self._speculation.begin(ticket)
        queue_ms = (ticket.admitted_at - ticket.arrived_at) * 1000
        left = ticket.restored.left or 0
        self._reporting.send(Admitted(ticket.number, len(ticket.ids), ticket.reuse, queue_ms, left))
        if ticket.unfinished() is None:
            self._reporting.end(ticket, Outcome.DONE, Reason.PREFILLED, "")

    # -- failures of llama.cpp

    def succeeded(self, pool: Pool) -> None:
        """A step of the pool succeeded."""
        self._in_a_row.pop(pool.name, None)

    def failed(self, pool: Pool, error: BackendError) -> None:
        """Gives the pool up; it is opened anew when somebody enters it. Raises the error where that will not help."""
        inside = [ticket for ticket in self._tickets.values() if ticket.pool is pool]
        row = self._in_a_row[pool.name] = self._in_a_row.get(pool.name, 0) + 1
        if row > MOST_IN_A_ROW or (row == MOST_IN_A_ROW and not any(ticket.suspect for ticket in inside)):
            raise error
        log.error("pool %s failed and is opened anew, %d tickets were in it: %s", pool.name, len(inside), error)
        self._reporting.counters.pool_failures += 1
        self._pools.discard(pool.name)
        for ticket in inside:
            ticket.pool = ticket.tip = None
            if ticket.generated or ticket.suspect:
                self._reporting.end(ticket, Outcome.FAILED, Reason.ENGINE, f"the engine failed ({error})")
            else:
                ticket.wait_again()


def alone(ticket: Ticket) -> bool:
    return ticket.failed_before and ticket.phase is not Phase.ENDED and ticket.job.urgency is Urgency.INTERACTIVE


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
