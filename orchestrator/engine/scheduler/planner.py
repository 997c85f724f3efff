"""What a round computes, and how it shares its time. Nothing is sent, ended or computed here: the loop acts on the plan.

    1. every running answer gets its token, in every pool that has one;
    2. prefill goes to one pool a round: interactive before background, then the shortest remaining prefill, with ageing;
    3. it fills what the round's time budget leaves, further tickets of that pool in the same order;
    4. drafts of answers are verified where that makes the answers faster.

A prompt that somebody waits for and that ends in a round has all of its time: its answer begins then. Every other prompt
takes no more of the round than answers and such prompts do, or `AWAITED_MS`, in the background `UNWAITED_MS`: so answers
beside it keep half of their speed, or ten tokens a second. An answer never starves a prefill of its few tokens. Nor is a
round of several prompts long whose first one ends in it.

Ageing: each prompt token that the engine computes counts for every waiting prefill as one of its own. So the order is the
one of `due`: the tokens that the engine had computed when the ticket entered, and those of its prompt still to compute.

    entered  tokens   due
          0  30,000   30,000   a cold floor
      8,000      14    8,014   a question on a warm floor: goes first
     29,990      14   30,004   another one: the floor is finished before it

Law: a prefill of n tokens is overtaken by none of its class that enters once n further tokens were computed. `due` is set
once more when the ticket's prefill begins: a restore may lower it, nothing raises it. The law still holds: a lowered `due`
serves its ticket sooner, and it never falls below the tokens that were computed before the ticket entered.

The time of a round beside running answers:

    ├─ restores, evictions, moves ─┼─ the step: answers, and prefill in what is left ─┼─ write-behind ─┤
    └──────────────────────────────── budget_ms ─────────────────────────────────────────────────────┘

While nobody is answered nobody waits for a round, and each part has a time of its own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile

from orchestrator.engine.cache.pools import Pools
from orchestrator.engine.cache.tree import Node
from orchestrator.engine.costs import Costs, TimeBudget, endless
from orchestrator.engine.scheduler.step import LOGIT_ROWS, Draft, Speculation, Step, drafted
from orchestrator.engine.scheduler.ticket import Phase, Ticket, computing, in_order, waiting_for

# Of a round, for a prompt that does not end in it: where somebody waits for the prompt, and where nobody does.
AWAITED_MS, UNWAITED_MS = 50.0, 10.0
WRITE_SECONDS = 0.02  # of a round, for checkpoints
PREFILL_SHARE = 0.5  # of what answers leave of a round, while somebody's prefill runs beside restores and evictions
FIRST_SHARE = 0.75  # of a round without answers, for who came first: a prompt that is restored, or one that is computed


@dataclass(frozen=True)
class Limits:
    """batch: tokens the backend takes at once; more than answers ever run in a pool, which has fewer sequences
    (`sequences_of`). logits: rows of a step that may have logits. drafts: whether answers are drafted.

    budget_ms: one round's time beside running answers, which may stall for 0.3 s: a quarter is for predictions that
    are off. alone_ms: while nobody is being answered, until the next one comes. prefill_share: what a prompt beside
    answers gets of the time that they leave.
    """

    batch: int
    budget_ms: float = 220.0
    alone_ms: float = 1000.0
    logits: int = LOGIT_ROWS
    drafts: bool = True
    prefill_share: float = 1.0


@dataclass(frozen=True, order=True)
class Want:
    """A ticket with prompt tokens that it may compute now. Orders as it is served; `due` as above, then by arrival."""

    background: bool
    due: tuple[int, int]
    ticket: int
    pool: int
    tokens: int


@dataclass(frozen=True)
class Plan:
    """`steps`: at most one for each pool that has something to do; `pool` of a step is its index in `pools`. `claims`: the
    number of the ticket that computes each node. `finished` want no answer, and others computed the rest of their prompts;
    `following` wait for what others compute."""

    steps: tuple[Step, ...]
    claims: Mapping[Node, int]
    finished: tuple[Ticket, ...]
    following: tuple[Ticket, ...]


def planned(
    tickets: Mapping[int, Ticket], pools: Pools, speculation: Speculation, limits: Limits, costs: Costs
) -> Plan:
    """`tickets` are all there are, by number. Changes nothing."""
    every = list(pools.by_name.values())
    index_of = {id(pool): index for index, pool in enumerate(every)}
    answering: dict[int, list[int]] = {}
    prefilling: list[tuple[Ticket, int, int]] = []
    finished, following = list[Ticket](), list[Ticket]()
    drafts: dict[int, Draft] = {}
    claims, waiting = dict[Node, int](), waiting_for(tickets)
    # In the order of service, so that of two who may compute a node the first in line gets it.
    for ticket in in_order(tickets):
        pool = index_of.get(id(ticket.pool), 0)
        if ticket.phase is Phase.ANSWERING:
            answering.setdefault(pool, []).append(ticket.number)
            if (draft := speculation.find(ticket)) is not None:
                drafts[ticket.number] = draft
        elif ticket.phase is not Phase.PREFILL:
            continue
        elif (node := ticket.unfinished()) is None:
            assert not ticket.job.max_tokens, "the last token of a prompt that wants an answer is its own to compute"
            finished.append(ticket)
        elif (by := claims.setdefault(node, (computing(node, tickets) or ticket).number)) == ticket.number:
            prefilling.append((ticket, pool, len(node.ids) - node.computed))
        else:
            following.append(ticket)
            waiting.setdefault(by, []).append(ticket)
    # Now that it is known who waits for another one's cells, and lends its place to that one.
    wants = [want_of(ticket, waiting.get(ticket.number, ()), pool, tokens) for ticket, pool, tokens in prefilling]
    cells = {index: pool.cells_used() for index, pool in enumerate(every)}
    return Plan(plan_round(answering, wants, cells, limits, costs, drafts), claims, tuple(finished), tuple(following))


def want_of(ticket: Ticket, waiting: Iterable[Ticket], pool: int, tokens: int) -> Want:
    """Served as it is due itself, or as one who waits for what it computes."""
    background, due = min((one.arrival[0], one.due) for one in (ticket, *waiting))
    return Want(background, due, ticket.number, pool, tokens)


def plan_round(
    answering: Mapping[int, Sequence[int]],
    wants: Sequence[Want],
    cells: Mapping[int, int],
    limits: Limits,
    costs: Costs,
    drafts: Mapping[int, Draft] | None = None,
) -> tuple[Step, ...]:
    """`answering`: tickets by pool. `cells`: used cells by pool. `drafts`: by ticket. One step per pool at most."""
    counts = {pool: len(tickets) for pool, tickets in answering.items() if tickets}
    answers_ms = {pool: costs.milliseconds(count, cells[pool], count) for pool, count in counts.items()}
    left_ms = (limits.budget_ms - sum(answers_ms.values())) * limits.prefill_share if answers_ms else limits.alone_ms
    first = min(wants, default=None)
    steps = []
    for pool in sorted({*answers_ms, *([first.pool] if first else [])}):
        tickets = tuple(answering.get(pool, ()))
        prefill: tuple[tuple[int, int], ...] = ()
        if first and first.pool == pool:
            served = sorted(want for want in wants if want.pool == pool)
            budget_ms = left_ms + answers_ms.get(pool, 0.0)
            first_ms = costs.milliseconds(first.tokens, cells[pool], 1)
            if not answers_ms and not first.background and first_ms < budget_ms:
                budget_ms = max(first_ms, min(budget_ms, limits.budget_ms))
            others_ms = sum(answers_ms.values()) - answers_ms.get(pool, 0.0)
            prefill = _prefill(len(tickets), served, cells[pool], limits.batch, budget_ms, others_ms, costs)
        found = {number: drafts[number] for number in tickets if number in drafts} if drafts and not prefill else {}
        chosen = _drafts(found, len(tickets), cells[pool], limits, costs)
        forced = frozenset(number for number, _ in chosen if found[number].forced)
        steps.append(Step(pool, tickets, prefill, chosen, forced))
    return tuple(steps)


def _prefill(
    answers: int, wants: Sequence[Want], cells: int, batch: int, budget_ms: float, others_ms: float, costs: Costs
) -> tuple[tuple[int, int], ...]:
    """Tokens by ticket, in this order: the prompts that somebody waits for and that end within the budget beside the
    answers; then what does not end, which takes no more time than the rest of the round, or its least. `others_ms`:
    answers of other pools."""
    awaited = [want for want in wants if not want.background]
    totals = accumulate(want.tokens for want in awaited)
    fitting = takewhile(lambda total: total == costs.chunk(answers, cells, total, batch, budget_ms), totals)
    ending = awaited[: len(list(fitting))]
    rows = answers + tokens_of(ending)
    left, aside = awaited[len(ending) :], wants[len(awaited) :]
    longer, least_ms = (left, AWAITED_MS) if left else (aside, UNWAITED_MS)
    if not longer or rows >= batch:
        return _filled(ending, rows)
    own_ms = costs.milliseconds(rows, cells, answers) if rows else 0.0
    most_ms = min(budget_ms, own_ms + max(own_ms + others_ms, least_ms)) if rows or others_ms else budget_ms
    room = costs.chunk(rows, cells, tokens_of(longer), batch, most_ms, outputs=answers)
    return (*_filled(ending, rows), *_filled(longer, room))


def _filled(wants: Sequence[Want], room: int) -> tuple[tuple[int, int], ...]:
    chosen = []
    for want in wants:
        if tokens := min(want.tokens, room):
            chosen.append((want.ticket, tokens))
            room -= tokens
    return tuple(chosen)


def tokens_of(wants: Iterable[Want]) -> int:
    return sum(want.tokens for want in wants)


def _drafts(
    drafts: Mapping[int, Draft], answers: int, cells: int, limits: Limits, costs: Costs
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Tokens to verify for each answer, where that is predicted to be faster than none."""
    if not drafts:
        return ()
    chosen = _shared(drafts, min(limits.logits, limits.batch) - answers)
    expected = answers + sum(min(drafts[number].expected, len(tokens)) for number, tokens in chosen)
    rows = answers + drafted(chosen)
    drafted_ms, plain_ms = costs.milliseconds(rows, cells, rows), costs.milliseconds(answers, cells, answers)
    return chosen if expected / drafted_ms > answers / plain_ms else ()


