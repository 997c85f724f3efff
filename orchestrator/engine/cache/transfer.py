"""Moving a pool's cells between contexts, and single ranges in and out of one.

A range is copied to the scratch sequence, saved from there, and restored the same way: llama.cpp then carries only the
range's cells. What lies silently is checked: after each restore the number of cells must be the range's length, or, where
memory cannot be cut, end where the range does.
"""

from collections.abc import Callable

from orchestrator.engine.backend import BackendError, Memory
from orchestrator.engine.cache.node import Node
from orchestrator.engine.cache.pool import Pool


def save_range(pool: Pool, node: Node, start: int | None = None) -> bytes:
    """The state of a node's filled cells, or of its path's from `start` on. Leaves the pool as it was."""
    memory = pool.memory
    memory.copy(pool.tree.covering(node), pool.scratch, node.start if start is None else start, node.stands)
    try:
        return memory.save(pool.scratch)
    finally:
        memory.remove(pool.scratch, 0, -1)


def restore_range(
    memory: Memory, scratch: int, state: bytes, stands: int, wanted: tuple[int, int], into: list[int]
) -> bool:
    """Loads a state, after which `stands` is told, and makes `into` members of its cells in the half-open range `wanted`.

    False, with nothing left behind, when another number is told.
    """
    sound = memory.restore(scratch, state) == stands
    if sound:
        for sequence in into:
            memory.copy(scratch, sequence, *wanted)
    memory.remove(scratch, 0, -1)
    return sound


def move(pool: Pool, cells: int, open_memory: Callable[[int], Memory]) -> bool:
    """Re-creates a pool's context in another size, through host memory, because both sizes need not fit at once.

    Sequences keep their numbers, so running tickets go on. False when a context of that size cannot be had: then the pool
    has its former size again. Raises BackendError when that fails too, or a range does not survive.
    """
    kept = [(node, save_range(pool, node)) for node in pool.tree.nodes() if node.filled]
    former = pool.memory.cells
    pool.memory.close()
    try:
        memory, moved = open_memory(cells), True
    except BackendError:
        memory, moved = open_memory(former), False
    pool.rebind(memory)
    for node, state in kept:
        put_back(pool, node, state)
    return moved


def put_back(pool: Pool, node: Node, state: bytes) -> None:
    """Restores a node's cells behind those of the nodes above it. Raises BackendError when they do not stand afterwards."""
    memory, into = pool.memory, pool.tree.members(node)
    if pool.tree.ranges:
        stands = node.filled
    else:
        stands, into = node.stands, into[:1]
        above = node.parent
        if above is not None and above.sequence is not None:
            memory.copy(above.sequence, into[0], 0, above.end)
    if not restore_range(memory, pool.scratch, state, stands, (node.start, node.stands), into):
        raise BackendError(f"a range of {node.filled} cells did not survive its move")
