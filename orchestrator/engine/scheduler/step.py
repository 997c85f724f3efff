"""One step: rows in, the backend's call, and what it made of the tickets that took part; and the drafts that it verifies.

    tokens of answers, drafts ┐
    prompt tokens             ┴─▶ decode ─▶ cells computed ─▶ sample ─▶ verify drafts ─▶ text, or the end

What to compute was decided in `planner`. A step knows no queue and no pool but its own.

Drafts (`drafting`) are taken from the prompt's tail and its floor. Answers about code quote it, and tokens that are
verified together cost little more than one. Greedy choice verifies drafts, so the text stays the same. A draft is made only
while the acceptance seen so far makes the answer faster (`planner`).
"""

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.engine.backend import Backend, BackendError, Run, SchemaRefused, Watch
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.tree import Node
from orchestrator.engine.costs import Costs
from orchestrator.engine.messages import AnswerDelta, Chance, Chosen, Outcome, Reason, ids_to_bytes
from orchestrator.engine.scheduler.drafting import GRAM, Draft, Drafting, Source
from orchestrator.engine.scheduler.ticket import Counters, Phase, Reporting, Ticket

LOGIT_ROWS = 64  # rows of a step that may have logits
MOST_DRAFTED = LOGIT_ROWS - 1  # one row is the answer's own token
LEAST_TO_DRAFT = 8  # an answer of fewer tokens is over before its drafts pay
FIRST_GUESS = 8.0  # tokens of a draft that are right, before anything was seen


@dataclass(frozen=True)
class Step:
    """One call of the backend: a token for each of `answering` with its `drafts`, prompt tokens by ticket."""

    pool: int
    answering: tuple[int, ...]
    prefill: tuple[tuple[int, int], ...] = ()
    drafts: tuple[tuple[int, int], ...] = ()

    @property
    def rows(self) -> int:
        """Tokens that the backend takes."""
        return len(self.answering) + tokens_of(self.prefill) + tokens_of(self.drafts)


def tokens_of(counts: Sequence[tuple[int, int]]) -> int:
    return sum(count for _, count in counts)


class Stepping:
    """`floor_computed` takes the last node of a floor that was computed; `watch` is entered while the backend computes."""

    def __init__(
        self,
        backend: Backend,
        speculation: "Speculation",
        floor_computed: Callable[[Pool, Node], None],
        reporting: Reporting,
        costs: Costs,
        watch: Watch,
    ) -> None:
        self._costs = costs
        self._backend = backend
        self._speculation = speculation
        self._floor_computed = floor_computed
        self._counters = reporting.counters
        self._reporting = reporting
        self._watch = watch

    def run(self, step: Step, pool: Pool, tickets: Mapping[int, Ticket]) -> None:
        """Computes a step. Raises BackendError, after which the pool is not to be trusted."""
        cells = pool.cells_used()
        runs, rows, sampled, computed = list[Run](), 0, [], []
        drafts = dict(step.drafts)
        for number in step.answering:
            ticket = tickets[number]
            ticket.draft = ticket.draft[: drafts.get(number, 0)]
            runs += self._answer(pool, ticket)
            sampled.append((ticket, rows))
            rows += 1 + len(ticket.draft)
        for number, tokens in step.prefill:
            ticket = tickets[number]
            node = ticket.unfinished()
            assert node is not None and node.computed_by == number
            runs.append(self._prompt(pool, ticket, node, tokens))
            computed.append((ticket, node, tokens))
            rows += tokens
            if runs[-1].output:
                sampled.append((ticket, rows - 1))
        self._decode(pool, runs, rows, cells)
        for ticket, node, tokens in computed:
            self._count_computed(pool, ticket, node, tokens)
        for ticket, row in sampled:
            self._sample(pool, ticket, row)
            if ticket.draft:
                self._verify(pool, ticket, row)

    # -- rows

    def _answer(self, pool: Pool, ticket: Ticket) -> list[Run]:
        """The token that waits to be evaluated, and each draft."""
        assert ticket.tip is not None and ticket.pending is not None
        ticket.tip = pool.tree.extend(ticket.tip, ticket.pending)
        pool.count_token(ticket.number)
        sequence, start = pool.tree.attach(ticket.tip), ticket.tip.computed_end
        ticket.tip.computed += 1
        return [Run(sequence, at, [token], True) for at, token in enumerate([ticket.pending, *ticket.draft], start)]

    def _prompt(self, pool: Pool, ticket: Ticket, node: Node, tokens: int) -> Run:
        last = node is ticket.tip and node.computed + tokens == len(node.ids) and ticket.job.max_tokens > 0
        run = node.ids[node.computed : node.computed + tokens]
        return Run(pool.tree.attach(node), node.computed_end, run, output=last)

    def _decode(self, pool: Pool, runs: Sequence[Run], rows: int, cells: int) -> None:
        # The first step may compile kernels or page in weights for minutes: nothing is learned from it.
        first = self._counters.steps == 0
        seconds = math.inf if first else self._costs.milliseconds(rows, cells) / 1000
        began = self._reporting.clock()
        with self._watch(seconds):
            pool.memory.decode(runs)
        if not first:
            self._costs.learn(rows, cells, max(0.01, (self._reporting.clock() - began) * 1000))
        self._counters.steps += 1

    # -- what it made of them

    def _count_computed(self, pool: Pool, ticket: Ticket, node: Node, tokens: int) -> None:
        node.computed += tokens
        ticket.computed += tokens
        self._counters.computed_tokens += tokens
        if node.complete:
            node.computed_by = None
            if node.end == ticket.cut:
                self._floor_computed(pool, node)
        progress = ticket.progress()
        self._reporting.send(progress)
        if progress.done == progress.total and ticket.job.max_tokens == 0:
            self._reporting.end(ticket, Outcome.DONE, Reason.PREFILLED, "")

    def _sample(self, pool: Pool, ticket: Ticket, row: int) -> None:
        assert ticket.sampler is not None
        if ticket.phase is Phase.PREFILL:
            ticket.enter(Phase.ANSWERING)
        try:
            sampled = pool.memory.sample(row, ticket.sampler)
        except BackendError as error:
            reason = Reason.SCHEMA if isinstance(error, SchemaRefused) else Reason.ENGINE
            self._reporting.end(ticket, Outcome.FAILED, reason, str(error))
            return
        if not ticket.first_token_at:
            ticket.first_token_at = self._reporting.clock()
        if sampled.end:
            self._say(ticket, ticket.text.finish(), ())
            self._reporting.end(ticket, Outcome.DONE, Reason.STOP, "")
            return
        ticket.generated += 1
        self._counters.generated_tokens += 1
        ticket.pending = sampled.token
        piece = self._backend.pieces([sampled.token])
        if sampled.logprobs:
            ticket.held_logprobs.push(self._chosen(sampled.logprobs))
        # A control token has no text. Its id would stand for the answer's text wherever that is content again.
        self._say(ticket, ticket.text.push(piece), (sampled.token,) if piece else ())
        if ticket.text.stopped:
            self._reporting.end(ticket, Outcome.DONE, Reason.STOP, "")
        elif ticket.generated >= ticket.job.max_tokens:
            self._say(ticket, ticket.text.finish(), ())
            self._reporting.end(ticket, Outcome.DONE, Reason.LENGTH, "")

    def _verify(self, pool: Pool, ticket: Ticket, row: int) -> None:
        """Keeps what of the drafts the model says itself, and takes the cells of the rest back."""
        assert ticket.tip is not None
        tip = ticket.tip
        drafts, ticket.draft = ticket.draft, []
        accepted, end = 0, tip.computed_end + len(drafts)
        ticket.drafted += len(drafts)
        while accepted < len(drafts) and ticket.phase is Phase.ANSWERING and ticket.pending == drafts[accepted]:
            tip.ids.append(drafts[accepted])
            tip.computed += 1
            pool.count_token(ticket.number)
            accepted += 1
            ticket.accepted += 1  # before the token that may end the ticket
            self._sample(pool, ticket, row + accepted)
        self._speculation.learn(ticket, len(drafts), accepted)
        if tip.computed_end < end:
            assert tip.sequence is not None
            pool.memory.remove(tip.sequence, tip.computed_end, -1)

    def _say(self, ticket: Ticket, text: str, ids: tuple[int, ...]) -> None:
        chosen = ticket.held_logprobs.shown(text, all_shown=ticket.text.all_shown)
        if text or ids or chosen:
            self._reporting.send(AnswerDelta(ticket.number, text, ids_to_bytes(ids), chosen))

    def _chosen(self, logprobs: Sequence[tuple[int, float]]) -> Chosen:
        own, *likeliest = [Chance(token, self._backend.pieces([token]), value) for token, value in logprobs]
        return Chosen(own, tuple(likeliest))


