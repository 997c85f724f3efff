"""One step: rows in, the backend's call, and what it made of the tickets that took part; and the drafts that it verifies.

    tokens of answers, drafts ┐
    prompt tokens             ┴─▶ decode ─▶ cells computed ─▶ sample ─▶ verify drafts ─▶ text, or the end

What to compute was decided in `planner`. A step knows no queue and no pool but its own.

Drafts of an answer's next tokens are taken from the prompt's tail and its floor (`Speculation`):

    … answer so far: a b c d │ the latest place with a b c d in the source: … a b c d e f g h …  →  draft e f g h

Answers about code quote it, and tokens that are verified together cost less than one after the other. Greedy choice
verifies drafts, so the text stays the same but for what llama.cpp rounds otherwise in a larger step. A draft is verified
only while the acceptance seen so far makes the answer faster (`planner`).

What a grammar forces is a draft that is right: the head of a tool's call costs one step.
"""

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from orchestrator.engine.backend import Backend, BackendError, Run, SchemaRefused, Watch
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.tree import Node
from orchestrator.engine.costs import Costs
from orchestrator.engine.messages import AnswerDelta, Chance, Chosen, Outcome, Reason, ids_to_bytes
from orchestrator.engine.scheduler.ticket import Counters, Phase, Reporting, Ticket
from orchestrator.engine.snapshot import StepTimes

LOGIT_ROWS = 64  # rows of a step that may have logits
MOST_DRAFTED = 12  # tokens: on a CPU a row of a short step costs a third to a half of a step of one row
LEAST_TO_DRAFT = 8  # an answer of fewer tokens is over before its drafts pay
FIRST_GUESS = 8.0  # tokens of a draft that are right, before anything was seen
GRAM = 7  # tokens that must agree before anything is drafted
_FACTOR = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Step:
    """One call of the backend: a token for each of `answering` with its `drafts`, prompt tokens by ticket. `forced`: the
    tickets whose drafts are what their grammars force."""

    pool: int
    answering: tuple[int, ...]
    prefill: tuple[tuple[int, int], ...] = ()
    drafts: tuple[tuple[int, tuple[int, ...]], ...] = ()
    forced: frozenset[int] = frozenset()

    @property
    def rows(self) -> int:
        """Tokens that the backend takes."""
        return len(self.answering) + sum(count for _, count in self.prefill) + drafted(self.drafts)

    @property
    def outputs(self) -> int:
        """Rows whose logits are wanted, but for the last one of a prompt."""
        return len(self.answering) + drafted(self.drafts)


