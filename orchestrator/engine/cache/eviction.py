"""What is evicted first when cells, a pool or a checkpoint must make room. Pure.

    retention value of a tip    = milliseconds to compute one of its tokens / (1 + age)
    retention value of a pool   = milliseconds to rebuild its content / cells that it frees / (1 + age)

The lowest value goes first. Room is counted in tokens, hence the cost of one token and not of all; it grows with the
tokens before it. The age of a tip or a checkpoint is the number of uses of others since its own last use; the age of a pool
is the number of tickets that entered other pools since. A pool frees all its cells, so a large pool with little in it goes
early. Content that a checkpoint holds costs its restore; other content is computed again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.engine.prefill_cost import PrefillCost

CARRIED_IN_A_SECOND = 500e6  # bytes between cells and disk: what a restore ought to reach


def retention_value(prefill_cost: PrefillCost, start: int, end: int, age: int) -> float:
    return aged(prefill_cost.per_token(start, end), age)


def aged(milliseconds: float, age: int) -> float:
    return milliseconds / (1 + age)


@dataclass(frozen=True)
class Idle:
    """A pool that nobody runs in. `lost_ms`: the cost of rebuilding its content; `used`: number of the last entry."""

    name: str
    cells: int
    lost_ms: float
    used: int


def in_order(pools: Iterable[Idle], now: int) -> list[Idle]:
    """Lowest retention value first; of equal ones the pool that was unused for longer. `now`: number of the last entry."""
    return sorted(pools, key=lambda pool: (aged(pool.lost_ms / pool.cells, now - pool.used), pool.used, pool.name))


def to_close(free: int, leaving: Sequence[Idle], least: int) -> tuple[Idle, ...] | None:
    """As few of `leaving` as make `least` cells free, in their order; None where all of them do not."""
    for count in range(len(leaving) + 1):
        if free + sum(pool.cells for pool in leaving[:count]) >= least:
            return tuple(leaving[:count])
    return None
