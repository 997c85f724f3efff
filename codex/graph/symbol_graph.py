"""The symbol graph: chunks, and what leads from one to another.

    reference     a chunk uses a name that another one defines        both ways, the way back at half weight
    import        a file's head names a module                        to the head of that file
    containment   chunks of one definition, and a class and its methods

Expansion walks from hits to their neighbourhood within hops, and weighs it by personalised PageRank. Deterministic.
Built from an archive's chunks; kept as arrays (a million links take 20 MB).
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import rustworkx
from numpy.typing import NDArray

from codex.archive.archive import Match
from codex.archive.definitions import Place
from codex.graph.modules import Modules

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
    """The graph over these chunks: about two seconds for 100,000 of them."""
    nodes = gathered(chunks)
    links = np.concatenate([_references(nodes), _weighed(_imports(nodes), _IMPORT), _weighed(_within(nodes), _WITHIN)])
    back = links[links["one"] != links["other"]]
    there = np.empty_like(back)
    there["one"], there["other"], there["weight"] = back["other"], back["one"], back["weight"] * _BACK
    return _packed(nodes.places, np.concatenate([back, there]))


@dataclass(frozen=True)
class Nodes:
    """What links are made of, by the number of a chunk in the order of places. A name is its hash in this process: of
    a million chunks the texts of all names would take gigabytes.
    """

    places: tuple[Place, ...]
    symbols: tuple[str, ...]
    defined: tuple[NDArray[np.int64], NDArray[np.int64]]  # names, and which chunk defines each
    used: tuple[NDArray[np.int64], NDArray[np.int64]]  # names, and which chunk uses each
    imported: Mapping[str, Sequence[str]]  # what may be modules among what the head of each file uses


def gathered(chunks: Iterable[Match]) -> Nodes:
    """Reads the chunks one by one, in any order, and keeps none."""
    paths: dict[str, str] = {}  # one text for all chunks of a file
    places: list[Place] = []
    symbols: list[str] = []
    names, sizes, uses, used = array("q"), array("q"), array("q"), array("q")
    heads: dict[str, tuple[int, list[str]]] = {}
    for chunk in chunks:
        path, start = paths.setdefault(chunk.place.path, chunk.place.path), chunk.place.start
        places.append(Place(path, start, chunk.place.end))
        symbols.append(chunk.symbol)
        names.extend(map(hash, chunk.names))
        sizes.append(len(chunk.names))
        uses.extend(map(hash, chunk.references))
        used.append(len(chunk.references))
        if path not in heads or start < heads[path][0]:
            heads[path] = start, [name for name in chunk.references if not _MODULE.isdisjoint(name)]
    order = sorted(range(len(places)), key=places.__getitem__)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return Nodes(
        tuple(places[at] for at in order),
        tuple(symbols[at] for at in order),
        (_numbers(names), np.repeat(rank, _numbers(sizes))),
        (_numbers(uses), np.repeat(rank, _numbers(used))),
        {path: modules for path, (_, modules) in heads.items()},
    )


_MODULE = frozenset("./:")  # a module's name has one of these
_Link = np.dtype([("one", np.int64), ("other", np.int64), ("weight", np.float64)])
Links = NDArray[np.void]
"""Records of `_Link`: from one node to another, by their numbers."""


def _numbers(values: "array[int]") -> NDArray[np.int64]:
    return np.frombuffer(values, np.int64) if values else np.zeros(0, np.int64)


def _references(nodes: Nodes) -> Links:
    """Each use of a name with all that define it, at most so many; a chunk that defines the name itself means its own."""
    total = max(1, len(nodes.places))
    known, defined = np.unique(nodes.defined[0], return_inverse=True)
    definers = np.unique(defined * total + nodes.defined[1])
    at = np.searchsorted(known, nodes.used[0])
    there = at < len(known)
    there[there] = known[at[there]] == nodes.used[0][there]
    uses = at[there] * total + nodes.used[1][there]
    uses = uses[~np.isin(uses, definers)]
    counts = np.bincount(definers // total, minlength=len(known) + 1)
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


def _imports(nodes: Nodes) -> Iterator[tuple[int, int]]:
    """The head of a file with the heads of those that it imports, whose modules stand among its references."""
    heads: dict[str, int] = {}
    for at, place in enumerate(nodes.places):
        heads.setdefault(place.path, at)
    modules = Modules(heads)
    for path, at in heads.items():
        for name in nodes.imported[path]:
            for imported in modules.of(name, path):
                yield at, heads[imported]


def _within(nodes: Nodes) -> Iterator[tuple[int, int]]:
    """A definition cut in several chunks, a class and its methods: each with the first chunk of what holds it."""
    first: dict[tuple[str, str], int] = {}
    for at, (place, symbol) in enumerate(zip(nodes.places, nodes.symbols, strict=True)):
        parts = symbol.split(".") if symbol else []
        for depth in range(len(parts), 0, -1):
            holder = first.get((place.path, ".".join(parts[:depth])))
            if holder is not None:
                yield at, holder
                break
        if parts:
            first.setdefault((place.path, symbol), at)


def _weighed(pairs: Iterable[tuple[int, int]], weight: float) -> Links:
    return np.array([(one, other, weight) for one, other in pairs], _Link)


def _packed(places: tuple[Place, ...], links: Links) -> SymbolGraph:
    """Links of the same two nodes as one; of each node the strongest, the first among equals."""
    total = max(1, len(places))
    keys, same = np.unique(links["one"] * total + links["other"], return_inverse=True)
    weights = np.bincount(same, links["weight"], len(keys)).astype(np.float32)
    order = np.lexsort((keys % total, -weights, keys // total))
    owners = keys[order] // total
    counts = np.bincount(owners, minlength=len(places))
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = order[rank < _NEIGHBOURS]
    return SymbolGraph(
        places,
        {place: at for at, place in enumerate(places)},
        np.concatenate([[0], np.cumsum(np.minimum(counts, _NEIGHBOURS))]).astype(np.int64),
        (keys[kept] % total).astype(np.int32),
        weights[kept],
    )
