"""How large a pool's context is made. Pure."""

from orchestrator.engine.backend import Backend

ROUND = 256  # llama.cpp pads a context to a multiple of this
LEAST_ANCHORED = 3  # without ranges: what carries states, and for one answer its floor's state and its own


def rounded(cells: int) -> int:
    """Up to what llama.cpp makes of it."""
    return -(-cells // ROUND) * ROUND


def sequences_of(backend: Backend, sequences: int, batch: int) -> int:
    """That each pool has; `sequences` are the set ones. A step has a row for each answer that runs.

    Without ranges nobody would ever be let in with fewer than three.
    """
    return max(LEAST_ANCHORED if not backend.info.ranges else 2, min(sequences, batch))
