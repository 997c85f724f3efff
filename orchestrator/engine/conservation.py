"""The laws of a pool, held against what its memory says: after each operation in tests, and while the engine is idle.

    free + reserved + evictable + leased = cells; every sequence is held once or spare; it ends where its holder ends

Raised, not asserted: the running engine must notice a broken law under `python -O` too.
"""

from orchestrator.engine.node import Node
from orchestrator.engine.pools import Pool


class LawBroken(Exception):
    """A fault of ours: what the tree says of a pool is not what stands in it. The message says which law and where."""


def check(pool: Pool) -> None:
    """Raises LawBroken."""
    _hold(pool.free() >= 0, f"{-pool.free()} cells were promised twice")
    for node in pool.tree.nodes():
        _check_node(pool, node)
    _check_sequences(pool)


def broken(pool: Pool) -> str:
    """Which law a pool breaks that nobody uses; empty where none."""
    try:
        _hold(pool.idle() and pool.tree.leased() == 0, "something is held that nobody uses")
        check(pool)
    except LawBroken as law:
        return str(law)
    return ""


def _check_node(pool: Pool, node: Node) -> None:
    above, root = node.parent, pool.tree.root
    if above is None or node.start != above.end:
        raise LawBroken(f"a gap before {node.start}")
    _hold(0 <= node.filled <= len(node.ids), f"more cells than tokens at {node.start}")
    _hold(node.filled == 0 or above is root or above.whole, f"cells below a hole at {node.start}")
    _hold(node.filled == 0 or bool(pool.tree.members(node)), f"cells that nothing covers at {node.start}")
    _hold(node.filled == 0 or pool.tree.ranges or node.sequence is not None, f"no anchor at {node.end}")
    _hold(node.leases <= above.leases or above is root, f"a lease that skips the node at {above.start}")
    _hold(node.leases > 0 or node.whole, f"promised tokens at {node.stands} that nobody waits for")


def _check_sequences(pool: Pool) -> None:
    held = {node.sequence: node for node in pool.tree.nodes() if node.sequence is not None}
    spare = pool.tree.spare_sequences()
    holders = sum(node.sequence is not None for node in pool.tree.nodes())
    _hold(holders == len(held), "a sequence is held twice")
    _hold(sorted([*held, *spare]) == list(range(pool.scratch)), "a sequence is lost")
    for sequence, node in held.items():
        length = pool.memory.length(sequence)
        _hold(length == node.stands, f"sequence {sequence} ends at {length}, its node at {node.stands}")
    for sequence in (*spare, pool.scratch):
        _hold(pool.memory.length(sequence) == 0, f"the spare sequence {sequence} holds cells")


def _hold(law: bool, broken: str) -> None:
    if not law:
        raise LawBroken(broken)
