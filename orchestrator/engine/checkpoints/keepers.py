"""Which keeper carries what was computed down to the tiers and up again: that depends on the model's memory alone."""

from collections.abc import Callable

from orchestrator.engine.backend import Backend
from orchestrator.engine.cache.eviction import Price
from orchestrator.engine.checkpoints.keeping import Keeping
from orchestrator.engine.checkpoints.manager import Keeper
from orchestrator.engine.checkpoints.store import Tiers
from orchestrator.engine.checkpoints.whole_keeper import WholeKeeper


def keeper_of(
    backend: Backend, tiers: Tiers | None, clock: Callable[[], float], price: Callable[[], Price]
) -> Keeping | None:
    """None where nothing may outlive the cells. `price` is what a prompt token costs, as known now: the tiers, which are
    made before anything is learned, judge by it from now on."""
    if tiers is None:
        return None
    tiers.price = price
    if backend.info.ranges:
        return Keeper(tiers, clock)
    return WholeKeeper(tiers, clock, constant=backend.info.kv_bytes_per_token == 0)
