"""What to compute next: a pure decision over numbers.

    1. every running answer gets its token, in every pool that has one;
    2. prefill goes to one pool a round: interactive before background, then the oldest;
    3. it fills what the round's time budget leaves, further tickets of that pool in the same order;
    4. a step is padded where padding makes it sooner.

A long prefill never stalls an answer for more than one round, and an answer never starves a prefill of its one tile.
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
    """One call of the backend: a token for each of `answering`, then prompt tokens by ticket, then padding."""

    pool: int
    answering: tuple[int, ...]
    prefill: tuple[tuple[int, int], ...] = ()
    padding: int = 0


@dataclass(frozen=True)
class Limits:
    """batch: tokens the backend takes at once. budget_ms: one round's time."""

    batch: int
    budget_ms: float = 300.0


def plan_round(
    answering: Mapping[int, Sequence[int]],
    wants: Sequence[Want],
    cells: Mapping[int, int],
    limits: Limits,
    costs: Costs,
) -> tuple[Step, ...]:
    """`answering`: tickets by pool. `cells`: used cells by pool. Returns the steps of one round, one per pool at most."""
    served = min(wants, default=None)
    pools = sorted({*(pool for pool, tickets in answering.items() if tickets), *([served.pool] if served else [])})
    left = limits.budget_ms - sum(
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
        steps.append(Step(pool, tickets, prefill, costs.padding(rows, cells[pool])))
    return tuple(steps)


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
