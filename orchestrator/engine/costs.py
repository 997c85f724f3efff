"""What a step costs on this machine, learned from every step that it runs.

    milliseconds = step + row · rows + walk · cells + tiled · rows in full tiles · cells + loose · other rows · cells

Every query walks all used cells of its pool; rows in full tiles of flash attention walk them together, cheaper on a CPU
(on one machine 64 rows at 8,158 cells took 141 ms and 63 rows 1,708), at a price for the walk (`walk` where a tile is
full). Least squares of the relative error over what was seen lately of each kind of step, drawn to a prior, so that the
very first plan is sensible and a throttled afternoon is followed.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

# Measured on two cores with a model of 147 MB and 4 KiB of KV a token; the scale is corrected within a few steps. The first
# steps must not be taken for shorter than they are: of the two measured costs of a tiled row it is the larger one.
PRIOR = np.array([8.0, 1.0, 1e-3, 4e-4, 3.3e-3])
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
    """One model on one machine. `tile` is the backend's; 1 means that no row is cheaper than another."""

    tile: int
    _curve: tuple[float, ...] = tuple(PRIOR.tolist())  # milliseconds by term
    _seen: dict[str, Seen] = field(default_factory=dict)
    _unread: list[tuple[int, int, float]] = field(default_factory=list)  # rows, cells, milliseconds since it was fitted
    _surprised: bool = False  # by one of them

    def milliseconds(self, rows: int, cells: int) -> float:
        """Predicted time of a step of `rows` tokens in a pool with `cells` used; never less than 20 µs."""
        loose = rows % self.tile
        step, row, walk, tiled, other = self._curve
        return max(0.02, step + row * rows + (walk * (rows > loose) + tiled * (rows - loose) + other * loose) * cells)

    def per_token(self, batch: int) -> tuple[float, float]:
        """Milliseconds of one prompt token in a full step of a pool without cells, and what each cell there adds."""
        rows = max(1, batch // self.tile * self.tile)
        empty, walked = self.milliseconds(rows, 0), self.milliseconds(rows, MANY)
        return empty / rows, (walked - empty) / rows / MANY

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

    def padding(self, rows: int, cells: int, most: int) -> int:
        """Rows of a scratch sequence that make this step sooner, 0 where they do not, or where that was not seen yet.

        `most`: rows that the backend takes at once. Part of a tile makes nothing sooner.
        """
        short = -rows % self.tile
        if not short or not rows or rows + short > most:
            return 0
        if not {"loose", "tiles"} <= {*self._seen, *(self._kind(steps) for steps, _, _ in self._unread)}:
            return 0  # how much a tile saves differs by a factor of ten between CPUs: both kinds are tried first
        return short if self.milliseconds(rows + short, cells) < self.milliseconds(rows, cells) else 0

    def chunk(self, beside: int, cells: int, wanted: int, most: int, budget_ms: float) -> int:
        """How many prompt tokens to compute beside `beside` answers within the budget: tiles while one fits in it."""
        if self._surprised:
            self._fit()
        size = min(wanted, most - beside)
        if size < wanted:
            size = self._in_tiles(beside, size)
        while size > FEWEST and self._padded(beside + size, cells, most) > budget_ms:
            smaller = self._in_tiles(beside, size // 2)
            size = max(self.tile - beside, smaller) if beside + size > self.tile else smaller
        return max(1, size)

    def _in_tiles(self, beside: int, size: int) -> int:
        """So many tokens, or fewer, as fill whole tiles with what is beside them; as they are when they fill none."""
        whole = (beside + size) // self.tile * self.tile - beside
        return whole if whole > 0 else size

    def _padded(self, rows: int, cells: int, most: int) -> float:
        return self.milliseconds(rows + self.padding(rows, cells, most), cells)

    def _features(self, rows: int, cells: int) -> Vector:
        """In units of the prior's milliseconds."""
        loose = rows % self.tile
        features: Vector = np.array([1.0, rows, (rows > loose) * cells, (rows - loose) * cells, loose * cells]) * PRIOR
        return features

    def _read(self) -> None:
        """Many at once: one by one, in the cold cache behind each step, this was a tenth of all that a step takes beside
        llama.cpp."""
        for rows, cells, milliseconds in self._unread:
            self._seen.setdefault(self._kind(rows), Seen()).add(self._features(rows, cells) / milliseconds)
        self._unread.clear()

    def _kind(self, rows: int) -> str:
        """Kinds are forgotten apart: a long answer must not wash out what prefills cost."""
        return "answers" if rows <= FEW else "loose" if rows < self.tile else "tiles"

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