class Speculation:
    """Sources by floor, each indexed once."""

    def __init__(self, counters: Counters, *, possible: bool) -> None:
        self._counters = counters
        self._possible = possible  # wanted, and rejected drafts can be cut off a sequence
        self._floors: dict[str, Source] = {}

    def begin(self, ticket: Ticket) -> None:
        """Gives an admitted ticket its sources, where its sampling allows drafts: the tail first, as the nearer one."""
        sampling = ticket.job.sampling
        greedy = sampling.greedy and sampling.repeat_penalty == 1.0 and not sampling.schema
        if not self._possible or not greedy or ticket.job.max_tokens < LEAST_TO_DRAFT or sampling.logprobs is not None:
            return
        floor = self._floor(ticket.job.floor, ticket.ids[: ticket.cut])
        ticket.drafting = Drafting((Source(ticket.ids[ticket.cut :]), floor), self._expected())

    def find(self, ticket: Ticket) -> Draft | None:
        """What could be verified for this answer in the next step; kept in its `draft`."""
        if ticket.drafting is None:
            return None
        most = min(MOST_DRAFTED, ticket.job.max_tokens - ticket.generated - 1)
        ticket.draft = ticket.drafting.after(recent(ticket), most)
        return Draft(len(ticket.draft), ticket.drafting.expected) if ticket.draft else None

    def learn(self, ticket: Ticket, drafted: int, accepted: int) -> None:
        assert ticket.drafting is not None
        ticket.drafting.learn(drafted, accepted)
        self._counters.drafts += 1
        self._counters.drafted_tokens += drafted
        self._counters.accepted_tokens += accepted

    def forget(self, floor: str) -> None:
        self._floors.pop(floor, None)

    def _floor(self, name: str, ids: "array[int]") -> Source:
        if name not in self._floors:
            self._floors[name] = Source(ids)
        return self._floors[name]

    def _expected(self) -> float:
        """Half of what all answers saw so far and half of the first guess: an unlucky answer does not end it for all."""
        if not self._counters.drafts:
            return FIRST_GUESS
        return (FIRST_GUESS + self._counters.accepted_tokens / self._counters.drafts) / 2


def recent(ticket: Ticket) -> list[int]:
    """The last tokens of prompt and answer, the one that waits to be evaluated included."""
    assert ticket.tip is not None and ticket.pending is not None
    found: list[int] = [ticket.pending]
    node: Node | None = ticket.tip
    while node is not None and len(found) < GRAM:  # of a prompt that was cached the tip has the last token alone
        found[:0] = node.ids[len(found) - GRAM :]
        node = node.parent
    return found
