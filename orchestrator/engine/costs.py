"""What a step costs on this machine, learned from every step that it runs.

    milliseconds = step + row · rows + tiled · rows in full tiles · cells + loose · other rows · cells

Every query walks all used cells of its pool; rows in full tiles of flash attention walk them far cheaper on a CPU
(64 rows at 8,158 cells: 141 ms, 63 rows: 1,708 ms). Recursive least squares with slow forgetting, starting from those
figures, so that the very first plan is sensible and a thermally throttled afternoon is followed. Knows no tickets.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float64]

# Measured on two cores with a model of 147 MB and 4 KiB of KV a token; the scale is corrected within a few steps.
PRIOR = np.array([8.0, 1.0, 1.2e-4, 3.3e-3])
_SCALE = np.array([10.0, 1.0, 1e-4, 1e-3])  # brings the four unknowns to the same order of magnitude
_FORGET = 0.995


@dataclass
class Costs:
    """One model on one machine. `tile` is the backend's; 1 means that no row is cheaper than another."""

    tile: int
    weights: Weights = field(default_factory=lambda: PRIOR / _SCALE)
    spread: Weights = field(default_factory=lambda: np.eye(4) * 10.0)

    def milliseconds(self, rows: int, cells: int) -> float:
        """Predicted time of a step of `rows` tokens in a pool with `cells` used, never negative."""
        return max(0.05, float(self._features(rows, cells) @ self.weights))

    def learn(self, rows: int, cells: int, milliseconds: float) -> None:
        features = self._features(rows, cells)
        # Relative error: a step of 2 s must not drown what a hundred steps of 20 ms say.
        features, target = features / milliseconds, 1.0
        gain = self.spread @ features / (_FORGET + features @ self.spread @ features)
        self.weights = np.maximum(self.weights + gain * (target - features @ self.weights), 0.0)
        self.spread = (self.spread - np.outer(gain, features @ self.spread)) / _FORGET
        self.spread = np.clip(self.spread, -1e4, 1e4)

    def padding(self, rows: int, cells: int) -> int:
        """Rows of a scratch sequence that make this step sooner, 0 where they do not."""
        short = -rows % self.tile
        if not short or not rows:
            return 0
        return short if self.milliseconds(rows + short, cells) < self.milliseconds(rows, cells) else 0

    def chunk(self, beside: int, cells: int, wanted: int, most: int, budget_ms: float) -> int:
        """How many prompt tokens to compute beside `beside` answers within the budget: tiles where there are tiles."""
        size = min(wanted, most - beside)
        while size > self.tile and self._padded(beside + size, cells) > budget_ms:
            size = max(self.tile, size // 2)
        if size < wanted and self.tile > 1:
            size = max(1, (beside + size) // self.tile * self.tile - beside)
        return max(1, min(size, wanted))

    def _padded(self, rows: int, cells: int) -> float:
        return self.milliseconds(rows + self.padding(rows, cells), cells)

    def _features(self, rows: int, cells: int) -> Weights:
        full = rows // self.tile * self.tile
        features: Weights = np.array([1.0, rows, full * cells, (rows - full) * cells]) * _SCALE
        return features