def _shared(drafts: Mapping[int, Draft], rows_left: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    each = max(0, rows_left) // len(drafts)
    return tuple((number, draft.tokens[:each]) for number, draft in drafts.items() if draft.tokens[:each])


class Timing:
    """The time of the round that begins now. `writing`: whether checkpoints wait to be written."""

    def __init__(
        self,
        clock: Callable[[], float],
        limits: Limits,
        tickets: Mapping[int, Ticket],
        costs: Costs,
        *,
        writing: bool,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._began = clock()
        self._writing_ms = 1000 * WRITE_SECONDS * writing
        self._step_ms = limits.alone_ms
        answers = Counter(ticket.pool for ticket in tickets.values() if ticket.phase is Phase.ANSWERING)
        phases = {ticket.phase for ticket in tickets.values()}
        self.answering = bool(answers)
        if self.answering:
            known = ((count, pool.cells_used()) for pool, count in answers.items() if pool is not None)
            each = (costs.milliseconds(count, cells, count) for count, cells in known)
            left_ms = limits.budget_ms - self._writing_ms - sum(each)
            share = PREFILL_SHARE if Phase.PREFILL in phases else 1.0
            self.carrying = self.entering = self._until(left_ms * share)
            return
        share = 1.0
        if phases >= {Phase.RESTORING, Phase.PREFILL}:
            line = [ticket.phase for ticket in in_order(tickets)]
            share = FIRST_SHARE if line.index(Phase.RESTORING) < line.index(Phase.PREFILL) else 1 - FIRST_SHARE
            self._step_ms = (1 - share) * limits.budget_ms
        self.carrying = endless()
        # Short, so that who comes next does not wait long for the end of another's restore.
        self.entering = self._until(share * limits.budget_ms)

    def limits(self) -> Limits:
        """Those of the step, after restores and evictions."""
        if not self.answering:
            return replace(self._limits, alone_ms=self._step_ms)
        return replace(self._limits, budget_ms=max(0.0, self._left_ms() - self._writing_ms))

    def may_write(self) -> bool:
        """Whether there is time to write: a piece a round in any case, but not beside another that overran it."""
        return not (self.answering and self.carrying.taken) or self._left_ms() > 0

    def _left_ms(self) -> float:
        return self._limits.budget_ms - 1000 * (self._clock() - self._began)

    def _until(self, milliseconds: float) -> TimeBudget:
        return TimeBudget(self._clock, self._began + milliseconds / 1000)
