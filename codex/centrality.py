"""How central files are: who refers to whom, and PageRank over it.

An edge leads from a file that uses a name to the files that define it; a name that many files define says little, one
that many use says much. Deterministic. Knows outlines, not texts.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping

import rustworkx

from codex.modules import Modules
from codex.symbols import Outline

_DAMPING = 0.85  # Brin and Page, 1998
_DEFINERS = 5  # a name that more files define links none of them
_PRIVATE = 0.2  # a name that begins with an underscore is seldom meant from outside
_LONG_NAME = 8  # such names are seldom the same by chance
_IMPORT = 1.0


def centrality(outlines: Mapping[str, Outline], personal: Mapping[str, float] | None = None) -> dict[str, float]:
    """Share of attention by path; all shares add up to 1. `personal`: where attention begins, by path, any scale."""
    if not outlines:
        return {}
    paths = sorted(outlines)
    index = {path: at for at, path in enumerate(paths)}
    graph = rustworkx.PyDiGraph()
    graph.add_nodes_from(paths)
    graph.add_edges_from([(index[a], index[b], weight) for (a, b), weight in sorted(file_links(outlines).items())])
    start = {index[path]: weight for path, weight in (personal or {}).items() if path in index and weight > 0}
    ranks = rustworkx.pagerank(graph, alpha=_DAMPING, weight_fn=float, personalization=start or None, max_iter=200)
    return {paths[at]: rank for at, rank in ranks.items()}


def file_links(outlines: Mapping[str, Outline]) -> dict[tuple[str, str], float]:
    """Weight by (file that uses, file that defines or is imported)."""
    definers: dict[str, list[str]] = defaultdict(list)
    for path in sorted(outlines):
        for name in {symbol.name for symbol in outlines[path].symbols}:
            definers[name].append(path)
    modules = Modules(outlines)
    links: dict[tuple[str, str], float] = defaultdict(float)
    for path, parsed in outlines.items():
        for name, times in Counter(reference.name for reference in parsed.references).items():
            targets = definers.get(name, [])
            if path in targets or not targets or len(targets) > _DEFINERS:
                continue
            for target in targets:
                links[path, target] += math.sqrt(times) * _telling(name) / len(targets)
        for target in {found for imported in parsed.imports for found in modules.of(imported, path)} - {path}:
            links[path, target] += _IMPORT
    return dict(links)


def _telling(name: str) -> float:
    """How much it says that a name is used."""
    return (_PRIVATE if name.startswith("_") else 1.0) * min(1.0, len(name) / _LONG_NAME)
