"""The time of a round: who runs shares one budget with what is carried about, computed and written behind.

    round  ├─ carrying: restores, evictions, moves ─┼─ the step: answers, and prefill in what is left ─┼─ writing behind ─┤
           └──────────────────────────────── budget_ms, beside running answers ─────────────────────────────────────────┘

While nobody is answered nobody waits for a round, and each part has its own time.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from orchestrator.engine.behind import SLICE_SECONDS
from orchestrator.engine.costs import Costs
from orchestrator.engine.plan import Limits
from orchestrator.engine.slack import Slack, endless
from orchestrator.engine.tickets import Phase, Ticket

PREFILL_SHARE = 0.5  # of what answers leave of a round, while somebody's prefill runs beside what is carried


class Timing:
    """One round. `answers_ms`: predicted for the tokens of running answers, None where there are none."""

    def __init__(
        self, clock: Callable[[], float], limits: Limits, answers_ms: float | None, *, prefilling: bool, writing: bool
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._began = clock()
        self.answering = answers_ms is not None
        self._writing_ms = 1000 * SLICE_SECONDS * writing
        left = limits.budget_ms - self._writing_ms - (answers_ms or 0.0)
        share = left * (PREFILL_SHARE if prefilling else 1.0)
        self.carrying = Slack(clock, self._began + share / 1000) if self.answering else endless()
        self.entering = self.carrying if self.answering else Slack(clock, self._began + limits.alone_ms / 1000)

    def limits(self) -> Limits:
        """Those of the step, after what was carried."""
        if not self.answering:
            return self._limits
        return replace(self._limits, budget_ms=max(0.0, self._left_ms() - self._writing_ms))

    def may_write(self) -> bool:
        """Whether there is time to write: a piece a round in any case, but not beside another that overran it."""
        return not (self.answering and self.carrying.taken) or self._left_ms() > 0

    def _left_ms(self) -> float:
        return self._limits.budget_ms - 1000 * (self._clock() - self._began)


def answered(tickets: Mapping[int, Ticket]) -> bool:
    """Whether anybody's answer runs, who would notice that a round takes long."""
    return any(ticket.phase is Phase.ANSWERING for ticket in tickets.values())


def timing_of(
    clock: Callable[[], float], limits: Limits, tickets: Mapping[int, Ticket], costs: Costs, *, writing: bool
) -> Timing:
    """The timing of the round that begins now."""
    answers = Counter(ticket.pool for ticket in tickets.values() if ticket.phase is Phase.ANSWERING)
    each = [costs.milliseconds(count, pool.cells_used()) for pool, count in answers.items() if pool is not None]
    prefilling = any(ticket.phase is Phase.PREFILL for ticket in tickets.values())
    return Timing(clock, limits, sum(each) if each else None, prefilling=prefilling, writing=writing)
