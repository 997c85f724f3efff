"""The port between the loop and what lies below the cells: who carries segments down and up again, for each kind of memory.

`keeper` for memories that can be cut in ranges, `whole_keeper` for those that cannot.
"""

from array import array
from collections.abc import Callable
from typing import Protocol

from orchestrator.engine.backend import Backend
from orchestrator.engine.keeper import Keeper, Path
from orchestrator.engine.messages import Reuse
from orchestrator.engine.node import Node
from orchestrator.engine.pools import Pool
from orchestrator.engine.tiers import Tiers
from orchestrator.engine.whole_keeper import WholeKeeper


class Keeping(Protocol):
    """Deadlines are seconds of the clock it was made with. Never raises for a file; for a pool that fails, BackendError."""

    tiers: Tiers

    def remember(self, pool: Pool, tip: Node) -> None:
        """Queues what of a path is not kept yet; it is written through to disk."""
        ...

    def pending(self) -> int:
        """How much is queued."""
        ...

    def work(self, deadline: float) -> None:
        """Saves what is queued until the deadline, at least one piece."""
        ...

    def evicting(self, pool: Pool, node: Node) -> None:
        """Takes what a node alone holds, before its cells go."""
        ...

    def revive(self, pool: Pool, path: Path, limit: int, deadline: float, restored: list[Reuse]) -> bool:
        """Restores what of [0, limit) is kept and not in the pool, and notes it in `restored`. False: call again."""
        ...

    def forget_floor(self, ids: "array[int]") -> None:
        """Deletes what only this floor's conversations could use."""
        ...


def keeping(backend: Backend, tiers: Tiers | None, clock: Callable[[], float]) -> Keeping | None:
    """None where nothing may outlive the cells."""
    if tiers is None:
        return None
    if backend.info.ranges:
        return Keeper(tiers, clock)
    return WholeKeeper(tiers, clock, constant=backend.info.kv_bytes_per_token == 0)
