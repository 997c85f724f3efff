"""The engine after a round, as a value: what the daemon is told of it. Decides nothing."""

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.engine.cache.eviction import Price
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.messages import EngineSnapshot
from orchestrator.engine.scheduler.admission import Admission
from orchestrator.engine.scheduler.ticket import Phase, Ticket


def pictured(admission: Admission, tickets: Sequence[Ticket], figures: Mapping[str, float]) -> EngineSnapshot:
    """`figures` are counters by name."""
    phases = [ticket.phase for ticket in tickets]
    computing = (ticket for ticket in tickets if ticket.phase in (Phase.RESTORING, Phase.PREFILL))
    prefilling = min(computing, key=lambda ticket: ticket.order, default=None)
    return EngineSnapshot(
        grant=admission.grant.number,
        pools=tuple(pool.state() for pool in admission.pools.values()),
        running=len(phases) - phases.count(Phase.WAITING),
        prefills=phases.count(Phase.RESTORING) + phases.count(Phase.PREFILL),
        waiting=phases.count(Phase.WAITING),
        prefilling=prefilling.job.floor if prefilling else "",
        kv_bytes=sum(pool.memory.footprint for pool in admission.pools.values()),
        steps=int(figures["steps"]),
        counters=figures,
    )


def per_token(price: Price, pools: Iterable[Pool]) -> dict[str, float]:
    """Milliseconds of a prompt token in a full step: in the fullest pool now, in an empty one, and by cell."""
    cells = max((pool.cells_used() for pool in pools), default=0)
    full = price.again(cells, cells)
    return {"ms_per_token": full, "ms_per_token_empty": price.empty, "ms_per_token_cell": price.cell}
