"""What types of keys and values change of a model's predictions on a text that it is given.

The reference is f16 in steps of 64 rows, whose attention llama.cpp sums in single precision. In a shorter step, as each of
an answer is, it sums f16 values in half precision, so f16 is compared with itself too: that is what rounding is worth.
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.llama.memory import LlamaMemory
from orchestrator.engine.messages import KvChange
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.scheduler.kv_measuring import Flags, Numbers, change_of, compared, predictions

ROWS, SHORT = 64, 32  # of a step: as many as may have logits, and too few for attention in tiles


def changes(model: Path, ids: Sequence[int], types: Sequence[str], threads: int) -> list[KvChange]:
    """Of each type in short steps, against the reference."""
    with ExitStack() as undo:
        reference, *others = (opened(model, kind, len(ids), threads, undo) for kind in ("f16", *types))
        steps = [of_step(reference, others, ids, start) for start in range(0, len(ids), ROWS)]
    return [change_of(one) for one in zip(*steps, strict=True)]


def opened(model: Path, kind: str, cells: int, threads: int, undo: ExitStack) -> LlamaMemory:
    spec = EngineSpec(str(model), threads=threads, flash_attention=True, kv_type_k=kind, kv_type_v=kind)
    backend = undo.enter_context(closing(LlamaBackend(spec)))
    return undo.enter_context(closing(backend.open(cells, 1)))


def of_step(
    reference: LlamaMemory, others: Sequence[LlamaMemory], ids: Sequence[int], start: int
) -> list[tuple[Numbers, Flags]]:
    """Of each other memory: the divergence of each row from `start` on, and whether its likeliest token is another."""
    tokens = ids[start : start + ROWS]
    exact = predictions(reference, tokens, start)
    return [compared(exact, predicted(memory, tokens, start, SHORT)) for memory in others]


def predicted(memory: LlamaMemory, tokens: Sequence[int], start: int, rows: int) -> Numbers:
    """Log-probabilities behind each token, a row each, in steps of so many."""
    steps = range(0, len(tokens), rows)
    return np.concatenate([predictions(memory, tokens[first : first + rows], start + first) for first in steps])
