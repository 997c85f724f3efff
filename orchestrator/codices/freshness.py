"""How true a codex is to its files, from what its load, its archive and its watcher tell: one truth for all who ask.

`word` is for a column, `notice` says what should be known of it, `blind` what a search may not see at this moment. Of a
codex that nobody follows, the files that are shown are compared with the disk at once, all others behind the answer.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from codex.errors import CodexError
from codex.following import comparing
from codex.following.comparing import Comparing
from orchestrator.codices.archive import ArchiveUpkeep
from orchestrator.codices.codices import Codices
from orchestrator.codices.loads import Loads, compared_at
from orchestrator.codices.watching import CodexWatchers, WatchStatus

COMPARED = "being compared with the disk"
NAMED = 3  # files that a notice names


@dataclass(frozen=True)
class Freshness:
    """`loading`, `indexing`: what a search may not see because of them, '' when they are not under way.

    `stands`: it has been loaded to the end once. `failed`: why its last load ended early. `since`: when the files were
    compared last, in seconds since 1970, where nobody follows them. `outside`: how they differ from the disk, as far as
    somebody looked since. `lost`: why nothing of it is kept.
    """

    name: str
    followed: WatchStatus = field(default_factory=WatchStatus)
    loading: str = ""
    indexing: str = ""
    archive: str = ""
    failed: str = ""
    rebasing: bool = False
    stands: bool = True
    since: float | None = None
    outside: str = ""
    lost: str = ""

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
        return "; ".join(part for part in (self.lost, begun, self.followed.notice, self._left(), self.archive) if part)

    @property
    def blind(self) -> str:
        """'' when a search sees what stands on disk, as far as anybody knows."""
        return "; ".join(part for part in (self.lost, self.loading, self.indexing, self._unseen()) if part)

    @property
    def is_behind(self) -> bool:
        """Whether something is being taken in, so that the same search may see more in a moment."""
        followed = self.followed
        taking_in = followed.watched and not followed.failing and (followed.taking_in or not followed.compared)
        return bool(self.loading or self.indexing or taking_in)

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

    def _left(self) -> str:
        """Said of files that nobody follows, while they are not being loaded."""
        if self.followed.watched or self.followed.still or self.loading or not self.stands:
            return ""
        when = "" if self.since is None else time.strftime(" since %Y-%m-%d %H:%M", time.localtime(self.since))
        found = f" ({self.outside})" if self.outside else ""
        return f"not followed{when}: what changed on disk is not in it{found}"

    def _unseen(self) -> str:
        if self.followed.failing:
            return f"changes of {self.name} cannot be taken in: {self.followed.notice}"
        if left := self._left():
            return f"{self.name}: {left}"
        behind = self.followed.taking_in or not self.followed.compared
        return f"{self.name}: {self._followed()}" if behind else ""


@dataclass(frozen=True)
class FreshnessGauge:
    """Reads it off. Waits for nothing."""

    shelf: Codices
    loads: Loads
    tending: ArchiveUpkeep
    watching: CodexWatchers
    comparing: Comparing = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "comparing", Comparing(self.shelf.library.outside))

    def of(self, name: str, *, stands: bool = True) -> Freshness:
        followed = self.watching.state(name)
        since = None if followed.watched or followed.still else compared_at(self.shelf.ledger, name)
        return Freshness(
            name=name,
            followed=followed,
            loading=self.loads.blind(name),
            indexing=self.tending.blind(name),
            archive=self.tending.notice(name),
            failed=self.loads.failed(name),
            rebasing=self.shelf.rebasing(name),
            stands=stands,
            since=since,
            outside=self.comparing.latest(name, since).in_words(),
            lost=self.shelf.library.misplaced(),
        )

    def blind(self, name: str) -> str:
        return self.of(name).blind

    def outdated(self, name: str, paths: Iterable[str]) -> str:
        """What of these files, which are shown, is otherwise on disk, or that the revision that was loaded means another
        commit by now; '' where it is the same, and of a codex that is followed. Has the other files compared, for whoever
        asks next. For a worker thread."""
        if self.watching.state(name).watched:
            return ""
        try:
            if comparing.is_folders(self.shelf.library, name):
                self.comparing.want(name, compared_at(self.shelf.ledger, name))
            return comparing.moved(self.shelf.library, name) or differing(
                comparing.differing(self.shelf.library, name, paths)
            )
        except CodexError as fault:
            return f"what stands on disk cannot be compared: {fault}"


def differing(paths: tuple[str, ...]) -> str:
    """In words, with the first of them by name."""
    if not paths:
        return ""
    more = f" and {len(paths) - NAMED:,} more" if len(paths) > NAMED else ""
    what = "1 file that is shown differs" if len(paths) == 1 else f"{len(paths):,} files that are shown differ"
    return f"{what} on disk: {', '.join(paths[:NAMED])}{more}"
