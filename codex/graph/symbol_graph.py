"""The symbol graph: chunks, and the links between them.

    reference     a chunk uses a name that another one defines        both ways, the way back at half weight
    import        a file's head names a module                        to the head of that file
    containment   chunks of one definition, and a class and its methods

Expansion walks a number of hops from the hits and weighs the neighbours by personalised PageRank. Deterministic.

Stored as arrays: places take 12 bytes each and the paths, a million links 20 MB. As objects a million places took 130 MB,
and the garbage collector visited each of them. A name is its hash in this process: for a million chunks the texts of all
names would take gigabytes. Large arrays are processed in slices, so that building takes little more memory than the
result.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codex.archive.queries import ChunkMatch, ChunkPlace
from codex.graph.modules import Modules

_NODES = 1_500  # of a neighbourhood: PageRank over so many takes some milliseconds
_DAMPING = 0.6  # attention stays near the hits; 0.85 is for the whole web
_TOKENS_A_LINE = 10  # estimated
_DEFINERS = 5  # a name defined in more places leads nowhere
_BACK = 0.5
_WITHIN = 0.3
_IMPORT = 0.3
_NEIGHBOURS = 40  # of one chunk, the strongest: a helper used everywhere is not a neighbour of everything
_USES_AT_ONCE = 1_000_000
_NODES_AT_ONCE = 100_000
_MODULE = frozenset("./:")  # a module's name has one of these
_Link = np.dtype([("one", np.int32), ("other", np.int32), ("weight", np.float32)])
Links = NDArray[np.void]
"""Records of `_Link`: from one node to another, by their numbers."""
Named = tuple[NDArray[np.int64], NDArray[np.int32]]
"""Hashes of names, and by which node each is defined or used."""


@dataclass(frozen=True)
class Neighbour:
    """A chunk near the hits. `weight` is its share of attention, `hops` its distance."""

    place: ChunkPlace
    weight: float
    hops: int


@dataclass(frozen=True, eq=False)
class Places:
    """Sorted by path, start and end. `paths` are sorted; `numbers`, `starts` and `ends` have one value a place."""

    paths: Sequence[str]
    numbers: NDArray[np.int32]
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: int) -> ChunkPlace:
        return ChunkPlace(self.paths[self.numbers[at]], int(self.starts[at]), int(self.ends[at]))

    def __iter__(self) -> Iterator[ChunkPlace]:
        return map(self.__getitem__, range(len(self)))

    def at(self, place: ChunkPlace) -> int | None:
        """The index of a place; None for one that is not in the graph."""
        number = bisect_left(self.paths, place.path)
        if number == len(self.paths) or self.paths[number] != place.path:
            return None
        first, last = np.searchsorted(self.numbers, [number, number + 1])
        within = np.flatnonzero((self.starts[first:last] == place.start) & (self.ends[first:last] == place.end))
        return int(first + within[0]) if len(within) else None

    def heads(self) -> NDArray[np.int64]:
        """The index of the first place of each path, in the order of paths."""
        return np.searchsorted(self.numbers, np.arange(len(self.paths)))


@dataclass(frozen=True)
class Packed:
    """The links of node i are `targets[starts[i]:starts[i + 1]]`, strongest first."""

    starts: NDArray[np.int64]
    targets: NDArray[np.int32]
    weights: NDArray[np.float32]


def packed(nodes: int, links: Links) -> Packed:
    """Both ways, links of the same two nodes as one; of each node the strongest, the first among equals."""
    parts = [_packed(first, min(nodes, first + _NODES_AT_ONCE), links) for first in range(0, nodes, _NODES_AT_ONCE)]
    if not parts:
        return Packed(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    counts, targets, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Packed(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), targets, weights)


@dataclass(frozen=True)
class SymbolGraph:
    """Chunks as nodes, and their links."""

    places: Places
    packed: Packed

    def neighbours(self, place: ChunkPlace) -> list[tuple[ChunkPlace, float]]:
        """What a chunk leads to, strongest first; empty for one that is not in the graph."""
        at = self.places.at(place)
        if at is None:
            return []
        return [(self.places[target], weight) for target, weight in self._links_of(at)]

    def expand(self, seeds: Mapping[ChunkPlace, float], *, hops: int = 2, tokens: int = 4_000) -> tuple[Neighbour, ...]:
        """The neighbourhood of the seeds without them: best first, within `hops`, as much as fits into `tokens`."""
        found_at = {self.places.at(place): weight for place, weight in seeds.items() if weight > 0}
        start = {at: weight for at, weight in found_at.items() if at is not None}
        reached = self._reached(start, hops)
        ranks = self._attention(start, list(reached))
        found: list[Neighbour] = []
        left = tokens
        for at in sorted(reached.keys() - start.keys(), key=lambda node: (-ranks[node], node)):
            place = self.places[at]
            needed = (place.end - place.start + 1) * _TOKENS_A_LINE
            if needed <= left:
                left -= needed
                found.append(Neighbour(place, ranks[at], reached[at]))
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
        import rustworkx

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
        links = self.packed
        first, last = links.starts[node], links.starts[node + 1]
        return list(zip(links.targets[first:last].tolist(), links.weights[first:last].tolist(), strict=True))


def build_graph(chunks: Iterable[ChunkMatch]) -> SymbolGraph:
    """The graph over these chunks, in any order: about two seconds for 100,000 of them."""
    nodes = gathered(chunks)
    return SymbolGraph(nodes.places, packed(len(nodes.places), links_of(nodes)))


def places_of(
    paths: Sequence[str], numbers: NDArray[np.int32], starts: NDArray[np.int32], ends: NDArray[np.int32]
) -> tuple[Places, NDArray[np.int64]]:
    """These places, given in any order with paths in any order, and which of the given ones each is."""
    by_name = sorted(range(len(paths)), key=paths.__getitem__)
    rank = np.empty(len(paths), np.int32)
    rank[by_name] = np.arange(len(paths), dtype=np.int32)
    ranked = rank[numbers]
    order = np.lexsort((ends, starts, ranked))
    return Places([paths[at] for at in by_name], ranked[order], starts[order], ends[order]), order


def _packed(first: int, last: int, links: Links) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Of the nodes from `first` to below `last`: how many links each has, and those."""
    there = links[(links["one"] >= first) & (links["one"] < last) & (links["one"] != links["other"])]
    back = links[(links["other"] >= first) & (links["other"] < last) & (links["one"] != links["other"])]
    owners = np.concatenate([there["one"], back["other"]]).astype(np.int64)
    targets = np.concatenate([there["other"], back["one"]])
    most = int(targets.max(initial=0)) + 1
    keys, same = np.unique(owners * most + targets, return_inverse=True)
    weights = np.bincount(same, np.concatenate([there["weight"], back["weight"] * _BACK]), len(keys)).astype(np.float32)
    order = np.lexsort((keys % most, -weights, keys // most))
    owners = keys[order] // most - first
    counts = np.bincount(owners, minlength=last - first)
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = order[rank < _NEIGHBOURS]
    return np.minimum(counts, _NEIGHBOURS), (keys[kept] % most).astype(np.int32), weights[kept]


@dataclass(frozen=True)
class Nodes:
    """What links are made of, by the number of a chunk in the order of places."""

    places: Places
    symbols: Sequence[str]
    defined: Named
    used: Named
    imported: Mapping[str, Sequence[str]]  # what may be modules among what the head of each file uses


def gathered(chunks: Iterable[ChunkMatch]) -> Nodes:
    """Reads the chunks one by one, in any order, and keeps none."""
    numbers: dict[str, int] = {}
    paths, starts, ends = array("i"), array("i"), array("i")
    symbols: list[str] = []
    names, sizes, uses, used = array("q"), array("i"), array("q"), array("i")
    heads: dict[str, tuple[int, list[str]]] = {}
    for chunk in chunks:
        path, start = chunk.place.path, chunk.place.start
        paths.append(numbers.setdefault(path, len(numbers)))
        starts.append(start)
        ends.append(chunk.place.end)
        symbols.append(chunk.symbol)
        names.extend(map(hash, chunk.names))
        sizes.append(len(chunk.names))
        uses.extend(map(hash, chunk.references))
        used.append(len(chunk.references))
        if path not in heads or start < heads[path][0]:
            heads[path] = start, [name for name in chunk.references if not _MODULE.isdisjoint(name)]
    places, order = places_of(list(numbers), _int32(paths), _int32(starts), _int32(ends))
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return Nodes(
        places,
        list(map(symbols.__getitem__, order.tolist())),
        (_int64(names), np.repeat(rank, _int32(sizes))),
        (_int64(uses), np.repeat(rank, _int32(used))),
        {path: modules for path, (_, modules) in heads.items()},
    )


def links_of(nodes: Nodes) -> Links:
    """Every link one way, some of them more than once."""
    parts = [
        *_references(nodes),
        np.fromiter(((one, other, _IMPORT) for one, other in _imports(nodes)), _Link),
        np.fromiter(((one, other, _WITHIN) for one, other in _within(nodes)), _Link),
    ]
    return np.concatenate(parts)


def _references(nodes: Nodes) -> Iterator[Links]:
    """Each use of a name with all that define it, at most so many; a chunk that defines the name itself means its own."""
    total = max(1, len(nodes.places))
    known, defined = np.unique(nodes.defined[0], return_inverse=True)
    definers = np.unique(defined * total + nodes.defined[1])
    if not len(definers):
        return
    counts = np.bincount(definers // total, minlength=len(known))
    first = np.cumsum(counts) - counts
    for at in range(0, len(nodes.used[0]), _USES_AT_ONCE):
        hashes, users = (column[at : at + _USES_AT_ONCE] for column in nodes.used)
        names = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        there = known[names] == hashes
        names, users = names[there], users[there]
        uses = names * total + users
        own = definers[np.minimum(np.searchsorted(definers, uses), len(definers) - 1)] == uses
        meant = ~own & (counts[names] <= _DEFINERS)
        names, users = names[meant], users[meant]
        many = counts[names]
        links = np.empty(int(many.sum()), _Link)
        links["one"] = np.repeat(users, many)
        within = np.arange(len(links)) - np.repeat(np.cumsum(many) - many, many)
        links["other"] = (definers % total)[np.repeat(first[names], many) + within]
        links["weight"] = np.repeat(1 / many, many)
        yield links


def _imports(nodes: Nodes) -> Iterator[tuple[int, int]]:
    """The head of a file with the heads of those that it imports; its references contain the modules' names."""
    heads = dict(zip(nodes.places.paths, nodes.places.heads().tolist(), strict=True))
    modules = Modules(heads)
    for path, at in heads.items():
        for name in nodes.imported[path]:
            for imported in modules.of(name, path):
                yield at, heads[imported]


def _within(nodes: Nodes) -> Iterator[tuple[int, int]]:
    """A definition cut in several chunks, a class and its methods: each with the first chunk of what holds it."""
    first: dict[str, int] = {}
    path = -1
    for at, (number, symbol) in enumerate(zip(nodes.places.numbers.tolist(), nodes.symbols, strict=True)):
        if number != path:
            path, first = number, {}
        parts = symbol.split(".") if symbol else []
        for depth in range(len(parts), 0, -1):
            holder = first.get(".".join(parts[:depth]))
            if holder is not None:
                yield at, holder
                break
        if parts:
            first.setdefault(symbol, at)


def _int32(values: "array[int]") -> NDArray[np.int32]:
    return np.frombuffer(values, np.int32) if values else np.zeros(0, np.int32)


def _int64(values: "array[int]") -> NDArray[np.int64]:
    return np.frombuffer(values, np.int64) if values else np.zeros(0, np.int64)
