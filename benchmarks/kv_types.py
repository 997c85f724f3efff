"""What types of keys and values change of a model's predictions on a text that it is given.

The reference is f16 in steps of 64 rows, whose attention llama.cpp sums in single precision. In a shorter step, as each of
an answer is, it sums f16 values in half precision, so f16 is compared with itself too: that is what rounding is worth.
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orchestrator.engine.backend import Run
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.llama.memory import LlamaMemory
from orchestrator.engine.model import EngineSpec

ROWS, SHORT = 64, 32  # of a step: as many as may have logits, and too few for attention in tiles
Numbers = NDArray[np.float32]
Changed = NDArray[np.bool_]


@dataclass(frozen=True)
class Change:
    """`mean` and `worst` (99th percentile): Kullback-Leibler divergence in nats a token; `changed`: share of places with
    another likeliest token."""

    mean: float
    worst: float
    changed: float


def changes(model: Path, ids: Sequence[int], types: Sequence[str], threads: int) -> list[Change]:
    """Of each type in short steps, against the reference."""
    with ExitStack() as undo:
        reference, *others = (opened(model, kind, len(ids), threads, undo) for kind in ("f16", *types))
        steps = [compared(reference, others, ids, start) for start in range(0, len(ids), ROWS)]
    return [change_of(*map(np.concatenate, zip(*one, strict=True))) for one in zip(*steps, strict=True)]


def opened(model: Path, kind: str, cells: int, threads: int, undo: ExitStack) -> LlamaMemory:
    spec = EngineSpec(str(model), threads=threads, flash_attention=True, kv_type_k=kind, kv_type_v=kind)
    backend = undo.enter_context(closing(LlamaBackend(spec)))
    return undo.enter_context(closing(backend.open(cells, 1)))


def compared(
    reference: LlamaMemory, others: Sequence[LlamaMemory], ids: Sequence[int], start: int
) -> list[tuple[Numbers, Changed]]:
    """Of each other memory: the divergence of each row from `start` on, and whether its likeliest token is another."""
    tokens = ids[start : start + ROWS]
    exact = predicted(reference, tokens, start, ROWS)
    found = (predicted(memory, tokens, start, SHORT) for memory in others)
    return [(divergence(exact, other), exact.argmax(1) != other.argmax(1)) for other in found]


def predicted(memory: LlamaMemory, tokens: Sequence[int], start: int, rows: int) -> Numbers:
    """Log-probabilities behind each token, a row each, in steps of so many."""
    found = list[Numbers]()
    for first in range(0, len(tokens), rows):
        step = tokens[first : first + rows]
        memory.decode([Run(0, at, [token], output=True) for at, token in enumerate(step, start + first)])
        found += [log_softmax(memory.logits(row)) for row in range(len(step))]
    return np.stack(found)


def log_softmax(logits: Numbers) -> Numbers:
    shifted = logits - logits.max()
    found: Numbers = shifted - np.log(np.exp(shifted).sum(dtype=np.float64)).astype(np.float32)
    return found


def divergence(reference: Numbers, other: Numbers) -> Numbers:
    """KL(reference ‖ other) of each row, from log-probabilities; rounding may make it less than 0, which it never is."""
    found: Numbers = (np.exp(reference) * (reference - other)).sum(1)
    return np.maximum(found, 0)


def change_of(divergences: Numbers, changed: Changed) -> Change:
    return Change(float(divergences.mean()), float(np.percentile(divergences, 99)), float(changed.mean()))
