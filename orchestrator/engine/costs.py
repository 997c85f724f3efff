"""What a step costs on this machine, learned from every step that it runs.

    milliseconds = step + row · rows + walk · cells + pair · rows · cells

Every query attends to all used cells of its pool. The terms minimise the squared relative error over recent steps of
each kind, and start from a prior, so that the first plan is sensible and a throttled machine is followed.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

# Measured on two cores with a model of 147 MB and 4 KiB of KV a token; the scale is corrected within a few steps. The first
# steps must not be predicted as shorter than they are: of two measured costs of a row and a cell it is the larger one.
PRIOR = np.array([8.0, 1.0, 1e-3, 4e-4])
TERMS = len(PRIOR)
FORGET = 0.98  # of what was seen of a kind of step, with each further one of that kind
TRUST = 1e-3  # in the prior, against one step seen
FEW = 4  # rows: a step of running answers
FEWEST = 8  # prompt tokens of a step, whatever they take: a prefill must come to its end
SURPRISE = 0.1  # of a prediction's error: the curve is fitted anew before the next prompt is cut by it
MANY = 1 << 20  # cells, where nothing but their walk counts
PATIENCE = 16  # steps before it is fitted anew in any case: fitting takes 0.1 ms


Kinds = dict[str, list[list[float]]]


@dataclass
class Seen:
    """What steps of one kind said: the normal equations, which forget by themselves."""

    matrix: Vector = field(default_factory=lambda: np.zeros((TERMS, TERMS)))
    target: Vector = field(default_factory=lambda: np.zeros(TERMS))

    def add(self, features: Vector) -> None:
        """Features are divided by the time they took, so that each step counts by its relative error."""
        self.matrix = FORGET * self.matrix + np.outer(features, features)
        self.target = FORGET * self.target + features


@dataclass
class Costs:
    """One model on one machine."""

    _curve: tuple[float, ...] = tuple(PRIOR.tolist())  # milliseconds by term
    _seen: dict[str, Seen] = field(default_factory=dict)
    _unread: list[tuple[int, int, float]] = field(default_factory=list)  # rows, cells, milliseconds since it was fitted
    _surprised: bool = False  # by one of them

    def milliseconds(self, rows: int, cells: int) -> float:
        """Predicted time of a step of `rows` tokens in a pool with `cells` used; never less than 20 µs."""
        step, row, walk, pair = self._curve
        return max(0.02, step + row * rows + (walk + pair * rows) * cells)

    def per_token(self, batch: int) -> tuple[float, float]:
        """Milliseconds of one prompt token in a full step of a pool without cells, and what each cell there adds."""
        empty, walked = self.milliseconds(batch, 0), self.milliseconds(batch, MANY)
        return empty / batch, (walked - empty) / batch / MANY

    def learn(self, rows: int, cells: int, milliseconds: float) -> None:
        self._unread.append((rows, cells, milliseconds))
        self._surprised |= abs(self.milliseconds(rows, cells) / milliseconds - 1) > SURPRISE
        if len(self._unread) >= PATIENCE:
            self._fit()

    def kept(self) -> Kinds:
        """What was learned, for a file; `resume` takes it up again."""
        self._read()
        return {kind: [*seen.matrix.tolist(), seen.target.tolist()] for kind, seen in self._seen.items()}

    def resume(self, kept: Kinds) -> None:
        """Goes on from what an earlier process learned. Raises ValueError for what is not that."""
        found = {kind: np.array(rows, np.float64) for kind, rows in kept.items()}
        if any(rows.shape != (TERMS + 1, TERMS) or not np.isfinite(rows).all() for rows in found.values()):
            raise ValueError("these are no costs")
        self._seen = {kind: Seen(rows[:TERMS].copy(), rows[TERMS].copy()) for kind, rows in found.items()}
        self._fit()

    def chunk(self, beside: int, cells: int, wanted: int, most: int, budget_ms: float) -> int:
        """How many prompt tokens to compute beside `beside` answers within the budget; a few in any case.

        `most`: rows that the backend takes at once.
        """
        if self._surprised:
            self._fit()
        size = min(wanted, most - beside)
        while size > FEWEST and self.milliseconds(beside + size, cells) > budget_ms:
            size //= 2
        return max(1, size)

    def _features(self, rows: int, cells: int) -> Vector:
        """In units of the prior's milliseconds."""
        features: Vector = np.array([1.0, rows, cells, rows * cells]) * PRIOR
        return features

    def _read(self) -> None:
        """Many at once: one by one, in the cold cache behind each step, this was a tenth of all that a step takes beside
        llama.cpp."""
        for rows, cells, milliseconds in self._unread:
            self._seen.setdefault(self._kind(rows), Seen()).add(self._features(rows, cells) / milliseconds)
        self._unread.clear()

    def _kind(self, rows: int) -> str:
        """Kinds are forgotten apart: a long answer must not wash out what prefills cost."""
        return "answers" if rows <= FEW else "prompts"

    def _fit(self) -> None:
        """The weights that fit best, none negative: what comes out negative is set to 0 and the rest solved again."""
        self._read()
        matrix = sum((seen.matrix for seen in self._seen.values()), TRUST * np.eye(TERMS))
        target = sum((seen.target for seen in self._seen.values()), TRUST * np.ones(TERMS))
        weights, free = np.zeros(TERMS), np.ones(TERMS, bool)
        while free.any():
            found = np.linalg.solve(matrix[np.ix_(free, free)], target[free])
            if (found >= 0).all():
                weights[free] = found
                break
            free[np.flatnonzero(free)[found < 0]] = False
        self._curve, self._surprised = tuple((PRIOR * weights).tolist()), False
