"""The symbol graph: chunks, and what leads from one to another.

    reference     a chunk uses a name that another one defines        both ways, the way back at half weight
    import        a file's head names a module                        to the head of that file
    containment   chunks of one definition, and a class and its methods

Expansion walks from hits to their neighbourhood within hops, and weighs it by personalised PageRank. Deterministic.
Built from an archive's chunks; kept as arrays (a million links take 20 MB).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import rustworkx

from codex.archive.archive import ChunkMatch
from codex.archive.definitions import ChunkPlace
from codex.graph.links import Packed, gathered, links_of, packed
from codex.graph.places import Places

_NODES = 1_500  # of a neighbourhood: PageRank over so many takes some milliseconds
_DAMPING = 0.6  # attention stays near the hits; 0.85 is for the whole web
_TOKENS_A_LINE = 10

Cost = Callable[[ChunkPlace], int]


@dataclass(frozen=True)
class Neighbour:
    """A chunk near the hits. `weight` is its share of attention, `hops` its distance."""

    place: ChunkPlace
    weight: float
    hops: int


@dataclass(frozen=True)
class SymbolGraph:
    """Chunks as nodes, and their links."""

    places: Places
    packed: Packed

    @property
    def links(self) -> int:
        """Number of directed links."""
        return len(self.packed.targets)

    def neighbours(self, place: ChunkPlace) -> list[tuple[ChunkPlace, float]]:
        """What a chunk leads to, strongest first; empty for one that is not in the graph."""
        at = self.places.at(place)
        if at is None:
            return []
        return [(self.places[target], weight) for target, weight in self._links_of(at)]

    def expand(
        self, seeds: Mapping[ChunkPlace, float], *, hops: int = 2, tokens: int = 4_000, cost: Cost | None = None
    ) -> tuple[Neighbour, ...]:
        """The neighbourhood of the seeds without them: best first, within `hops`, as much as fits into `tokens`."""
        found_at = {self.places.at(place): weight for place, weight in seeds.items() if weight > 0}
        start = {at: weight for at, weight in found_at.items() if at is not None}
        reached = self._reached(start, hops)
        ranks = self._attention(start, list(reached))
        price = cost or estimated_tokens
        found: list[Neighbour] = []
        left = tokens
        for at in sorted(reached.keys() - start.keys(), key=lambda node: (-ranks[node], node)):
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
        links = self.packed
        first, last = links.starts[node], links.starts[node + 1]
        return list(zip(links.targets[first:last].tolist(), links.weights[first:last].tolist(), strict=True))


def estimated_tokens(place: ChunkPlace) -> int:
    """Tokens of a chunk when nobody counts: ten a line."""
    return (place.end - place.start + 1) * _TOKENS_A_LINE


def build_graph(chunks: Iterable[ChunkMatch]) -> SymbolGraph:
    """The graph over these chunks, in any order: about two seconds for 100,000 of them."""
    nodes = gathered(chunks)
    return SymbolGraph(nodes.places, packed(len(nodes.places), links_of(nodes)))
