"""What work costs on this machine, learned from every step; and the time budget of a round.

    milliseconds of a step = step + row · rows + walk · cells + pair · rows · cells + head · outputs

Every query attends to all used cells of its pool. Outputs are rows whose logits are wanted, as each of an answer's: with a
large vocabulary and few parameters such a row costs twice one of a prompt. The terms minimise the squared relative error
over recent steps of each kind. They start from a prior, so that the first plan is sensible and a throttled machine is
followed.

`CostFile` keeps them beside the checkpoints of the same model and settings. Each way to compute has a file; the few files
used last are kept.

A `TimeBudget` is one deadline for the restores, evictions and moves of a round:

    restore a segment ┐
    save an evicted   ├─ each piece asks first ─▶ time is left: done ─▶ spent: OutOfTime; the next round goes on
    open a context    ┘

The first piece of a round is always granted, so that every restore ends; a round overruns by at most one piece.
"""

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orchestrator.engine.model import EngineSpec, ModelInfo, used
from orchestrator.engine.prefill_cost import PrefillCost

Vector = NDArray[np.float64]
# Measured on two cores with a model of 147 MB and 4 KiB of KV a token; the scale is corrected within a few steps. The first
# steps must not be predicted as shorter than they are: of two measured costs of a row and a cell it is the larger one.
PRIOR = np.array([8.0, 1.0, 1e-3, 4e-4, 1.0])
TERMS = len(PRIOR)
FORGET = 0.98  # of what was seen of a kind of step, with each further one of that kind
TRUST = 1e-3  # in the prior, against one step seen
FEW = 4  # rows: a step of running answers
FEWEST = 8  # prompt tokens of a step, whatever they take: a prefill must come to its end
SURPRISE = 0.1  # of a prediction's error: the curve is fitted anew before the next prompt is cut by it
MANY = 1 << 20  # cells, where nothing but their walk counts
PATIENCE = 16  # steps before it is fitted anew in any case: fitting takes 0.1 ms
# Steps by whose predictions two curves are compared: of an answer and of a prompt, as rows, used cells and outputs.
PROBES = ((1, 0, 1), (1, 8192, 1), (512, 0, 0), (512, 8192, 0))
MATERIAL = 0.25  # of a prediction; steps of one kind differ by a tenth anyway
PREFIX = "costs-"
KEPT = 32  # files; each has a few kilobytes
Kinds = dict[str, list[list[float]]]
log = logging.getLogger("lorekeep.engine")


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
    # Rows, cells, outputs, milliseconds since it was fitted.
    _unread: list[tuple[int, int, int, float]] = field(default_factory=list)
    _surprised: bool = False  # by one of them
    _row_ms: float = 0.0  # the most that a row of answers took, with its share of its step

    def milliseconds(self, rows: int, cells: int, outputs: int = 0) -> float:
        """Predicted time of a step of `rows` tokens in a pool with `cells` used; never less than 20 µs."""
        step, row, walk, pair, head = self._curve
        return max(0.02, step + row * rows + (walk + pair * rows) * cells + head * outputs)

    def prefill(self, batch: int, outputs: int = 0) -> PrefillCost:
        """Of one token in full steps of `batch` rows."""
        empty, walked = self.milliseconds(batch, 0, outputs), self.milliseconds(batch, MANY, outputs)
        return PrefillCost(empty / batch, (walked - empty) / batch / MANY)

    def learn(self, rows: int, cells: int, milliseconds: float, outputs: int = 0) -> None:
        if rows <= FEW:
            self._row_ms = max(self._row_ms, milliseconds / rows)
        self._unread.append((rows, cells, outputs, milliseconds))
        self._surprised |= abs(self.milliseconds(rows, cells, outputs) / milliseconds - 1) > SURPRISE
        if len(self._unread) >= PATIENCE:
            self._fit()

    def learned(self) -> Kinds:
        """For a file; `resume` continues from it."""
        self._read()
        return {kind: [*seen.matrix.tolist(), seen.target.tolist()] for kind, seen in self._seen.items()}

    def resume(self, learned: Kinds) -> None:
        """Continues from what an earlier process learned. Raises ValueError for what is not that."""
        found = {kind: np.array(rows, np.float64) for kind, rows in learned.items()}
        if any(rows.shape != (TERMS + 1, TERMS) or not np.isfinite(rows).all() for rows in found.values()):
            raise ValueError("these are no costs")
        self._seen = {kind: Seen(rows[:TERMS].copy(), rows[TERMS].copy()) for kind, rows in found.items()}
        self._fit()

    def chunk(
        self, beside: int, cells: int, wanted: int, most: int, budget_ms: float, *, outputs: int | None = None
    ) -> int:
        """How many prompt tokens to compute beside so many rows within the budget; a few in any case.

        `most`: rows that the backend takes at once. `outputs`: of the rows beside, all where it is not said. While answers
        alone were seen nobody knows what a row adds to a step: no more than what it took of a step of answers. One that was
        seen weighs too little against the prior to tell.
        """
        if self._surprised:
            self._fit()
        row_ms = self._row_ms if self._kinds() == {"answers"} else 0.0
        outputs = beside if outputs is None else outputs
        size = min(wanted, most - beside)
        while size > FEWEST and budget_ms < max(
            self.milliseconds(beside + size, cells, outputs), row_ms * (beside + size)
        ):
            size //= 2
        return max(1, size)

    @property
    def known(self) -> bool:
        """Whether a prompt was seen, here or by an earlier process."""
        return "prompts" in self._kinds()

    def _kinds(self) -> set[str]:
        """Of the steps that were seen."""
        return {*self._seen, *(self._kind(rows) for rows, *_ in self._unread)}

    def _features(self, rows: int, cells: int, outputs: int) -> Vector:
        """In units of the prior's milliseconds."""
        features: Vector = np.array([1.0, rows, cells, rows * cells, outputs]) * PRIOR
        return features

    def _read(self) -> None:
        """Many at once: one by one, in the cold cache behind each step, this was a tenth of all that a step takes beside
        llama.cpp."""
        for rows, cells, outputs, milliseconds in self._unread:
            self._seen.setdefault(self._kind(rows), Seen()).add(self._features(rows, cells, outputs) / milliseconds)
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


