"""The time of a round: who runs shares one budget with what is carried about, computed and written behind.

    round  ├─ carrying: restores, evictions, moves ─┼─ the step: answers, and prefill in what is left ─┼─ writing behind ─┤
           └──────────────────────────────── budget_ms, beside running answers ─────────────────────────────────────────┘

While nobody is answered nobody waits for a round, and each part has its own time.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from orchestrator.engine.cache.time_budget import TimeBudget, endless
from orchestrator.engine.costs import Costs
from orchestrator.engine.scheduler.planner import Limits
from orchestrator.engine.scheduler.ticket import Order, Phase, Ticket
from orchestrator.engine.scheduler.write_behind import SLICE_SECONDS

PREFILL_SHARE = 0.5  # of what answers leave of a round, while somebody's prefill runs beside what is carried
FIRST_SHARE = 0.75  # of a round without answers has who came first: a prompt that is restored, or one that is computed


class Timing:
    """One round. `answers_ms`: predicted for the tokens of running answers, None where there are none.

    `restores`: what share of a round without answers is for prompts that come back; 1 where nothing is computed beside.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        limits: Limits,
        answers_ms: float | None,
        *,
        prefilling: bool,
        writing: bool,
        restores: float,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._began = clock()
        self.answering = answers_ms is not None
        self._writing_ms = 1000 * SLICE_SECONDS * writing
        left = limits.budget_ms - self._writing_ms - (answers_ms or 0.0)
        share = left * (PREFILL_SHARE if prefilling else 1.0)
        self.carrying = TimeBudget(clock, self._began + share / 1000) if self.answering else endless()
        # Short, so that who comes next does not wait long for the end of another's restore.
        self.entering = (
            self.carrying if self.answering else TimeBudget(clock, self._began + restores * limits.budget_ms / 1000)
        )
        self._computed_ms = (1 - restores) * limits.budget_ms if 0 < restores < 1 else limits.alone_ms

    def limits(self) -> Limits:
        """Those of the step, after what was carried."""
        if not self.answering:
            return replace(self._limits, alone_ms=self._computed_ms)
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
    restores = share_of_restores(first_of(tickets, Phase.RESTORING), first := first_of(tickets, Phase.PREFILL))
    answers_ms = sum(each) if each else None
    return Timing(clock, limits, answers_ms, prefilling=first is not None, writing=writing, restores=restores)


def first_of(tickets: Mapping[int, Ticket], phase: Phase) -> Order | None:
    return min((ticket.order for ticket in tickets.values() if ticket.phase is phase), default=None)


def share_of_restores(restored: Order | None, computed: Order | None) -> float:
    """Of a round without answers, by who is first of those whose prompts come back and of those that are computed."""
    if restored is None or computed is None:
        return 1.0
    return FIRST_SHARE if restored < computed else 1 - FIRST_SHARE
