"""The engine's loop: one writer over all pools.

    admit → plan the round → decode → sample → tell

It takes messages and posts messages; what to compute is decided in `plan`, who may come in in `admission`, what is
shared in `tree`. It does not know processes, sockets, or what a prompt means.
"""

import logging
from array import array
from collections.abc import Callable

from orchestrator.engine import conservation, outcomes
from orchestrator.engine.admission import Admission, Floor
from orchestrator.engine.backend import Backend, SchemaRefused
from orchestrator.engine.costs import Costs
from orchestrator.engine.counters import Counters
from orchestrator.engine.keeper import Keeper, Path, deepest
from orchestrator.engine.messages import (
    Admitted,
    Cancel,
    DropFloor,
    FromChild,
    Grant,
    Job,
    Outcome,
    PutFloor,
    Reason,
    Snapshot,
)
from orchestrator.engine.node import Node
from orchestrator.engine.plan import Draft, Limits, Step, Want, plan_round
from orchestrator.engine.pools import Pool
from orchestrator.engine.speculation import Speculation
from orchestrator.engine.stepping import Stepping
from orchestrator.engine.text import TextStream
from orchestrator.engine.tickets import Phase, Ticket
from orchestrator.engine.tiers import Tiers
from orchestrator.engine.whole_keeper import WholeKeeper

log = logging.getLogger("lorekeep.engine.loop")

BEHIND_SECONDS = 0.02  # of a round, for writing behind the answers

Post = Callable[[list[FromChild]], None]
Clock = Callable[[], float]