def drafted(drafts: Sequence[tuple[int, Sequence[int]]]) -> int:
    """How many tokens."""
    return sum(len(tokens) for _, tokens in drafts)


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
        self.times = StepTimes()

    def run(self, step: Step, pool: Pool, tickets: Mapping[int, Ticket]) -> None:
        """Computes a step. Raises BackendError, after which the pool is not to be trusted."""
        cells = pool.cells_used()
        runs, rows, sampled, computed = list[Run](), 0, [], []
        drafts = dict(step.drafts)
        for number in step.answering:
            ticket, draft = tickets[number], drafts.get(number, ())
            runs += self._answer(pool, ticket, draft)
            sampled.append((ticket, rows, draft))
            rows += 1 + len(draft)
        for number, tokens in step.prefill:
            ticket = tickets[number]
            node = ticket.unfinished()
            assert node is not None and node.computed_by == number
            runs.append(self._prompt(pool, ticket, node, tokens))
            computed.append((ticket, node, tokens))
            rows += tokens
            if runs[-1].output:
                sampled.append((ticket, rows - 1, ()))
        self._decode(pool, runs, rows, cells)
        for ticket, node, tokens in computed:
            self._count_computed(pool, ticket, node, tokens)
        for ticket, row, draft in sampled:
            self._sample(pool, ticket, row)
            if draft:
                self._verify(pool, ticket, row, draft, forced=ticket.number in step.forced)

    # -- rows

    def _answer(self, pool: Pool, ticket: Ticket, draft: Sequence[int]) -> list[Run]:
        """The token that waits to be evaluated, and each that is drafted."""
        assert ticket.tip is not None and ticket.pending is not None
        ticket.tip = pool.tree.extend(ticket.tip, ticket.pending)
        pool.count_token(ticket.number)
        sequence, start = pool.tree.attach(ticket.tip), ticket.tip.computed_end
        ticket.tip.computed += 1
        return [Run(sequence, at, [token], True) for at, token in enumerate([ticket.pending, *draft], start)]

    def _prompt(self, pool: Pool, ticket: Ticket, node: Node, tokens: int) -> Run:
        last = node is ticket.tip and node.computed + tokens == len(node.ids) and ticket.job.max_tokens > 0
        run = node.ids[node.computed : node.computed + tokens]
        return Run(pool.tree.attach(node), node.computed_end, run, output=last)

    def _decode(self, pool: Pool, runs: Sequence[Run], rows: int, cells: int) -> None:
        # The first step may compile kernels or page in weights for minutes: nothing is learned from it.
        first = self._counters.steps == 0
        outputs = sum(run.output for run in runs)
        seconds = math.inf if first else self._costs.milliseconds(rows, cells, outputs) / 1000
        began = self._reporting.clock()
        with self._watch(seconds):
            pool.memory.decode(runs)
        taken = self._reporting.clock() - began
        if not first:
            self._costs.learn(rows, cells, max(0.01, taken * 1000), outputs)
        self._counters.steps += 1
        self.times = self.times.and_one(taken)

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
        # A control token has no text, but where a call is written with it. Without one its id would stand for the answer's
        # text wherever that is content again.
        text = piece or sampled.spelled
        self._say(ticket, ticket.text.push(text), (sampled.token,) if text else ())
        if ticket.text.stopped:
            self._reporting.end(ticket, Outcome.DONE, Reason.STOP, "")
        elif ticket.generated >= ticket.job.max_tokens:
            self._say(ticket, ticket.text.finish(), ())
            self._reporting.end(ticket, Outcome.DONE, Reason.LENGTH, "")

    def _verify(self, pool: Pool, ticket: Ticket, row: int, draft: Sequence[int], *, forced: bool) -> None:
        """Keeps what of the draft the model says itself, and takes the cells of the rest back."""
        assert ticket.tip is not None
        tip = ticket.tip
        accepted, end = 0, tip.computed_end + len(draft)
        ticket.drafted += 0 if forced else len(draft)
        while accepted < len(draft) and ticket.phase is Phase.ANSWERING and ticket.pending == draft[accepted]:
            tip.ids.append(draft[accepted])
            tip.computed += 1
            pool.count_token(ticket.number)
            accepted += 1
            ticket.accepted += not forced  # before the token that may end the ticket
            self._sample(pool, ticket, row + accepted)
        if forced:
            self._counters.forced_tokens += accepted
        else:
            self._speculation.learn(ticket, len(draft), accepted)
        if tip.computed_end < end and not tip.gone:  # an answer without a cache takes its memory with it as it ends
            assert tip.sequence is not None
            pool.memory.remove(tip.sequence, tip.computed_end, -1)

    def _say(self, ticket: Ticket, text: str, ids: tuple[int, ...]) -> None:
        chosen = ticket.held_logprobs.shown(text, all_shown=ticket.text.all_shown)
        if text or ids or chosen:
            self._reporting.send(AnswerDelta(ticket.number, text, ids_to_bytes(ids), chosen))

    def _chosen(self, logprobs: Sequence[tuple[int, float]]) -> Chosen:
        own, *likeliest = [Chance(token, self._backend.pieces([token]), value) for token, value in logprobs]
        return Chosen(own, tuple(likeliest))


# -- drafts


@dataclass(frozen=True)
class Draft:
    """Tokens to be verified for a running answer, of which so many are expected to be right: all, where a grammar forces
    them."""

    tokens: tuple[int, ...]
    expected: float
    forced: bool = False


