"""The engine's loop: one writer over all pools.

    admit → plan the round → decode → sample → tell

It takes messages and posts messages; what to compute is decided in `plan`, who may come in in `admission`, what is
shared in `tree`. It does not know processes, sockets, or what a prompt means.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.engine import outcomes
from orchestrator.engine.admission import Admission, Floor
from orchestrator.engine.backend import Backend, BackendError, Batch, SchemaRefused
from orchestrator.engine.costs import Costs
from orchestrator.engine.keeper import Keeper, Path, deepest
from orchestrator.engine.messages import (
    Admitted,
    Cancel,
    Delta,
    DropFloor,
    FromChild,
    Grant,
    Job,
    Outcome,
    Progress,
    PutFloor,
    Reason,
    Reuse,
    Snapshot,
    Tier,
    ids_to_bytes,
)
from orchestrator.engine.plan import Limits, Step, Want, plan_round
from orchestrator.engine.pools import Pool
from orchestrator.engine.text import TextStream
from orchestrator.engine.tickets import Phase, Ticket
from orchestrator.engine.tiers import Tiers
from orchestrator.engine.tree import Node

BEHIND_SECONDS = 0.02  # of a round, for writing behind the answers

Post = Callable[[list[FromChild]], None]
Clock = Callable[[], float]


@dataclass
class Counters:
    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    evicted_tokens: int = 0
    padded_tokens: int = 0


class Loop:
    """`post` takes the messages of one round at once; `clock` gives seconds; without `tiers` nothing outlives the cells."""

    def __init__(
        self, backend: Backend, sequences: int, limits: Limits, post: Post, clock: Clock, tiers: Tiers | None = None
    ) -> None:
        self.backend = backend
        self.keeper = Keeper(tiers, clock) if tiers is not None else None
        self.admission = Admission(backend, sequences, self._evicted)
        self.costs = Costs(backend.tile)
        self.counters = Counters()
        self._limits = limits
        self._post = post
        self._clock = clock
        self._tickets: dict[int, Ticket] = {}
        self._arrivals = 0
        self._out: list[FromChild] = []
        self._pools_of_round: dict[int, Pool] = {}
        self._predicted_ms = 0.0

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
            self.keeper.work(float("inf"))
            self.keeper.tiers.close()

    def round(self) -> None:
        """One step in every pool that has something to do, and all that it made known, posted at once."""
        self._admit()
        for step in self._plan():
            self._run(step)
        self.flush()
        if self.behind() and self.keeper is not None:
            self.keeper.work(self._clock() + BEHIND_SECONDS)

    def predicted_seconds(self) -> float:
        """What the step that runs now should take."""
        return self._predicted_ms / 1000

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
        ticket.reuse = reuse_of(ticket)
        ticket.sampler.accept_prompt(ticket.ids)
        self.counters.prompt_tokens += len(ticket.ids)
        self.counters.cached_tokens += ticket.cached()
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

    def _plan(self) -> tuple[Step, ...]:
        pools = dict(enumerate(self.admission.pools.values()))
        number = {id(pool): index for index, pool in pools.items()}
        answering: dict[int, list[int]] = {}
        wants: list[Want] = []
        for ticket in list(self._tickets.values()):
            if ticket.phase is Phase.ANSWERING:
                answering.setdefault(number[id(ticket.pool)], []).append(ticket.number)
            elif ticket.phase is Phase.PREFILL:
                node = self._claim(ticket)
                if node is not None:
                    background, arrived = ticket.order
                    tokens = len(node.ids) - node.filled
                    wants.append(Want(background, arrived, ticket.number, number[id(ticket.pool)], tokens))
        cells = {index: pool.tree.leased() + pool.tree.evictable() for index, pool in pools.items()}
        steps = plan_round(answering, wants, cells, self._limits, self.costs)
        self._pools_of_round = pools
        return steps

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

    def _run(self, step: Step) -> None:
        pool = self._pools_of_round[step.pool]
        cells = pool.tree.leased() + pool.tree.evictable()
        batch, sampled, filled = Batch(), [], []
        for number in step.answering:
            ticket = self._tickets[number]
            sampled.append((ticket, self._add_token(pool, ticket, batch)))
        for number, tokens in step.prefill:
            ticket = self._tickets[number]
            row, node = self._add_prompt(pool, ticket, tokens, batch)
            filled.append((ticket, node, tokens))
            if row is not None:
                sampled.append((ticket, row))
        if step.padding:
            batch.add(pool.scratch, 0, [0] * step.padding, output=False)
        self._decode(pool, batch, step, cells)
        for ticket, node, tokens in filled:
            self._filled(ticket, node, tokens)
        for ticket, row in sampled:
            self._sample(pool, ticket, row)

    def _add_token(self, pool: Pool, ticket: Ticket, batch: Batch) -> int:
        assert ticket.tip is not None
        assert ticket.pending is not None
        ticket.tip = pool.tree.extend(ticket.tip, ticket.pending)
        pool.grew(ticket.number)
        position = ticket.tip.stands
        row = batch.add(pool.tree.attach(ticket.tip), position, [ticket.pending], output=True)
        ticket.tip.filled += 1
        return row

    def _add_prompt(self, pool: Pool, ticket: Ticket, tokens: int, batch: Batch) -> tuple[int | None, Node]:
        node = ticket.unfinished()
        assert node is not None
        assert node.filler == ticket.number
        last = node is ticket.tip and node.filled + tokens == len(node.ids) and ticket.job.max_tokens > 0
        run = node.ids[node.filled : node.filled + tokens]
        row = batch.add(pool.tree.attach(node), node.stands, run, output=last)
        return (row if last else None), node

    def _decode(self, pool: Pool, batch: Batch, step: Step, cells: int) -> None:
        self._predicted_ms = self.costs.milliseconds(len(batch), cells)
        began = self._clock()
        pool.memory.decode(batch)
        if step.padding:
            pool.memory.remove(pool.scratch, 0, -1)
        self.costs.learn(len(batch), cells, max(0.01, (self._clock() - began) * 1000))
        self.counters.steps += 1
        self.counters.padded_tokens += step.padding

    def _filled(self, ticket: Ticket, node: Node, tokens: int) -> None:
        node.filled += tokens
        ticket.computed += tokens
        self.counters.computed_tokens += tokens
        if node.whole:
            node.filler = None
        assert ticket.tip is not None
        missing = sum(len(part.ids) - part.filled for part in ticket.tip.path())
        self._out.append(Progress(ticket.number, len(ticket.ids) - missing, len(ticket.ids)))
        if missing == 0 and ticket.job.max_tokens == 0:
            self._end(ticket, Outcome.DONE, Reason.PREFILLED)

    def _sample(self, pool: Pool, ticket: Ticket, row: int) -> None:
        assert ticket.sampler is not None
        if ticket.phase is Phase.PREFILL:
            ticket.enter(Phase.ANSWERING)
        try:
            sampled = pool.memory.sample(row, ticket.sampler)
        except BackendError as error:
            self._end(ticket, Outcome.FAILED, Reason.ENGINE, str(error))
            return
        if not ticket.first_token_at:
            ticket.first_token_at = self._clock()
        if sampled.end:
            self._say(ticket, ticket.text.finish(), ())
            self._end(ticket, Outcome.DONE, Reason.STOP)
            return
        ticket.generated += 1
        self.counters.generated_tokens += 1
        ticket.pending = sampled.token
        self._say(ticket, ticket.text.push(self.backend.pieces([sampled.token])), (sampled.token,), sampled.logprobs)
        if ticket.text.stopped:
            self._end(ticket, Outcome.DONE, Reason.STOP)
        elif ticket.generated >= ticket.job.max_tokens:
            self._say(ticket, ticket.text.finish(), ())
            self._end(ticket, Outcome.DONE, Reason.LENGTH)

    def _say(
        self, ticket: Ticket, text: str, ids: tuple[int, ...], logprobs: tuple[tuple[int, float], ...] = ()
    ) -> None:
        if text or ids:
            self._out.append(Delta(ticket.number, text, ids_to_bytes(ids), (logprobs,) if logprobs else ()))

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
        cells = max((pool.tree.leased() + pool.tree.evictable() for pool in self.admission.pools.values()), default=0)
        return self.costs.milliseconds(rows, cells) / rows

    def check(self) -> None:
        """The conservation law over all pools, for tests and the idle moment."""
        for pool in self.admission.pools.values():
            pool.check()


def ids_of(data: bytes) -> "array[int]":
    ids = array("I")
    ids.frombytes(data)
    return ids


def reuse_of(ticket: Ticket) -> tuple[Reuse, ...]:
    """Ranges of the prompt that need no computing by this ticket: what stands, was restored, or another one computes."""
    assert ticket.tip is not None
    end = 0
    for node in ticket.tip.path():
        mine = node.filler is None and not node.whole
        if mine and node.leases == 1:
            end = node.stands
            break
        end = node.end
    parts, at = [], 0
    for restored in [*ticket.restored, Reuse(end, len(ticket.ids), Tier.COMPUTED)]:
        parts += [Reuse(at, restored.start, Tier.VRAM), restored]
        at = restored.end
    return tuple(part for part in parts if part.end > part.start)
