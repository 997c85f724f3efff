"""Where the parts of the loop report what they did: figures, messages, outcomes, and the clock that dates them."""

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.engine.messages import FromChild, Outcome, Reason
from orchestrator.engine.scheduler.counters import Counters
from orchestrator.engine.scheduler.ticket import Ticket


@dataclass(frozen=True)
class Reporting:
    """`tell` takes messages for the daemon; `end` a ticket's outcome, its reason and details; `clock` gives seconds."""

    counters: Counters
    tell: Callable[[FromChild], None]
    end: Callable[[Ticket, Outcome, Reason, str], None]
    clock: Callable[[], float]
