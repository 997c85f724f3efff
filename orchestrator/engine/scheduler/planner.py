"""What to compute next: a pure decision over numbers.

    1. every running answer gets its token, in every pool that has one;
    2. prefill goes to one pool a round: interactive before background, then the oldest;
    3. it fills what the round's time budget leaves, further tickets of that pool in the same order;
    4. beside it the shortest prefills of its class, in one pool, for at most a quarter of the time (`credit_ms`);
    5. drafts of answers are verified where that makes the answers faster.

A long prefill never stalls an answer for more than one round, and an answer never starves a prefill of its few tokens. A
short question does not wait for a long cold floor, and the floor, the oldest of its class, never stands still.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.engine.costs import Costs

SHORT_SHARE = 0.25  # of the time of prefills goes to the shortest, while a longer one was there first
SHORT_MS = 1000.0  # predicted for what is short; and as much time is saved up for it
EARNED = SHORT_SHARE / (1 - SHORT_SHARE)  # for each millisecond of the others


@dataclass(frozen=True, order=True)
class Want:
    """A ticket with prompt tokens that it may compute now. Orders as it is served."""

    background: bool
    in_line: int  # its place
    ticket: int
    pool: int
    tokens: int


@dataclass(frozen=True)
class Step:
    """One call of the backend: a token for each of `answering` with its `drafts`, prompt tokens by ticket.

    credit_ms: what it earns for short prefills, or takes of what they had.
    """

    pool: int
    answering: tuple[int, ...]
    prefill: tuple[tuple[int, int], ...] = ()
    drafts: tuple[tuple[int, int], ...] = ()
    credit_ms: float = 0.0

    @property
    def rows(self) -> int:
        """Tokens that the backend takes."""
        return len(self.answering) + _tokens(self.prefill) + _tokens(self.drafts)


@dataclass(frozen=True)
class Limits:
    """batch: tokens the backend takes at once; more than answers ever run in a pool, which has fewer sequences (`sizes`).
    logits: rows of a step that may have them. drafts: whether answers have any.

    budget_ms: one round's time beside running answers, which may stand still for 0.3 s: a quarter is for predictions that
    are off. alone_ms: while nobody is being answered, until the next one comes.
    """

    batch: int
    budget_ms: float = 220.0
    alone_ms: float = 1000.0
    logits: int = 64
    drafts: bool = True


@dataclass(frozen=True)
class Draft:
    """What is at hand to be verified for a running answer: so many tokens, of which so many are expected to be right."""

    tokens: int
    expected: float


@dataclass(frozen=True)
class Load:
    """Running answers and used cells by pool, and what steps over them cost."""

    answers: Mapping[int, int]
    cells: Mapping[int, int]
    costs: Costs

    def ms(self, pool: int, more: int = 0) -> float:
        """Predicted time of a step with the pool's answers and so many rows beside them; no rows, no step."""
        rows = self.answers.get(pool, 0) + more
        return self.costs.milliseconds(rows, self.cells[pool]) if rows else 0.0


@dataclass(frozen=True)
class Ahead:
    """Short prefills that are computed before the first in line, in one pool, and what they take of their credit."""

    pool: int = -1
    prefill: tuple[tuple[int, int], ...] = ()
    ms: float = 0.0

    def in_pool(self, pool: int) -> tuple[tuple[int, int], ...]:
        return self.prefill if pool == self.pool else ()


def plan_round(
    answering: Mapping[int, Sequence[int]],
    wants: Sequence[Want],
    cells: Mapping[int, int],
    limits: Limits,
    costs: Costs,
    drafts: Mapping[int, Draft] | None = None,
    credit_ms: float = 0.0,
) -> tuple[Step, ...]:
    """`answering`: tickets by pool. `cells`: used cells by pool. `drafts`: by ticket. One step per pool at most.

    `credit_ms`: what short prefills may take now, see `credit_after`.
    """
    load = Load({pool: len(tickets) for pool, tickets in answering.items() if tickets}, cells, costs)
    left = (limits.budget_ms if load.answers else limits.alone_ms) - sum(map(load.ms, load.answers))
    prefill, credit = _prefills(wants, load, limits.batch, left, credit_ms)
    steps = []
    for pool in sorted({*load.answers, *prefill}):
        tickets, filling = tuple(answering.get(pool, ())), prefill.get(pool, ())
        rows = len(tickets) + _tokens(filling)
        mine_drafts = {number: drafts[number] for number in tickets if number in drafts} if drafts else {}
        chosen = _drafts(mine_drafts, len(tickets), rows, cells[pool], limits, costs)
        steps.append(Step(pool, tickets, filling, chosen, credit.get(pool, 0.0)))
    return tuple(steps)


def credit_after(credit_ms: float, steps: Sequence[Step]) -> float:
    """What short prefills may take in the next round."""
    return min(SHORT_MS, credit_ms + sum(step.credit_ms for step in steps))


