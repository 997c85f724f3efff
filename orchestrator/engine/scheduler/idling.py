"""When a tail that nobody uses leaves the cells although there is room for it. Pure.

Every step walks all cells of its pool, so an idle tail costs each step a little; to bring it back costs once. It goes when
the steps since its last use have taken as long for its cells as it takes to bring them back: whatever comes then, that is
at most twice what the better choice would have taken (competitive snoopy caching, Karlin et al. 1988). A fixed number of
rounds would be right nowhere. On one CPU a step of a small model did not feel 6,600 idle cells (3.7 ms with and without
them), and 600 of them took 1 to 9 ms to come back; with flash attention there a row took 3 µs for each cell (`costs`),
which three steps pay for. While nothing is computed nothing goes.
"""

from orchestrator.engine.costs import MANY, Costs


def walk_ms(costs: Costs, rows: int) -> float:
    """Milliseconds that one cell of its pool adds to a step of so many rows."""
    return max(0.0, costs.milliseconds(rows, MANY) - costs.milliseconds(rows, 0)) / MANY


def outstayed(walked_ms: float, restore_ms: float) -> bool:
    """`walked_ms`: what steps took for each of its cells since its last use; `restore_ms` for a token of it."""
    return walked_ms > restore_ms
