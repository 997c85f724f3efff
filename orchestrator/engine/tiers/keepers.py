"""Which keeper carries what was computed down to the tiers and up again: that depends on the model's memory alone."""

from collections.abc import Callable

from orchestrator.engine.backend import Backend
from orchestrator.engine.tiers.keeper import Keeper
from orchestrator.engine.tiers.keeping import Keeping
from orchestrator.engine.tiers.tiers import Tiers
from orchestrator.engine.tiers.whole_keeper import WholeKeeper


def keeper_of(backend: Backend, tiers: Tiers | None, clock: Callable[[], float]) -> Keeping | None:
    """None where nothing may outlive the cells."""
    if tiers is None:
        return None
    if backend.info.ranges:
        return Keeper(tiers, clock)
    return WholeKeeper(tiers, clock, constant=backend.info.kv_bytes_per_token == 0)