def _prefills(
    wants: Sequence[Want], load: Load, batch: int, left_ms: float, credit_ms: float
) -> tuple[dict[int, tuple[tuple[int, int], ...]], dict[int, float]]:
    """Prompt tokens by ticket in each pool that has some, and what that earns or takes of the credit there."""
    if not wants:
        return {}, {}
    served = min(wants)
    ahead = _ahead(served, wants, load, batch, left_ms, credit_ms)
    first = ahead.in_pool(served.pool)
    own_ms = left_ms + load.ms(served.pool) - (0.0 if first else ahead.ms)
    rest = sorted(want for want in wants if want.pool == served.pool and want.ticket not in dict(first))
    fixed = load.answers.get(served.pool, 0) + _tokens(first)
    behind = _fill(fixed, rest, load.cells[served.pool], batch, own_ms, load.costs)
    others_ms = load.ms(served.pool, _tokens(first) + _tokens(behind)) - load.ms(served.pool, _tokens(first))
    prefill = {ahead.pool: ahead.prefill} if ahead.prefill else {}
    credit = {ahead.pool: -ahead.ms} if ahead.prefill else {}
    prefill[served.pool] = (*first, *behind)
    credit[served.pool] = credit.get(served.pool, 0.0) + EARNED * max(0.0, others_ms)
    return prefill, credit


def _ahead(served: Want, wants: Sequence[Want], load: Load, batch: int, left_ms: float, credit_ms: float) -> Ahead:
    """The shortest prefills beside that of the first in line, all that are paid for; one that fills a round in portions."""
    shorter = [want for want in wants if want.background == served.background and want.tokens < served.tokens]
    if not shorter or left_ms <= 0:
        return Ahead()
    pool = min(shorter, key=_length).pool
    step = int(pool == served.pool)  # one that is made anyway costs only what is added
    chosen, tokens, price = list[tuple[int, int]](), 0, 0.0
    for want in sorted((want for want in shorter if want.pool == pool), key=_length):
        whole = load.ms(pool, step + tokens + want.tokens) - load.ms(pool, step)
        room = batch - load.answers.get(pool, 0) - step - tokens
        if whole > SHORT_MS or want.tokens > room or min(whole, left_ms) > credit_ms:
            break
        if whole > left_ms:
            return Ahead(pool, tuple(chosen), price) if chosen else _portion(want, load, step, room, left_ms)
        chosen, tokens, price = [*chosen, (want.ticket, want.tokens)], tokens + want.tokens, whole
    return Ahead(pool, tuple(chosen), price)


def _portion(want: Want, load: Load, step: int, room: int, left_ms: float) -> Ahead:
    """As much of a prefill as the round has time for."""
    beside = load.answers.get(want.pool, 0) + step
    budget_ms = left_ms + load.ms(want.pool, step)
    tokens = load.costs.chunk(beside, load.cells[want.pool], want.tokens, room + beside, budget_ms)
    return Ahead(want.pool, ((want.ticket, tokens),), load.ms(want.pool, step + tokens) - load.ms(want.pool, step))


def _length(want: Want) -> tuple[int, Want]:
    return want.tokens, want


def _tokens(counts: Sequence[tuple[int, int]]) -> int:
    return sum(count for _, count in counts)


def _drafts(
    drafts: Mapping[int, Draft], answers: int, rows: int, cells: int, limits: Limits, costs: Costs
) -> tuple[tuple[int, int], ...]:
    """Tokens to verify for each answer: none, a few or more, whichever is predicted to be the fastest."""
    if not drafts or rows > answers:
        return ()  # a prefill fills the step
    places = min(limits.logits, limits.batch) - answers
    best: tuple[tuple[int, int], ...] = ()
    speed = answers / costs.milliseconds(rows, cells)
    for more in (4 * len(drafts), 12 * len(drafts)):
        chosen = _shared(drafts, min(more, places))
        added = sum(tokens for _, tokens in chosen)
        told = answers + sum(min(drafts[number].expected, tokens) for number, tokens in chosen)
        if added and told / costs.milliseconds(rows + added, cells) > speed:
            best, speed = chosen, told / costs.milliseconds(rows + added, cells)
    return best


def _shared(drafts: Mapping[int, Draft], places: int) -> tuple[tuple[int, int], ...]:
    each = max(0, places) // len(drafts)
    return tuple((number, min(each, draft.tokens)) for number, draft in drafts.items() if min(each, draft.tokens))


def _fill(
    beside: int, wants: Sequence[Want], cells: int, batch: int, budget_ms: float, costs: Costs
) -> tuple[tuple[int, int], ...]:
    total = sum(want.tokens for want in wants)
    if not total:
        return ()
    room = costs.chunk(beside, cells, total, batch, budget_ms)
    chosen = []
    for want in wants:
        tokens = min(want.tokens, room)
        if tokens:
            chosen.append((want.ticket, tokens))
            room -= tokens
    return tuple(chosen)
