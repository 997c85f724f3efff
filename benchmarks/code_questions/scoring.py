"""Scores of a ranked list of files against the cited ones."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scores:
    """Shares from 0 to 1."""

    recall_5: float
    recall_10: float
    hit_1: float
    hit_10: float
    mrr: float

    def row(self) -> str:
        """As a line of a table."""
        values = (self.recall_5, self.recall_10, self.hit_1, self.hit_10, self.mrr)
        return "  ".join(f"{value:7.3f}" for value in values)


HEADER = "  ".join(f"{name:>7}" for name in ("R@5", "R@10", "Hit@1", "Hit@10", "MRR"))


def score(ranked: Sequence[str], cited: Collection[str]) -> Scores:
    """Scores of one question."""
    wanted = set(cited)
    first = next((rank for rank, path in enumerate(ranked, start=1) if path in wanted), None)
    within = {k: len(wanted & set(ranked[:k])) / len(wanted) for k in (5, 10)}
    return Scores(within[5], within[10], float(first == 1), float(within[10] > 0), 1 / first if first else 0.0)


def mean(scores: Sequence[Scores]) -> Scores:
    """Means over questions."""
    fields = ("recall_5", "recall_10", "hit_1", "hit_10", "mrr")
    return Scores(*(sum(getattr(one, name) for one in scores) / len(scores) for name in fields))
