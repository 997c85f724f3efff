"""How long prompt tokens take, from what the engine tells of its costs. Pure.

A token costs more the more cells stand before it, so the rest of a long prompt takes longer than what of it was computed.
"""

from collections.abc import Mapping

from orchestrator.engine.cache.eviction import PrefillCost


def prompt_s(counters: Mapping[str, float], begin: int, end: int) -> float | None:
    """Seconds to compute positions [begin, end) of a prompt; None before the engine has told anything."""
    empty = counters.get("ms_per_token_empty", 0.0)
    if not empty:
        return None
    return (end - begin) * PrefillCost(empty, counters.get("ms_per_token_cell", 0.0)).per_token(begin, end) / 1000
