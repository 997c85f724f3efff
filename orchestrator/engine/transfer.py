"""Moving a pool's cells between contexts, and single ranges in and out of one.

A range is copied to the scratch sequence, saved from there, and restored the same way: llama.cpp then carries only the
range's cells. What lies silently is checked: after each restore the number of cells must be the range's length.
"""

from collections.abc import Callable

from orchestrator.engine.backend import BackendError, Memory
from orchestrator.engine.node import Node
from orchestrator.engine.pools import Pool


def save_range(pool: Pool, node: Node) -> bytes:
    """The state of a node's filled cells. Leaves the pool as it was."""
    memory = pool.memory
    memory.copy(pool.tree.covering(node), pool.scratch, node.start, node.stands)
    try:
        return memory.save(pool.scratch)
    finally:
        memory.remove(pool.scratch, 0, -1)


def restore_range(
    memory: Memory, scratch: int, state: bytes, length: int, wanted: tuple[int, int], into: list[int]
) -> bool:
    """Loads a state of `length` cells and makes `into` members of those in the half-open range `wanted`.

    False, with nothing left behind, when as many cells do not stand afterwards.
    """
    stands = memory.restore(scratch, state)
    if stands == length:
        for sequence in into:
            memory.copy(scratch, sequence, *wanted)
    memory.remove(scratch, 0, -1)
    return stands == length


def move(pool: Pool, open_memory: Callable[[], Memory]) -> None:
    """Re-creates a pool's context, through host memory, because both sizes need not fit at once."""
    kept = [(node, save_range(pool, node)) for node in pool.tree.nodes() if node.filled]
    pool.memory.close()
    pool.memory = open_memory()
    pool.tree.rebind(pool.memory)
    for node, state in kept:
        wanted = (node.start, node.stands)
        if not restore_range(pool.memory, pool.scratch, state, node.filled, wanted, pool.tree.members(node)):
            raise BackendError(f"a range of {node.filled} cells did not survive its move")
