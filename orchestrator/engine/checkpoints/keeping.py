"""The port between the loop and the tiers below the cells: who carries what was computed down, and up again.

`keeper` does for memories that can be cut in ranges, `whole_keeper` for those that cannot.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from orchestrator.engine.cache.node import Node
from orchestrator.engine.cache.path import Path, Wanted
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.checkpoints.store import Tiers
from orchestrator.engine.messages import Reuse
from orchestrator.engine.scheduler.slack import Slack


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
        """Saves what is queued until the deadline, at least one piece; nothing while the tiers are `crowded`."""
        ...

    def kept(self, pool: Pool) -> Mapping[Node, int]:
        """How many cells of each node of a pool have arrived below."""
        ...

    def evicting(self, pool: Pool, node: Node, slack: Slack) -> None:
        """Takes what a node alone holds, before its cells go. Raises OutOfTime: call again, it stays until then."""
        ...

    def revive(self, pool: Pool, wanted: Wanted, slack: Slack) -> None:
        """Restores what can only come back before the prompt's path is leased.

        Raises OutOfTime while there is more than the round has time for: call again.
        """
        ...

    def refill(self, pool: Pool, tip: Node, wanted: Wanted, claim: Callable[[Node], bool], slack: Slack) -> None:
        """Restores the rest into the leased path down to `tip`; `claim` says whether a node is this ticket's to fill.

        Raises OutOfTime as well.
        """
        ...

    def restorable(self, path: Path, limit: int, ends: Sequence[int]) -> list[Reuse]:
        """The ranges of [0, limit) that would come back into a path whose nodes end at `ends`. The last one is how far the
        path leads in the cells; the first is 0."""
        ...

    def forget_floor(self, ids: "array[int]", others: Sequence["array[int]"]) -> None:
        """Deletes what only this floor and its conversations could use; `others` are the floors that stay."""
        ...
