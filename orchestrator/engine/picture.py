"""The engine after a round, as a value: what the daemon is told of it. Decides nothing."""

from collections.abc import Mapping, Sequence

from orchestrator.engine.admission import Admission
from orchestrator.engine.messages import Snapshot
from orchestrator.engine.tickets import Phase, Ticket


def pictured(admission: Admission, tickets: Sequence[Ticket], figures: Mapping[str, float]) -> Snapshot:
    """`figures` are counters by name."""
    phases = [ticket.phase for ticket in tickets]
    computing = (ticket for ticket in tickets if ticket.phase is Phase.PREFILL)
    prefilling = min(computing, key=lambda ticket: ticket.order, default=None)
    return Snapshot(
        grant=admission.grant.number,
        pools=tuple(pool.state() for pool in admission.pools.values()),
        running=len(phases) - phases.count(Phase.WAITING),
        prefills=phases.count(Phase.PREFILL),
        waiting=phases.count(Phase.WAITING),
        prefilling=prefilling.job.floor if prefilling else "",
        kv_bytes=sum(pool.memory.footprint for pool in admission.pools.values()),
        steps=int(figures["steps"]),
        counters=figures,
    )
