"""What computing a prompt takes, foreseen by what the engine has learned: both ends of the wire foresee alike.

Loads no numpy: the daemon foresees too, by the counters that the engine tells.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PrefillCost:
    """Milliseconds of a prompt token with nothing before it, and what each token before it adds."""

    empty: float
    cell: float

    def per_token(self, start: int, end: int) -> float:
        """Of a token in the half-open range [start, end), on average."""
        return self.empty + self.cell * (start + end) / 2


# Before anything is learned: attention to 4,096 tokens costs as much as all the rest.
UNSEEN = PrefillCost(1.0, 1 / 4096)


def prompt_s(counters: Mapping[str, float], begin: int, end: int) -> float | None:
    """Seconds to compute positions [begin, end) of a prompt; None before the engine has measured a step.

    A token costs more the more cells stand before it: the rest of a long prompt takes longer than its beginning.
    """
    empty = counters.get("ms_per_token_empty", 0.0)
    if not empty or not counters.get("costs_known", True):
        return None
    return (end - begin) * PrefillCost(empty, counters.get("ms_per_token_cell", 0.0)).per_token(begin, end) / 1000


def first_token_s(counters: Mapping[str, float], begin: int, end: int) -> float | None:
    """Seconds until an answer begins behind a prompt whose positions [begin, end) are computed; None as above.

    A token's share of a full step is the least that it takes. The last one comes in a step that is seldom full, and costs
    what a step of an answer does: most of the time of a short question.
    """
    prompt = prompt_s(counters, begin, max(begin, end - 1))
    step_ms = counters.get("ms_per_answer_empty", 0.0) + counters.get("ms_per_answer_cell", 0.0) * end
    return None if prompt is None else prompt + step_ms / 1000