class Loop:
    """`post` takes the messages of one round at once; `clock` gives seconds; without `tiers` nothing outlives the cells."""

    def __init__(
        self, backend: Backend, sequences: int, limits: Limits, post: Post, clock: Clock, tiers: Tiers | None = None
    ) -> None:
        self.backend = backend
        self.keeper = keeper_of(backend, tiers, clock)
        self.admission = Admission(backend, sequences, self._evicted)
        self.counters = Counters()
        self._limits = limits
        self._post = post
        self._clock = clock
        self._tickets: dict[int, Ticket] = {}
        self._arrivals = 0
        self._out: list[FromChild] = []
        self._speculation = Speculation(self.counters, ranges=backend.info.ranges)
        self._stepping = Stepping(backend, self.counters, self._speculation, self._out_of_round, self._end, clock)

    # -- what comes in

    def handle(self, message: object) -> None:
        if isinstance(message, Job):
            self._arrive(message)
        elif isinstance(message, Cancel):
            self._cancel(message.ticket)
        elif isinstance(message, PutFloor):
            self.admission.floors.setdefault(message.name, Floor(ids_of(message.ids), message.pool or message.name))
        elif isinstance(message, DropFloor):
            self._drop(message.name)
        elif isinstance(message, Grant):
            self.admission.grant = message
            self.admission.shrink_to_grant()
        else:
            raise TypeError(f"the loop takes no {type(message).__name__}")

    def _arrive(self, job: Job) -> None:
        self._arrivals += 1
        known = self.admission.floors.get(job.floor)
        floor = known.ids if known else array("I")
        ids = floor + ids_of(job.tail)
        ticket = Ticket(job, ids, len(floor), self._arrivals, self._clock(), text=TextStream(job.stop))
        self._tickets[job.ticket] = ticket
        refusal = self.admission.refusal(job)
        if refusal:
            self._end(ticket, Outcome.REFUSED, refusal.reason, refusal.detail)
        elif not ids:
            self._end(ticket, Outcome.REFUSED, Reason.WINDOW, "the prompt is empty")

    def _cancel(self, number: int) -> None:
        if number in self._tickets:
            self._end(self._tickets[number], Outcome.CANCELLED, Reason.CANCELLED)

    def _drop(self, name: str) -> None:
        for ticket in [ticket for ticket in self._tickets.values() if ticket.job.floor == name]:
            self._end(ticket, Outcome.CANCELLED, Reason.CANCELLED, "its codex was dropped")
        self._speculation.forget(name)
        floor = self.admission.forget(name)
        if floor is not None and self.keeper is not None:
            self.keeper.forget_floor(floor.ids)

    # -- one round

    def busy(self) -> bool:
        return bool(self._tickets)

    def behind(self) -> bool:
        """Whether something is left to be done behind the answers."""
        return self.keeper is not None and self.keeper.pending() > 0

    def close(self) -> None:
        """Keeps what stands, so that the next process finds it."""
        if self.keeper is not None:
            for pool in self.admission.pools.values():
                for node in pool.tree.nodes():
                    if node.filled and not any(child.filled for child in node.children):
                        self.keeper.remember(pool, node)
            self.keeper.work(float("inf"))
            self.keeper.tiers.close()

    def round(self) -> None:
        """One step in every pool that has something to do, and all that it made known, posted at once."""
        self._admit()
        pools = list(self.admission.pools.values())
        for step in self._plan(pools):
            answering = [self._tickets[number] for number in step.answering]
            prefill = [(self._tickets[number], tokens) for number, tokens in step.prefill]
            self._stepping.run(step, pools[step.pool], answering, prefill)
        self.flush()
        if self.behind() and self.keeper is not None:
            self.keeper.work(self._clock() + BEHIND_SECONDS)

    @property
    def costs(self) -> Costs:
        """What steps cost here, as learned so far."""
        return self._stepping.costs

    def predicted_seconds(self) -> float:
        """What the step that runs now should take."""
        return self._stepping.predicted_ms / 1000

    def _out_of_round(self, message: FromChild) -> None:
        self._out.append(message)

    def flush(self) -> None:
        if self._out:
            out, self._out = self._out, []
            self._post(out)

    def _admit(self) -> None:
        waiting = sorted((t for t in self._tickets.values() if t.phase is Phase.WAITING), key=lambda t: t.order)
        for ticket in waiting:
            refusal = self.admission.refusal(ticket.job)
            if refusal:
                self._end(ticket, Outcome.REFUSED, refusal.reason, refusal.detail)
            elif not self._enter(ticket):
                return  # the first in line waits for room, and nobody overtakes it

    def _enter(self, ticket: Ticket) -> bool:
        try:
            ticket.sampler = ticket.sampler or self.backend.sampler(ticket.job.sampling)
        except SchemaRefused as error:
            self._end(ticket, Outcome.REFUSED, Reason.SCHEMA, str(error))
            return True
        pool = self.admission.pool_for(ticket)
        if pool is None or not self._revive(ticket, pool) or not self.admission.admit(ticket, pool):
            return False
        ticket.enter(Phase.PREFILL)
        ticket.admitted_at = self._clock()
        ticket.reuse = outcomes.reuse_of(ticket)
        ticket.sampler.accept_prompt(ticket.ids)
        self._speculation.begin(ticket)
        self.counters.admitted(ticket.reuse)
        queue_ms = (ticket.admitted_at - ticket.arrived_at) * 1000
        self._out.append(Admitted(ticket.number, len(ticket.ids), ticket.reuse, queue_ms))
        if ticket.unfinished() is None:
            self._end(ticket, Outcome.DONE, Reason.PREFILLED)
        return True

    def _revive(self, ticket: Ticket, pool: Pool) -> bool:
        """Brings back what is kept of the prompt; False while there is more to bring than this round has time for."""
        if self.keeper is None:
            return True
        limit = len(ticket.ids) - 1 if ticket.job.max_tokens else len(ticket.ids)
        path = Path(ticket.ids, ticket.cut, ticket.job.owner)
        deadline = self._clock() + self._limits.budget_ms / 1000
        return self.keeper.revive(pool, path, limit, deadline, ticket.restored)

    def _plan(self, pools: list[Pool]) -> tuple[Step, ...]:
        index = {id(pool): place for place, pool in enumerate(pools)}
        answering: dict[int, list[int]] = {}
        wants: list[Want] = []
        drafts: dict[int, Draft] = {}
        # In the order of service, so that of two who may compute a node the first in line gets it.
        for ticket in sorted(self._tickets.values(), key=lambda ticket: ticket.order):
            place = index.get(id(ticket.pool), 0)
            if ticket.phase is Phase.ANSWERING:
                answering.setdefault(place, []).append(ticket.number)
                if (draft := self._speculation.find(ticket)) is not None:
                    drafts[ticket.number] = draft
            elif ticket.phase is Phase.PREFILL and (node := self._claim(ticket)) is not None:
                background, arrived = ticket.order
                wants.append(Want(background, arrived, ticket.number, place, len(node.ids) - node.filled))
        cells = {place: pool.cells_used() for place, pool in enumerate(pools)}
        return plan_round(answering, wants, cells, self._limits, self._stepping.costs, drafts)

    def _claim(self, ticket: Ticket) -> Node | None:
        """The node that this ticket may compute now; None while another ticket computes it."""
        node = ticket.unfinished()
        if node is None:
            # What it waited for was finished by another ticket and nothing of its own is left.
            self._end(ticket, Outcome.DONE, Reason.PREFILLED)
            return None
        if node.filler is not None and node.filler != ticket.number and not self._outranks(ticket, node.filler):
            return None
        node.filler = ticket.number
        return node

    def _outranks(self, ticket: Ticket, filler: int) -> bool:
        """An interactive ticket goes on with what a background one computes: it must not wait at the other's class."""
        other = self._tickets[filler]
        return other.order[0] and not ticket.order[0]

    # -- endings

    def _end(self, ticket: Ticket, outcome: Outcome, reason: Reason, detail: str = "") -> None:
        """A ticket's one outcome: what it held is given back, and the daemon is told."""
        ticket.enter(Phase.ENDED)
        del self._tickets[ticket.number]
        if ticket.tip is not None and ticket.pool is not None:
            standing = deepest(ticket.tip)
            ticket.pool.release(ticket.number, ticket.tip)
            if self.keeper is not None and outcome is Outcome.DONE:
                self.keeper.remember(ticket.pool, standing)
        if ticket.sampler is not None:
            ticket.sampler.close()
        self._out.append(outcomes.completion(ticket, outcome, reason, detail, self._clock()))

    def _evicted(self, pool: Pool, node: Node) -> None:
        if self.keeper is not None:
            self.keeper.evicting(pool, node)
        self.counters.evicted_tokens += node.filled

    # -- what others may see

    def snapshot(self) -> Snapshot:
        phases = [ticket.phase for ticket in self._tickets.values()]
        computing = (ticket for ticket in self._tickets.values() if ticket.phase is Phase.PREFILL)
        prefilling = min(computing, key=lambda ticket: ticket.order, default=None)
        return Snapshot(
            grant=self.admission.grant.number,
            pools=tuple(pool.state() for pool in self.admission.pools.values()),
            running=len(phases) - phases.count(Phase.WAITING),
            waiting=phases.count(Phase.WAITING),
            prefilling=prefilling.job.floor if prefilling else "",
            kv_bytes=sum(pool.memory.footprint for pool in self.admission.pools.values()),
            steps=self.counters.steps,
            decoded_tokens=self.counters.generated_tokens,
            counters=self._figures(),
        )

    def _figures(self) -> dict[str, float]:
        kept = self.keeper.tiers.figures() if self.keeper is not None else {}
        return {**vars(self.counters), "ms_per_token": self._per_token(), **kept}

    def _per_token(self) -> float:
        """Predicted milliseconds of one prompt token in a full step, in the fullest pool."""
        rows = self._limits.batch // self.costs.tile * self.costs.tile
        cells = max((pool.cells_used() for pool in self.admission.pools.values()), default=0)
        return self.costs.milliseconds(rows, cells) / rows

    def check(self) -> None:
        """The laws over all pools, for tests. Raises LawBroken."""
        for pool in self.admission.pools.values():
            conservation.check(pool)

    def audit(self) -> bool:
        """The same in an idle moment: a pool that breaks a law is told, counted and thrown away. Whether there was one.

        What it held is computed again, or restored: better than an answer from cells of which nobody knows whose they are.
        """
        broken = {name: law for name, pool in self.admission.pools.items() if (law := conservation.broken(pool))}
        for name, law in broken.items():
            log.critical("the cells of pool %s are not what they should be (%s): they are given up", name[:12], law)
            self.counters.broken_pools += 1
            self.admission.discard(name)
        return bool(broken)


def keeper_of(backend: Backend, tiers: Tiers | None, clock: Clock) -> Keeper | WholeKeeper | None:
    if tiers is None:
        return None
    if backend.info.ranges:
        return Keeper(tiers, clock)
    return WholeKeeper(tiers, clock, constant=backend.info.kv_bytes_per_token == 0)


def ids_of(data: bytes) -> "array[int]":
    ids = array("I")
    ids.frombytes(data)
    return ids