class Speculation:
    """Sources by floor, each indexed once, and the drafts of each running answer."""

    def __init__(self, counters: Counters, *, possible: bool) -> None:
        self._counters = counters
        self._possible = possible  # wanted, and rejected drafts can be cut off a sequence
        self._floors: dict[str, Source] = {}
        self._answers: WeakKeyDictionary[Ticket, Drafting] = WeakKeyDictionary()

    def begin(self, ticket: Ticket) -> None:
        """Indexes what an admitted ticket may quote, where its sampling allows drafts; the tail first, as it is nearer."""
        sampling = ticket.job.sampling
        greedy = sampling.greedy and sampling.repeat_penalty == 1.0
        if not self._possible or not greedy or ticket.job.max_tokens < LEAST_TO_DRAFT or sampling.logprobs is not None:
            return
        floor = self._floor(ticket.job.floor, ticket.ids[: ticket.cut])
        self._answers[ticket] = Drafting((Source(ticket.ids[ticket.cut :]), floor), self._expected())

    def find(self, ticket: Ticket) -> Draft | None:
        """What could be verified for this answer in the next step."""
        most = ticket.job.max_tokens - ticket.generated - 1
        if self._possible and ticket.sampler is not None and (forced := tuple(ticket.sampler.forced()[:most])):
            return Draft(forced, len(forced), forced=True)
        if (drafting := self._answers.get(ticket)) is None:
            return None
        tokens = drafting.after(recent(ticket), min(MOST_DRAFTED, most))
        return Draft(tuple(tokens), drafting.expected) if tokens else None

    def learn(self, ticket: Ticket, drafted: int, accepted: int) -> None:
        self._answers[ticket].learn(drafted, accepted)
        self._counters.drafts += 1
        self._counters.drafted_tokens += drafted
        self._counters.accepted_tokens += accepted

    def forget(self, floor: str) -> None:
        self._floors.pop(floor, None)

    def _floor(self, name: str, ids: "array[int]") -> "Source":
        if name not in self._floors:
            self._floors[name] = Source(ids)
        return self._floors[name]

    def _expected(self) -> float:
        """Half of what all answers saw so far and half of the first guess: an unlucky answer does not end it for all."""
        if not self._counters.drafts:
            return FIRST_GUESS
        return (FIRST_GUESS + self._counters.accepted_tokens / self._counters.drafts) / 2


class Drafting:
    """One ticket's drafts: its sources, nearest first, and how often they were right."""

    def __init__(self, sources: Sequence["Source"], accepted: float) -> None:
        self._sources = sources
        self.expected = accepted  # tokens of a draft that are accepted, on average; begins with what others saw

    def after(self, last: Sequence[int], most: int) -> list[int]:
        return next(filter(None, (source.after(last, most) for source in self._sources)), [])

    def learn(self, drafted: int, accepted: int) -> None:
        """A draft cut short by its length says only that as many were right as there were."""
        if accepted == drafted:
            self.expected = max(self.expected, self.expected * 0.7 + drafted * 0.3)
        else:
            self.expected = self.expected * 0.7 + accepted * 0.3


class Source:
    """A token sequence that may be quoted, indexed by its runs of `GRAM` tokens. About 12 bytes a token."""

    def __init__(self, ids: "array[int]") -> None:
        self._ids = np.frombuffer(ids, np.uint32).copy() if ids else np.zeros(0, np.uint32)
        hashes = _hashes(self._ids)
        # Stable, so that of equal runs the last is the latest in the text: where code was amended, that one is right.
        order = np.argsort(hashes, kind="stable").astype(np.uint32)
        self._order, self._hashes = order, hashes[order]

    def after(self, last: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that followed the last `GRAM` tokens at the latest place of those."""
        if len(last) < GRAM or most <= 0 or not len(self._hashes):
            return []
        run = list(last[-GRAM:])
        at = int(self._hashes.searchsorted(_hash(run), side="right")) - 1
        start = int(self._order[max(0, at)])
        if self._ids[start : start + GRAM].tolist() != run:
            return []
        return [int(token) for token in self._ids[start + GRAM : start + GRAM + most]]


def recent(ticket: Ticket) -> list[int]:
    """The last tokens of prompt and answer, the one that waits to be evaluated included."""
    assert ticket.tip is not None and ticket.pending is not None
    found: list[int] = [ticket.pending]
    node: Node | None = ticket.tip
    while node is not None and len(found) < GRAM:  # of a prompt that was cached the tip has the last token alone
        found[:0] = node.ids[len(found) - GRAM :]
        node = node.parent
    return found


def _hash(run: Sequence[int]) -> np.uint64:
    """As `_hashes` of one run, many times faster: an answer asks for it with each token."""
    total = 0
    for token in run:
        total = (total + token + 1) * _FACTOR % 2**64
        total ^= total >> 29
    return np.uint64(total)


def _hashes(ids: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Of each run of `GRAM` tokens."""
    wide, count = ids.astype(np.uint64), max(0, len(ids) - GRAM + 1)
    total = np.zeros(count, np.uint64)
    for offset in range(GRAM):
        total = (total + wide[offset : offset + count] + np.uint64(1)) * np.uint64(_FACTOR)
        total ^= total >> np.uint64(29)
    return total
