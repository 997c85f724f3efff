"""How true a codex is to its files, from what its load, its archive and its watcher tell: one truth for all who ask.

`word` is for a column, `notice` says what should be known of it, `blind` what a search may not see at this moment.
"""

from dataclasses import dataclass, field

from orchestrator.shelf.loads import Loads
from orchestrator.shelf.shelf import Shelf
from orchestrator.shelf.tending import Tending
from orchestrator.shelf.watching import Followed, Watching

COMPARED = "being compared with the disk"


@dataclass(frozen=True)
class Freshness:
    """`loading`, `indexing`: what a search may not see because of them, '' when they are not under way.

    `stands`: it has been loaded to the end once. `failed`: why its last load ended early.
    """

    name: str
    followed: Followed = field(default_factory=Followed)
    loading: str = ""
    indexing: str = ""
    archive: str = ""
    failed: str = ""
    rebasing: bool = False
    stands: bool = True

    @property
    def word(self) -> str:
        """First match: being loaded · never loaded to the end · cannot be followed · being compared · taking in · polled ·
        watched."""
        if self.loading:
            return "being loaded"
        if not self.stands:
            return "not loaded to the end"
        found = self._followed()
        return f"{found}, a new generation is on its way" if self.rebasing else found

    @property
    def notice(self) -> str:
        begun = f"its load ended early: {self.failed}" if self.failed else ""
        return "; ".join(part for part in (begun, self.followed.notice, self.archive) if part)

    @property
    def blind(self) -> str:
        """'' when a search sees what stands on disk, as far as anybody knows."""
        return "; ".join(part for part in (self.loading, self.indexing, self._unseen()) if part)

    def _followed(self) -> str:
        followed = self.followed
        if not followed.watched:
            return "not watched"
        if followed.failing:
            return "changes cannot be taken in"
        if not followed.compared:
            return COMPARED
        if followed.taking_in:
            many = {0: "changes are", 1: "1 changed file is"}.get(followed.pending)
            return f"{many or f'{followed.pending:,} changed files are'} being taken in"
        return "polled" if followed.polled else "watched"

    def _unseen(self) -> str:
        if self.followed.failing:
            return f"changes of {self.name} cannot be taken in: {self.followed.notice}"
        behind = self.followed.taking_in or not self.followed.compared
        return f"{self.name}: {self._followed()}" if behind else ""


@dataclass(frozen=True)
class Gauge:
    """Reads it off. Waits for nothing."""

    shelf: Shelf
    loads: Loads
    tending: Tending
    watching: Watching

    def of(self, name: str, *, stands: bool = True) -> Freshness:
        return Freshness(
            name=name,
            followed=self.watching.state(name),
            loading=self.loads.blind(name),
            indexing=self.tending.blind(name),
            archive=self.tending.notice(name),
            failed=self.loads.failed(name),
            rebasing=self.shelf.rebasing(name),
            stands=stands,
        )

    def blind(self, name: str) -> str:
        return self.of(name).blind
