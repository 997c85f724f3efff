"""What to compute next: a pure decision over numbers.

    1. every running answer gets its token, in every pool that has one;
    2. prefill goes to one pool a round: interactive before background, then the oldest;
    3. it fills what the round's time budget leaves, further tickets of that pool in the same order;
    4. a step is padded where padding makes it sooner;
    5. places that padding would waste, or that pay for themselves, verify drafts of answers.

A long prefill never stalls an answer for more than one round, and an answer never starves a prefill of its few tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.engine.costs import Costs


@dataclass(frozen=True, order=True)
class Want:
    """A ticket with prompt tokens that it may compute now. Orders as it is served."""

    background: bool
    arrived: int  # number, not a time
    ticket: int
    pool: int
    tokens: int


@dataclass(frozen=True)
class Step:
    """One call of the backend: a token for each of `answering` with its `drafts`, prompt tokens by ticket, padding."""

    pool: int
    answering: tuple[int, ...]
    prefill: tuple[tuple[int, int], ...] = ()
    padding: int = 0
    drafts: tuple[tuple[int, int], ...] = ()

    @property
    def rows(self) -> int:
        """Tokens that the backend takes."""
        beside = sum(count for _, count in (*self.prefill, *self.drafts))
        return len(self.answering) + beside + self.padding


@dataclass(frozen=True)
class Limits:
    """batch: tokens the backend takes at once. logits: rows of a step that may have them. drafts: whether answers have any.

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


def plan_round(
    answering: Mapping[int, Sequence[int]],
    wants: Sequence[Want],
    cells: Mapping[int, int],
    limits: Limits,
    costs: Costs,
    drafts: Mapping[int, Draft] | None = None,
) -> tuple[Step, ...]:
    """`answering`: tickets by pool. `cells`: used cells by pool. `drafts`: by ticket. One step per pool at most."""
    served = min(wants, default=None)
    pools = sorted({*(pool for pool, tickets in answering.items() if tickets), *([served.pool] if served else [])})
    budget = limits.budget_ms if any(answering.values()) else limits.alone_ms
    left = budget - sum(
        costs.milliseconds(len(answering.get(pool, ())), cells[pool])
        for pool in pools
        if served is None or pool != served.pool
    )
    steps = []
    for pool in pools:
        tickets = tuple(answering.get(pool, ()))
        mine = sorted(want for want in wants if want.pool == pool) if served and pool == served.pool else []
        prefill = _fill(len(tickets), mine, cells[pool], limits.batch, left, costs)
        rows = len(tickets) + sum(tokens for _, tokens in prefill)
        padding = costs.padding(rows, cells[pool])
        mine_drafts = {number: drafts[number] for number in tickets if number in drafts} if drafts else {}
        chosen = _drafts(mine_drafts, len(tickets), rows, padding, cells[pool], limits, costs)
        padding = max(0, padding - sum(tokens for _, tokens in chosen))
        steps.append(Step(pool, tickets, prefill, padding, chosen))
    return tuple(steps)


def _drafts(
    drafts: Mapping[int, Draft], answers: int, rows: int, padding: int, cells: int, limits: Limits, costs: Costs
) -> tuple[tuple[int, int], ...]:
    """Tokens to verify for each answer: in the places of the padding, else as many as make the answers sooner."""
    if not drafts or rows > answers:
        return ()  # a prefill fills the step
    if padding:
        return _shared(drafts, min(padding, limits.logits - answers))
    best: tuple[tuple[int, int], ...] = ()
    speed = answers / costs.milliseconds(rows, cells)
    for more in (-rows % costs.tile, 4 * len(drafts), 12 * len(drafts)):
        chosen = _shared(drafts, min(more, limits.logits - answers))
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