class OutOfTime(Exception):
    """This round has no time for another piece. What was done stays done; whoever is told asks again in the next round."""


class TimeBudget:
    """`clock` gives seconds; a piece is granted that ends by `until` of it if it takes as long as the one before."""

    def __init__(self, clock: Callable[[], float], until: float) -> None:
        self._clock = clock
        self._until = until
        self.taken = False
        self._began = 0.0  # the last piece

    def left(self) -> bool:
        """Whether another piece would be granted."""
        now = self._clock()
        return not self.taken or now + (now - self._began) < self._until

    def take(self) -> None:
        """Raises OutOfTime."""
        if not self.left():
            raise OutOfTime
        self.taken, self._began = True, self._clock()


def endless() -> TimeBudget:
    """For what has to be done now, or where nobody is answered."""
    return TimeBudget(lambda: 0.0, math.inf)


def cost_path(info: ModelInfo, spec: EngineSpec) -> Path | None:
    """A file for each way to compute: the fingerprint covers model, KV types and attention, the rest is where it runs."""
    if not spec.cache_folder:
        return None
    place = [spec.threads, info.device, info.gpu_layers, spec.split_mode, spec.tensor_split, spec.main_gpu]
    name = hashlib.sha256(repr(place).encode()).hexdigest()[:12]
    return Path(spec.cache_folder) / f"{PREFIX}{info.fingerprint[:32]}-{name}"


class CostFile:
    """What `costs` knows, in a file, from which it continues at once. Without a `path` nothing is saved."""

    def __init__(self, costs: Costs, path: Path | None) -> None:
        self._costs, self._path = costs, path
        if path is not None:
            self._resume(path)
            sweep(path)
        self._saved = predictions(costs)

    def _resume(self, path: Path) -> None:
        """With a missing or damaged file the costs are learned anew."""
        try:
            self._costs.resume(checked(path.read_bytes()))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.warning("%s is not usable, costs are learned anew: %s", path, error)

    def save_changes(self) -> None:
        """Writes what changed materially since the last time, so that a process that is killed leaves it; else nothing."""
        if any(abs(now / then - 1) > MATERIAL for now, then in zip(predictions(self._costs), self._saved, strict=True)):
            self.save()

    def save(self) -> None:
        """Writes the file whole or not at all; a full disk is no reason to fail."""
        # Noted before it is tried: a full disk is reported once for each change, not in each idle moment.
        self._saved = predictions(self._costs)
        if self._path is None:
            return
        temporary = self._path.with_suffix(".tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            content = json.dumps(self._costs.learned()).encode()
            temporary.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
            temporary.replace(self._path)
        except OSError as error:
            log.warning("the costs of steps were not saved: %s", error)


def predictions(costs: Costs) -> list[float]:
    """Milliseconds of the probes."""
    return [costs.milliseconds(*probe) for probe in PROBES]


def sweep(own: Path) -> None:
    """Deletes those of its folder that were not used for longest, `own` never; anybody may delete any of them."""
    with suppress(OSError):
        os.utime(own)  # a file is used by whoever starts with it, also where it then learns nothing new
    others = [path for path in own.parent.glob(f"{PREFIX}*") if path != own]
    for path in sorted(others, key=used, reverse=True)[KEPT - 1 :]:
        with suppress(OSError):
            path.unlink()


def checked(data: bytes) -> Kinds:
    """Raises ValueError where the checksum is not that of the rest: one figure that is off would misplan for long."""
    checksum, _, content = data.partition(b"\n")
    if checksum != hashlib.sha256(content).hexdigest().encode():
        raise ValueError("it is damaged")
    kinds: Kinds = json.loads(content)
    return kinds
