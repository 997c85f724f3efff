"""Which files stand whole in a skeleton+hot floor: churn, centrality and what questions touched, frozen per generation."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from codex.catalog.generations import FileEntry, Generation
from codex.documents import Document, name_of
from codex.errors import GitError, LoadCancelled
from codex.tiers import Heat, hot
from codex.trees.forest import joined
from codex.trees.git import Git, available
from codex.trees.opening import History
from codex.trees.walk import has_repository
from orchestrator.codices.tiers import BYTES_PER_TOKEN

Count = Callable[[Sequence[str]], list[int]]
CANDIDATES = 3  # times the budget: so much is counted exactly, the rest is too cold
CHURN_COMMITS = 500
_SUBMODULE = "160000 "  # its mode in git's index
CHURN_SECONDS = 5.0  # a history on a slow disk: the hot subset then goes without it


def chosen(
    generation: Generation,
    skeletons: Mapping[str, str],
    ranks: Mapping[str, float],
    churn: Mapping[str, int],
    touched: Mapping[str, int],
    budget: int,
    count: Count,
    documents: Callable[[Sequence[FileEntry]], Sequence[Document]],
) -> tuple[str, ...]:
    """Paths of the files whose whole bodies fill `budget` tokens beyond their skeletons, hottest first.

    Sizes are estimated first, so that only files with a chance are counted.
    """
    rough = [
        Heat(
            one.path,
            max(1, (one.size - len(skeletons.get(one.path, ""))) // BYTES_PER_TOKEN),
            float(churn.get(one.path, 0)),
            ranks.get(one.path, 0.0),
            float(touched.get(one.path, 0)),
        )
        for one in generation.entries
    ]
    warm = set(hot(rough, CANDIDATES * budget))
    entries = [one for one in generation.entries if one.path in warm]
    bodies = {one.path: tokens for one, tokens in zip(entries, _counted(documents(entries), count), strict=True)}
    shown = dict(zip(bodies, count([skeletons.get(path, "") for path in bodies]), strict=True))
    exact = [
        Heat(heat.path, max(0, bodies[heat.path] - shown[heat.path]), heat.churn, heat.centrality, heat.touched)
        for heat in rough
        if heat.path in bodies
    ]
    return hot(exact, budget)


def churn_of(histories: Sequence[History], clock: Callable[[], float] = time.monotonic) -> dict[str, int]:
    """Recent commits by path, of all roots that git keeps; empty where it does not, or answers too late.

    What a working tree's submodules hold counts by their own commits.
    """
    found: dict[str, int] = {}
    if not available():
        return found
    deadline = clock() + CHURN_SECONDS
    waiting = list(histories)
    while waiting and clock() <= deadline:
        history = waiting.pop()
        try:
            paths = _touched(history, lambda: clock() > deadline)
            waiting += _submodules(history, lambda: clock() > deadline)
        except (GitError, LoadCancelled):
            continue
        found |= Counter(joined(history.label, name_of(path)) for path in paths)
    return found


def _touched(history: History, late: Callable[[], bool]) -> list[str]:
    """Each path once for every recent commit that touched it."""
    below = () if history.revision else ("--relative",)
    found = Git(history.folder).records(
        *("log", "-z", "--format=", "--name-only", "--no-renames", *below, f"-n{CHURN_COMMITS}"),
        *(history.revision or "HEAD", "--"),
        cancelled=late,
    )
    return [path for record in found if (path := record.lstrip("\n"))]


def _submodules(history: History, late: Callable[[], bool]) -> list[History]:
    """Those that are checked out in a working tree; of a revision only their names are there."""
    if history.revision:
        return []
    staged = Git(history.folder).records("ls-files", "-z", "--stage", cancelled=late)
    places = (entry.partition("\t")[2] for entry in staged if entry.startswith(_SUBMODULE))
    return [
        History(joined(history.label, name_of(place)), history.folder / place, None)
        for place in places
        if has_repository(history.folder / place)
    ]


def _counted(documents: Sequence[Document], count: Count) -> list[int]:
    return count([one.text for one in documents])
