"""Several trees under one name: a tree of trees, behind the same port. Does not know how they were found."""

from collections.abc import Mapping, Sequence

from codex.progress import Cancelled, never
from codex.trees.port import CandidateFile, FileBytes, FileTree, Scan, Skipped, TreeState


class Forest:
    """One tree alone is passed through unchanged. Each comes with the label that leads its files' names, '' for none."""

    def __init__(self, trees: Sequence[tuple[str, FileTree]]) -> None:
        self.trees = tuple(trees)
        self._alone = (
            trees[0][1] if len(trees) == 1 and not trees[0][0] else None
        )  # 100,000 names need no second writing

    def scan(self, cancelled: Cancelled = never) -> Scan:
        if self._alone is not None:
            return self._alone.scan(cancelled)
        candidates: list[CandidateFile] = []
        skipped: list[Skipped] = []
        notices: list[str] = []
        for number, (label, tree) in enumerate(self.trees):
            scan = tree.scan(cancelled)
            notices += scan.notices
            skipped += (Skipped(joined(label, one.path), one.reason) for one in scan.skipped)
            candidates += (
                CandidateFile(joined(label, one.path), f"{number}:{one.origin}", one.size, one.stamp)
                for one in scan.candidates
            )
        return Scan(tuple(candidates), tuple(skipped), tuple(notices))

    def read(self, candidate: CandidateFile) -> FileBytes:
        if self._alone is not None:
            return self._alone.read(candidate)
        number, _, origin = candidate.origin.partition(":")
        return self.trees[int(number)][1].read(CandidateFile(candidate.path, origin, candidate.size, candidate.stamp))

    def state(self) -> TreeState:
        """Of a single root its own state; several have no common branch, only a number of changed files."""
        states = [tree.state() for _, tree in self.trees]
        return states[0] if len(states) == 1 else TreeState(dirty=sum(one.dirty for one in states))

    def volatility(self, candidates: Sequence[CandidateFile]) -> Mapping[str, int]:
        if self._alone is not None:
            return self._alone.volatility(candidates)
        found: dict[str, int] = {}
        for number, (label, tree) in enumerate(self.trees):
            own = [_own(one, number, label) for one in candidates if one.origin.startswith(f"{number}:")]
            found |= {joined(label, path): steps for path, steps in tree.volatility(own).items()}
        return found

    def close(self) -> None:
        for _, tree in self.trees:
            tree.close()


def joined(label: str, path: str) -> str:
    """A file's name as the codex has it, from its name below the root of that label."""
    return f"{label}/{path}" if label else path


def _own(one: CandidateFile, number: int, label: str) -> CandidateFile:
    path = one.path.removeprefix(f"{label}/") if label else one.path
    return CandidateFile(path, one.origin.removeprefix(f"{number}:"), one.size, one.stamp)
