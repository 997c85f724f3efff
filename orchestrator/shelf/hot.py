"""Which files stand whole in a skeleton+hot floor: churn, centrality and what questions touched, frozen per generation."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from codex.documents import Document
from codex.errors import GitError, LoadCancelled
from codex.forest import Forest
from codex.generations import Entry, Generation
from codex.git import Git, available
from codex.tiers import Heat, hot
from codex.walk import DiskTree
from orchestrator.shelf.tiers import BYTES_PER_TOKEN

Count = Callable[[Sequence[str]], list[int]]
CANDIDATES = 3  # times the budget: so much is counted exactly, the rest is too cold
CHURN_COMMITS = 500
CHURN_SECONDS = 5.0  # a history on a slow disk: the hot subset then goes without it


def chosen(
    generation: Generation,
    skeletons: Mapping[str, str],
    ranks: Mapping[str, float],
    churn: Mapping[str, int],
    touched: Mapping[str, int],
    budget: int,
    count: Count,
    documents: Callable[[Sequence[Entry]], Sequence[Document]],
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


def churn_of(forest: Forest, clock: Callable[[], float] = time.monotonic) -> dict[str, int]:
    """Recent commits by path, of all roots that git keeps; empty where it does not, or answers too late."""
    found: dict[str, int] = {}
    if not available():
        return found
    deadline = clock() + CHURN_SECONDS
    for label, tree in forest.trees:
        if isinstance(tree, DiskTree):
            counts = _commits(tree.root, lambda: clock() > deadline)
            found |= {f"{label}/{path}" if label else path: number for path, number in counts.items()}
    return found


def _commits(root: Path, late: Callable[[], bool]) -> dict[str, int]:
    git = Git(root)
    arguments = (
        "log",
        "-z",
        "--format=",
        "--name-only",
        "--no-renames",
        "--relative",
        f"-n{CHURN_COMMITS}",
        "HEAD",
        "--",
    )
    try:
        out = git.run(*arguments, cancelled=late)
    except (GitError, LoadCancelled):
        return {}
    counts: dict[str, int] = {}
    for record in out.decode("utf-8", "surrogateescape").split("\0"):
        path = record.lstrip("\n")
        if path:
            counts[path] = counts.get(path, 0) + 1
    return counts


def _counted(documents: Sequence[Document], count: Count) -> list[int]:
    return count([one.text for one in documents])
