"""The prefix tree over a pool's cells: who holds which tokens, what a new prompt shares with them, what can be evicted.

    root ── floor [0, 8012) ──┬── alice's tail [8012, 8090) ─── her next turn [8090, 8301)
                              └── bob's tail   [8012, 8047)

A node is a half-open range of token positions and, as far as `computed`, of cells. A ticket holds a reference to each node
of its path. A sequence of llama.cpp covers a whole path from the root and is held by the node at its tip; nodes above are
covered by the sequences below them. So there are as many sequences as tips, and nothing is stored twice except what two
conversations computed separately.

Laws: a referenced node is never evicted; every computed node is covered by the sequence of a node at or below it; cells in
use are the sum of `computed`. This file knows no sampling, no time and no bytes.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from orchestrator.engine.backend import Memory
from orchestrator.engine.cache.eviction import retention_value
from orchestrator.engine.messages import Reuse
from orchestrator.engine.prefill_cost import UNSEEN, PrefillCost

Tokens: TypeAlias = "array[int]"


class NoSequence(Exception):
    """All sequences are held by leased tips."""


@dataclass(frozen=True)
class Boundary:
    """Between two segments of a path: the name of the segment that ends there, and the position."""

    parent: str
    start: int


@dataclass(eq=False, slots=True)
class Node:
    """Tokens [start, start + len(ids)) of a path. `owner` is a uid right of the floor, None where anyone may share."""

    parent: "Node | None"
    start: int
    ids: Tokens
    owner: int | None
    computed: int = 0
    ref_count: int = 0
    computed_by: int | None = None  # the ticket that computes it now
    sequence: int | None = None
    used: int = 0  # clock of the last lease or release
    gone: bool = False  # evicted
    saved_end: int = 0  # position up to which its cells need not be saved before they are freed
    boundary: Boundary | None = None  # the last one at or before its start, once its path was named
    children: list["Node"] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.ids)

    @property
    def computed_end(self) -> int:
        """Position up to which this path has cells, when all nodes above are complete."""
        return self.start + self.computed

    @property
    def complete(self) -> bool:
        return self.computed == len(self.ids)

    @property
    def begins_tail(self) -> bool:
        """Whether it is right behind the floor, where all conversations of its owner begin."""
        return self.owner is not None and self.parent is not None and self.parent.owner is None

    def path(self) -> list["Node"]:
        """From below the root down to this node."""
        up: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            up.append(node)
            node = node.parent
        return up[::-1]


def common_prefix(ids: Tokens, other: Tokens, offset: int) -> int:
    """How many leading tokens of `ids` equal `other` from `offset` on. Slices compare in C; the rest is a bisection."""
    most = min(len(ids), len(other) - offset)
    if most <= 0 or ids[0] != other[offset]:
        return 0
    if ids[:most] == other[offset : offset + most]:
        return most
    low, high = 1, most  # the first `low` are equal, the first `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        if ids[low:middle] == other[offset + low : offset + middle]:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True)
class Path:
    """What names a prompt's segments."""

    ids: "array[int]"
    cut: int
    owner: int


@dataclass
class Restored:
    """What of one prompt came back from checkpoints, and the milliseconds that it took.

    `left`: tokens that are on disk and are computed, because that is sooner; None until it is decided.
    """

    parts: list[Reuse] = field(default_factory=list)
    milliseconds: float = 0.0
    left: int | None = None

    def add(self, part: Reuse, seconds: float) -> None:
        self.parts.append(part)
        self.milliseconds += seconds * 1000


@dataclass(frozen=True)
class Wanted:
    """A prompt of which [0, limit) may come back from disk; what did is noted in `restored`."""

    path: Path
    limit: int
    restored: Restored


def path_of(tip: Node) -> Path:
    """Ids, end of the floor and owner of the path down to a node."""
    ids, cut, owner = array("I"), None, 0
    for node in tip.path():
        if node.owner is not None and cut is None:
            cut, owner = node.start, node.owner
        ids.extend(node.ids)
    return Path(ids, len(ids) if cut is None else cut, owner)


def deepest(tip: Node) -> Node:
    """The deepest node of the path that has cells: a sequence that covers it covers all above."""
    node = tip
    while not node.computed and node.parent is not None and node.parent.parent is not None:
        node = node.parent
    return node


