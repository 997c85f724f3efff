"""One step: rows in, the backend's call, and what it made of the tickets that took part.

    tokens of answers, drafts ┐
    prompt tokens             ┴─▶ decode ─▶ cells computed ─▶ sample ─▶ verify drafts ─▶ text, or the end

What to compute was decided in `plan`. Knows no queue and no pool but the step's.
"""

import math
from collections.abc import Callable, Sequence

from orchestrator.engine.backend import Backend, BackendError, Batch, SchemaRefused, Watch
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.tree import Node
from orchestrator.engine.costs import Costs
from orchestrator.engine.messages import AnswerDelta, Chance, Chosen, Outcome, Reason, ids_to_bytes
from orchestrator.engine.scheduler.planner import Step
from orchestrator.engine.scheduler.reporting import Reporting
from orchestrator.engine.scheduler.speculation import Speculation
from orchestrator.engine.scheduler.ticket import Phase, Ticket


class Stepping:
    """`floor_computed` takes the last node of a floor that was computed; `watch` is entered while the backend computes."""

    def __init__(
        self,
        backend: Backend,
        speculation: Speculation,
        floor_computed: Callable[[Pool, Node], None],
        reporting: Reporting,
        watch: Watch,
    ) -> None:
        self.costs = Costs()
        self._backend = backend
        self._speculation = speculation
        self._floor_computed = floor_computed
        self._counters = reporting.counters
        self._reporting = reporting
        self._watch = watch

    def run(self, step: Step, pool: Pool, answering: list[Ticket], prefill: list[tuple[Ticket, int]]) -> None:
        """Computes a step. Raises BackendError, after which the pool is not to be trusted."""
        cells = pool.cells_used()
        batch, sampled, computed = Batch(), [], []
        drafts = dict(step.drafts)
        for ticket in answering:
            ticket.drafts = ticket.drafts[: drafts.get(ticket.number, 0)]
            sampled.append((ticket, self._add_token(pool, ticket, batch)))
        for ticket, tokens in prefill:
            row, node = self._add_prompt(pool, ticket, tokens, batch)
            computed.append((ticket, node, tokens))
            if row is not None:
                sampled.append((ticket, row))
        self._decode(pool, batch, cells)
        for ticket, node, tokens in computed:
            self._count_computed(pool, ticket, node, tokens)
        for ticket, row in sampled:
            self._sample(pool, ticket, row)
            if ticket.drafts:
                self._verify(pool, ticket, row)

    # -- rows

    def _add_token(self, pool: Pool, ticket: Ticket, batch: Batch) -> int:
        assert ticket.tip is not None and ticket.pending is not None
        ticket.tip = pool.tree.extend(ticket.tip, ticket.pending)
        pool.grew(ticket.number)
        sequence = pool.tree.attach(ticket.tip)
        row = batch.add(sequence, ticket.tip.computed_end, [ticket.pending], output=True)
        ticket.tip.computed += 1
        for place, token in enumerate(ticket.drafts):
            batch.add(sequence, ticket.tip.computed_end + place, [token], output=True)
        return row

    def _add_prompt(self, pool: Pool, ticket: Ticket, tokens: int, batch: Batch) -> tuple[int | None, Node]:
        node = ticket.unfinished()
        assert node is not None and node.computed_by == ticket.number
        last = node is ticket.tip and node.computed + tokens == len(node.ids) and ticket.job.max_tokens > 0
        run = node.ids[node.computed : node.computed + tokens]
        row = batch.add(pool.tree.attach(node), node.computed_end, run, output=last)
        return (row if last else None), node

    def _decode(self, pool: Pool, batch: Batch, cells: int) -> None:
        # The first step may compile kernels or page in weights for minutes: nothing is learned from it.
        first = self._counters.steps == 0
        seconds = math.inf if first else self.costs.milliseconds(len(batch), cells) / 1000
        began = self._reporting.clock()
        with self._watch(seconds):
            pool.memory.decode(batch)
        if not first:
            self.costs.learn(len(batch), cells, max(0.01, (self._reporting.clock() - began) * 1000))
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
            ticket.beside.push(self._chosen(sampled.logprobs))
        self._say(ticket, ticket.text.push(piece), (sampled.token,))
        if ticket.text.stopped:
            self._reporting.end(ticket, Outcome.DONE, Reason.STOP, "")
        elif ticket.generated >= ticket.job.max_tokens:
            self._say(ticket, ticket.text.finish(), ())
            self._reporting.end(ticket, Outcome.DONE, Reason.LENGTH, "")

    def _verify(self, pool: Pool, ticket: Ticket, row: int) -> None:
        """Keeps what of the drafts the model says itself, and takes the cells of the rest back."""
        assert ticket.tip is not None
        tip = ticket.tip
        drafts, ticket.drafts = ticket.drafts, []
        accepted, end = 0, tip.computed_end + len(drafts)
        ticket.drafted += len(drafts)
        while accepted < len(drafts) and ticket.phase is Phase.ANSWERING and ticket.pending == drafts[accepted]:
            tip.ids.append(drafts[accepted])
            tip.computed += 1
            pool.grew(ticket.number)
            accepted += 1
            ticket.accepted += 1  # before the token that may end the ticket
            self._sample(pool, ticket, row + accepted)
        self._speculation.learn(ticket, len(drafts), accepted)
        if tip.computed_end < end:
            assert tip.sequence is not None
            pool.memory.remove(tip.sequence, tip.computed_end, -1)

    def _say(self, ticket: Ticket, text: str, ids: tuple[int, ...]) -> None:
        chosen = ticket.beside.shown(text, settled=ticket.text.settled)
        if text or ids or chosen:
            self._reporting.send(AnswerDelta(ticket.number, text, ids_to_bytes(ids), chosen))

    def _chosen(self, logprobs: Sequence[tuple[int, float]]) -> Chosen:
        own, *likeliest = [Chance(token, self._backend.pieces([token]), value) for token, value in logprobs]
        return Chosen(own, tuple(likeliest))
