"""The laws of a pool, held against what its memory says: after each operation in tests, and while the engine is idle.

    reserved + evictable + leased ≤ cells
    every sequence is held once or spare; it ends where its holder ends, and has no hole

What is left of the cells is free: nothing is promised twice. A memory does not tell how many of its cells hold something;
that it is as many as the tree says follows from its sequences, and tests count it on the fake.

Raised, not asserted: the running engine must notice a broken law under `python -O` too.
"""

from collections.abc import Container, Iterable

from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.tree import Node

COUNTED = 1 << 18  # cells looked at in one idle moment, which then takes about 10 ms; whose turn it was not comes next


class LawBroken(Exception):
    """A fault of ours: the tree does not match the cells of its pool. The message says which law and where."""


def check(pool: Pool) -> None:
    """Raises LawBroken."""
    _check_tree(pool)
    _check_holes(pool, held_in(pool))


def _check_tree(pool: Pool) -> None:
    _hold(pool.free() >= 0, f"{-pool.free()} cells were promised twice")
    covered = _covered(pool)
    for node in pool.tree.nodes():
        _check_node(pool, node, covered)
    _check_sequences(pool)


def broken(pool: Pool, moment: int = 0) -> str:
    """Which law a pool breaks that nobody uses; empty where none. `moment`: number of this idle moment."""
    try:
        _hold(pool.idle() and pool.tree.leased() == 0, "something is held that nobody uses")
        _check_tree(pool)
        _check_holes(pool, turn(sorted(held_in(pool)), max(1, COUNTED // pool.memory.cells), moment))
    except LawBroken as law:
        return str(law)
    return ""


def _covered(pool: Pool) -> set[Node]:
    """Nodes whose cells a sequence holds, at them or below. Each is looked at once: a chain may be thousands deep."""
    covered = set[Node]()
    for holder in pool.tree.nodes():
        node = holder if holder.sequence is not None else None
        while node is not None and node not in covered:
            covered.add(node)
            node = node.parent
    return covered


def _check_node(pool: Pool, node: Node, covered: Container[Node]) -> None:
    above, root = node.parent, pool.tree.root
    if above is None or node.start != above.end:
        raise LawBroken(f"a gap before {node.start}")
    _hold(0 <= node.computed <= len(node.ids), f"more cells than tokens at {node.start}")
    _hold(node.computed == 0 or above is root or above.complete, f"cells below a hole at {node.start}")
    _hold(node.computed == 0 or node in covered, f"cells that nothing covers at {node.start}")
    _hold(node.computed == 0 or pool.tree.ranges or node.sequence is not None, f"no anchor at {node.end}")
    _hold(node.ref_count <= above.ref_count or above is root, f"a lease that skips the node at {above.start}")
    _hold(node.ref_count > 0 or node.complete, f"promised tokens at {node.computed_end} that nobody waits for")


def _check_sequences(pool: Pool) -> None:
    held = held_in(pool)
    spare = pool.tree.spare_sequences()
    holders = sum(node.sequence is not None for node in pool.tree.nodes())
    _hold(holders == len(held), "a sequence is held twice")
    _hold(sorted([*held, *spare]) == list(range(pool.scratch)), "a sequence is lost")
    for sequence, node in held.items():
        length = pool.memory.length(sequence)
        _hold(length == node.computed_end, f"sequence {sequence} ends at {length}, its node at {node.computed_end}")
    for sequence in (*spare, pool.scratch):
        _hold(pool.memory.length(sequence) == 0, f"the spare sequence {sequence} holds cells")


def held_in(pool: Pool) -> dict[int, Node]:
    """Sequences and who holds them."""
    return {node.sequence: node for node in pool.tree.nodes() if node.sequence is not None}


def turn(sequences: list[int], most: int, moment: int) -> list[int]:
    """Those whose turn it is: each comes once in as many moments as it takes."""
    start = moment * most % max(1, len(sequences))
    return (sequences[start:] + sequences[:start])[:most]


def _check_holes(pool: Pool, sequences: Iterable[int]) -> None:
    for sequence in sequences:
        cells, length = pool.memory.count(sequence), pool.memory.length(sequence)
        _hold(cells == length, f"sequence {sequence} has {cells} cells and ends at {length}")


def _hold(law: bool, broken: str) -> None:
    if not law:
        raise LawBroken(broken)