class Tree:
    """One pool's tree. `sequences` are the numbers it may hand out; `cells` does what it decides, and may be
    replaced by a memory that holds the same.

    `on_evict` sees a node before its cells go; `prefill_cost` is what a prompt token costs, as known now.
    """

    ranges = True  # whether the memory can be cut anywhere

    def __init__(
        self,
        cells: Memory,
        sequences: range,
        on_evict: Callable[[Node], None] = lambda _: None,
        prefill_cost: Callable[[], PrefillCost] = lambda: UNSEEN,
    ) -> None:
        self.root = Node(None, 0, array("I"), None)
        self.cells = cells
        self._on_evict = on_evict
        self._prefill_cost = prefill_cost
        self._spare = list(reversed(sequences))
        self._clock = 0

    # -- looking

    def match(self, ids: Tokens, owner: int) -> tuple[Node, int]:
        """The deepest node that shares with `ids` and the length shared; cells of it may still be being computed.

        Equal siblings exist where two tickets computed the same: all are followed, and of two that lead as far the one that
        computed further wins.
        """
        best, stack = (self.root, 0), [(self.root, 0)]
        while stack:
            node, depth = stack.pop()
            if (depth, node.computed_end) > (best[1], best[0].computed_end):
                best = node, depth
            if depth < node.end:
                continue
            for child in node.children:
                common = common_prefix(child.ids, ids, depth) if child.owner in (None, owner) else 0
                if common:
                    stack.append((child, depth + common))
        return best

    def nodes(self) -> Iterator[Node]:
        stack = list(self.root.children)
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children)

    def spare_sequences(self) -> list[int]:
        return self._spare

    def members(self, node: Node) -> list[int]:
        """All sequences that hold the cells of `node`."""
        found, stack = [], [node]
        while stack:
            below = stack.pop()
            if below.sequence is not None:
                found.append(below.sequence)
            stack.extend(below.children)
        return found

    # -- leasing

    def lease(self, ids: Tokens, cut: int, owner: int, limit: int, marks: Sequence[int] = ()) -> Node:
        """Leases the path of `ids`, sharing at most `limit` tokens of it with what is there, and returns its tip.

        New nodes are made for what is not shared, cut at `cut` (the end of the floor): left of it anyone may share, right
        of it only `owner`. `marks`: positions behind it at which other prompts are likely to part from this one.
        """
        node = self._shared(ids[:limit], owner)
        for end in self._ends(node.end, cut, marks, len(ids)):
            node = self._add_node(node, ids[node.end : end], owner if end > cut else None)
        self._count(node, +1)
        return node

    def _ends(self, shared: int, cut: int, marks: Sequence[int], length: int) -> list[int]:
        """Where the new nodes of a path end that is shared up to `shared`. Without marks: a node is split where need be."""
        del marks
        return [end for end in sorted({cut, length}) if end > shared]

    def use(self, tip: Node) -> None:
        """A path is used now: all others are older by one use. Who only asks for room each round uses nothing."""
        self._clock += 1
        for node in tip.path():
            node.used = self._clock

    def _shared(self, ids: Tokens, owner: int) -> Node:
        """The node at whose end the path of `ids` leaves what is there."""
        node, depth = self.match(ids, owner)
        return self._split(node, depth) if depth < node.end else node

    def release(self, ticket: int, tip: Node) -> None:
        """Gives a lease back, which is no use of its own. What was computed stays; what was only promised and nobody else
        waits for goes."""
        path = tip.path()
        self._count(tip, -1)
        for node in reversed(path):
            if node.computed_by == ticket:
                node.computed_by = None
            if node.ref_count == 0 and not node.complete:
                self._trim(node)

    def _count(self, tip: Node, by: int) -> None:
        for node in tip.path():
            node.ref_count += by
            assert node.ref_count >= 0

    def _add_node(self, parent: Node, ids: Tokens, owner: int | None) -> Node:
        node = Node(parent, parent.end, ids, owner)
        parent.children.append(node)
        return node

    def _split(self, node: Node, depth: int) -> Node:
        """Cuts a node in two at position `depth`; the upper part is new and is returned, the lower keeps its identity."""
        assert node.start < depth < node.end
        assert node.parent is not None
        at = depth - node.start
        upper = Node(node.parent, node.start, node.ids[:at], node.owner, min(node.computed, at), node.ref_count)
        upper.computed_by, upper.used = node.computed_by if not upper.complete else None, node.used
        upper.boundary, node.boundary = node.boundary, None
        upper.children = [node]
        siblings = node.parent.children
        siblings[siblings.index(node)] = upper
        node.parent, node.start, node.ids, node.computed = upper, depth, node.ids[at:], node.computed - upper.computed
        if node.computed == 0:
            # A sequence covers what is computed; below the first hole there is nothing for it to hold.
            upper.sequence, node.sequence = node.sequence, None
        return upper

    def _trim(self, node: Node) -> None:
        """Forgets the part of an unleased node that has no cells; all below it has none either."""
        node.children.clear()
        node.ids = node.ids[: node.computed]
        if node.computed == 0:
            self.evict(node)

    # -- computing

    def attach(self, node: Node) -> int:
        """A sequence that covers the path down to the computed part of `node` and is held by it."""
        if node.sequence is None:
            assert node.computed == 0, "a node with cells is covered from below or holds its sequence"
            node.sequence = self._sequence_for(node)
        return node.sequence

    def _sequence_for(self, node: Node) -> int:
        """That of the node above, taken over, or a spare one made a member of its path; tips are evicted to have one."""
        above = node.parent
        assert above is not None
        while not self._spare and above.sequence is None:
            self._evict_stalest()
        if above.sequence is not None:
            sequence, above.sequence = above.sequence, None
            return sequence
        sequence = self._spare.pop()
        if above is not self.root:
            self.cells.copy(self.covering(above), sequence, 0, above.end)
        return sequence

    def _evict_stalest(self) -> None:
        tip = self.stalest()
        if tip is None:
            raise NoSequence
        self.evict(tip)

    def covering(self, node: Node) -> int:
        """A sequence that holds all cells down to `node`."""
        members = self.members(node)
        assert members, f"node [{node.start}, {node.end}) is covered by no sequence"
        return members[0]

    def extend(self, tip: Node, token: int) -> Node:
        """Appends a generated token to a ticket's tip and returns the tip, a new one where others branched off there."""
        if tip.children:
            tip = self._add_node(tip, array("I"), tip.owner)
            tip.ref_count, tip.used = 1, self._clock
        tip.ids.append(token)
        return tip

    def insert(self, node: Node, ids: Tokens, owner: int | None) -> Node:
        """A referenced node below a complete one; its cells come from a checkpoint."""
        inserted = self._add_node(node, ids, owner)
        self._count(inserted, +1)
        self.use(inserted)
        return inserted

    # -- letting go

    def stalest(self) -> Node | None:
        """The unreferenced tip with the lowest retention value."""
        tips = [node for node in self.nodes() if node.ref_count == 0 and not node.children]
        prefill_cost = self._prefill_cost()
        return min(
            tips,
            key=lambda tip: retention_value(prefill_cost, tip.start, tip.computed_end, self._clock - tip.used),
            default=None,
        )

    def evict(self, tip: Node) -> int:
        """Frees a tip's cells and returns how many. Its sequence falls back to the node above, or becomes spare."""
        assert tip.ref_count == 0 and not tip.children and tip.parent is not None
        if tip.computed:
            self._on_evict(tip)
        tip.gone = True
        tip.parent.children.remove(tip)
        freed, sequence = tip.computed, tip.sequence
        if sequence is not None:
            tip.sequence = None
            self._fall_back(sequence, tip)
        return freed

    def _fall_back(self, sequence: int, tip: Node) -> None:
        above = tip.parent
        assert above is not None
        if above is not self.root and above.computed and not self.members(above):
            self.cells.remove(sequence, tip.start, -1)
            above.sequence = sequence
        else:
            self._drop(sequence)

    def _drop(self, sequence: int) -> None:
        self.cells.remove(sequence, 0, -1)
        self._spare.append(sequence)

    # -- counting

    def cells_used(self) -> int:
        """Cells that hold KV, leased or evictable; asked several times a step, so in one walk."""
        return sum(node.computed for node in self.nodes())

    def leased(self) -> int:
        return sum(node.computed for node in self.nodes() if node.ref_count)

    def evictable(self) -> int:
        return sum(node.computed for node in self.nodes() if not node.ref_count)

    def promised(self) -> int:
        return sum(len(node.ids) - node.computed for node in self.nodes())
