"""The symbol graph: chunks, and what leads from one to another.

    reference     a chunk uses a name that another one defines        both ways, the way back at half weight
    import        a file's head names a module                        to the head of that file
    containment   chunks of one definition, and a class and its methods

Expansion walks from hits to their neighbourhood within hops, and weighs it by personalised PageRank. Deterministic.
Built from an archive's chunks; kept as arrays (a million links take 20 MB).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import rustworkx
from numpy.typing import NDArray

from codex.archive import Match
from codex.definitions import Place
from codex.modules import Modules

_DEFINERS = 5  # a name defined in more places leads nowhere
_BACK = 0.5
_WITHIN = 0.3
_IMPORT = 0.3
_NEIGHBOURS = 40  # of one chunk, the strongest: a helper used everywhere is not a neighbour of everything
_NODES = 1_500  # of a neighbourhood: PageRank over so many takes some milliseconds
_DAMPING = 0.6  # attention stays near the hits; 0.85 is for the whole web
_TOKENS_A_LINE = 10

Cost = Callable[[Place], int]


@dataclass(frozen=True)
class Neighbour:
    """A chunk near the hits. `weight` is its share of attention, `hops` its distance."""

    place: Place
    weight: float
    hops: int


@dataclass(frozen=True)
class SymbolGraph:
    """Chunks as nodes; the links of node i are `targets[starts[i]:starts[i + 1]]`, strongest first."""

    places: tuple[Place, ...]
    index: Mapping[Place, int]
    starts: NDArray[np.int64]
    targets: NDArray[np.int32]
    weights: NDArray[np.float32]

    @property
    def links(self) -> int:
        """Number of directed links."""
        return len(self.targets)

    def neighbours(self, place: Place) -> list[tuple[Place, float]]:
        """What a chunk leads to, strongest first; empty for one that is not in the graph."""
        at = self.index.get(place)
        if at is None:
            return []
        return [(self.places[target], weight) for target, weight in self._links_of(at)]

    def expand(
        self, seeds: Mapping[Place, float], *, hops: int = 2, tokens: int = 4_000, cost: Cost | None = None
    ) -> tuple[Neighbour, ...]:
        """The neighbourhood of the seeds without them: best first, within `hops`, as much as fits into `tokens`."""
        start = {self.index[place]: weight for place, weight in seeds.items() if place in self.index and weight > 0}
        reached = self._reached(start, hops)
        ranks = self._attention(start, list(reached))
        price = cost or estimated_tokens
        found: list[Neighbour] = []
        left = tokens
        for at in sorted(reached.keys() - start.keys(), key=lambda node: (-ranks[node], self.places[node])):
            needed = price(self.places[at])
            if needed <= left:
                left -= needed
                found.append(Neighbour(self.places[at], ranks[at], reached[at]))
        return tuple(found)

    def _reached(self, start: Mapping[int, float], hops: int) -> dict[int, int]:
        """Nodes by distance, nearest first, at most so many."""
        reached = dict.fromkeys(sorted(start, key=lambda node: (-start[node], node)), 0)
        edge = list(reached)
        for hop in range(1, hops + 1):
            following: list[int] = []
            for node in edge:
                for target, _ in self._links_of(node):
                    if target not in reached and len(reached) < _NODES:
                        reached[target] = hop
                        following.append(target)
            edge = following
        return reached

    def _attention(self, start: Mapping[int, float], nodes: list[int]) -> dict[int, float]:
        """Personalised PageRank within these nodes."""
        if not start:
            return {}
        local = {node: at for at, node in enumerate(nodes)}
        graph = rustworkx.PyDiGraph()
        graph.add_nodes_from(nodes)
        graph.add_edges_from(
            [
                (at, local[target], weight)
                for node, at in local.items()
                for target, weight in self._links_of(node)
                if target in local
            ]
        )
        personal = {local[node]: weight for node, weight in start.items()}
        ranks = rustworkx.pagerank(
            graph, alpha=_DAMPING, weight_fn=float, personalization=personal, tol=1e-5, max_iter=100
        )
        return {nodes[at]: rank for at, rank in ranks.items()}

    def _links_of(self, node: int) -> list[tuple[int, float]]:
        first, last = self.starts[node], self.starts[node + 1]
        return list(zip(self.targets[first:last].tolist(), self.weights[first:last].tolist(), strict=True))


def estimated_tokens(place: Place) -> int:
    """Tokens of a chunk when nobody counts: ten a line."""
    return (place.end - place.start + 1) * _TOKENS_A_LINE


def build_graph(chunks: Iterable[Match]) -> SymbolGraph:
    """The graph over these chunks: about a second for 100,000 of them."""
    nodes = sorted(chunks, key=lambda match: match.place)
    links = np.concatenate([_references(nodes), _weighed(_imports(nodes), _IMPORT), _weighed(_within(nodes), _WITHIN)])
    back = links[links["one"] != links["other"]]
    there = np.empty_like(back)
    there["one"], there["other"], there["weight"] = back["other"], back["one"], back["weight"] * _BACK
    return _packed(nodes, np.concatenate([back, there]))


_Link = np.dtype([("one", np.int64), ("other", np.int64), ("weight", np.float64)])
Links = NDArray[np.void]
"""Records of `_Link`: from one node to another, by their numbers."""


def _references(nodes: Sequence[Match]) -> Links:
    """Each use of a name with all that define it, at most so many; a chunk that defines the name itself means its own."""
    numbers: dict[str, int] = {}
    defined = [numbers.setdefault(name, len(numbers)) for node in nodes for name in node.names]
    used = [numbers.get(name, -1) for node in nodes for name in node.references]
    total = max(1, len(nodes))
    definers = np.unique(np.array(defined, np.int64) * total + _owners(node.names for node in nodes))
    uses = np.array(used, np.int64) * total + _owners(node.references for node in nodes)
    uses = uses[(uses >= 0) & ~np.isin(uses, definers)]
    counts = np.bincount(definers // total, minlength=len(numbers) + 1)
    first = np.cumsum(counts) - counts
    names, users = uses // total, uses % total
    telling = counts[names] <= _DEFINERS
    names, users = names[telling], users[telling]
    many = counts[names]
    links = np.empty(int(many.sum()), _Link)
    links["one"] = np.repeat(users, many)
    within = np.arange(len(links)) - np.repeat(np.cumsum(many) - many, many)
    links["other"] = (definers % total)[np.repeat(first[names], many) + within]
    links["weight"] = np.repeat(1 / many, many)
    return links


def _owners(groups: Iterable[Sequence[str]]) -> NDArray[np.int64]:
    """For each item of all groups, one behind the other, the number of its group."""
    sizes = [len(group) for group in groups]
    return np.repeat(np.arange(len(sizes)), sizes)


def _imports(nodes: Sequence[Match]) -> Iterator[tuple[int, int]]:
    """The head of a file with the heads of those that it imports, whose modules stand among its references."""
    heads: dict[str, int] = {}
    for at, node in enumerate(nodes):
        heads.setdefault(node.place.path, at)
    modules = Modules(heads)
    for path, at in heads.items():
        for name in nodes[at].references:
            if "." in name or "/" in name or ":" in name:
                for imported in modules.of(name, path):
                    yield at, heads[imported]


def _within(nodes: Sequence[Match]) -> Iterator[tuple[int, int]]:
    """A definition cut in several chunks, a class and its methods: each with the first chunk of what holds it."""
    first: dict[tuple[str, str], int] = {}
    for at, node in enumerate(nodes):
        parts = node.symbol.split(".") if node.symbol else []
        for depth in range(len(parts), 0, -1):
            holder = first.get((node.place.path, ".".join(parts[:depth])))
            if holder is not None:
                yield at, holder
                break
        if parts:
            first.setdefault((node.place.path, node.symbol), at)


def _weighed(pairs: Iterable[tuple[int, int]], weight: float) -> Links:
    return np.array([(one, other, weight) for one, other in pairs], _Link)


def _packed(nodes: Sequence[Match], links: Links) -> SymbolGraph:
    """Links of the same two nodes as one; of each node the strongest, the first among equals."""
    total = max(1, len(nodes))
    keys, same = np.unique(links["one"] * total + links["other"], return_inverse=True)
    weights = np.bincount(same, links["weight"], len(keys)).astype(np.float32)
    order = np.lexsort((keys % total, -weights, keys // total))
    owners = keys[order] // total
    counts = np.bincount(owners, minlength=len(nodes))
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = order[rank < _NEIGHBOURS]
    places = tuple(node.place for node in nodes)
    return SymbolGraph(
        places,
        {place: at for at, place in enumerate(places)},
        np.concatenate([[0], np.cumsum(np.minimum(counts, _NEIGHBOURS))]).astype(np.int64),
        (keys[kept] % total).astype(np.int32),
        weights[kept],
    )
