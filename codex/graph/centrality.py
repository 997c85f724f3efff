"""How central files are: who refers to whom, and PageRank over it.

An edge leads from a file that uses a name to the files that define it; a name that many files define says little, one
that many use says much. Deterministic. Knows outlines, not texts.

Of all files at once only the gist of each outline is kept. A large codebase has millions of references; an object for each
made the garbage collector stop every thread of the process, the event loop's too, for up to 0.7 s.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import rustworkx

from codex.graph.modules import Modules
from codex.outline.symbols import Outline, Symbol

_DAMPING = 0.85  # Brin and Page, 1998
_DEFINERS = 5  # a name that more files define links none of them
_PRIVATE = 0.2  # a name that begins with an underscore is seldom meant from outside
_LONG_NAME = 8  # such names are seldom the same by chance
_IMPORT = 1.0


@dataclass(frozen=True, slots=True)
class Gist:
    """What is central needs of a file's outline: definitions, how often each name is used, imports; and whether it says
    that a program wrote it."""

    symbols: tuple[Symbol, ...]
    used: Mapping[str, int]
    imports: tuple[str, ...]
    generated: bool = False


def gist(parsed: Outline) -> Gist:
    """Of one outline, in a few objects that the garbage collector follows, however many names are used."""
    counted = Counter(reference.name for reference in parsed.references)
    plain = {name: times for name, times in counted.items()}  # noqa: C416 - unlike a copy it is not followed
    return Gist(parsed.symbols, plain, parsed.imports, parsed.generated)


def centrality(gists: Mapping[str, Gist], personal: Mapping[str, float] | None = None) -> dict[str, float]:
    """Share of attention by path; all shares add up to 1. `personal`: where attention begins, by path, any scale."""
    if not gists:
        return {}
    paths = sorted(gists)
    index = {path: at for at, path in enumerate(paths)}
    graph = rustworkx.PyDiGraph()
    graph.add_nodes_from(paths)
    graph.add_edges_from([(index[a], index[b], weight) for (a, b), weight in sorted(file_links(gists).items())])
    start = {index[path]: weight for path, weight in (personal or {}).items() if path in index and weight > 0}
    ranks = rustworkx.pagerank(graph, alpha=_DAMPING, weight_fn=float, personalization=start or None, max_iter=200)
    return {paths[at]: rank for at, rank in ranks.items()}


def file_links(gists: Mapping[str, Gist]) -> dict[tuple[str, str], float]:
    """Weight by (file that uses, file that defines or is imported), above 0: where nothing of a file weighs anything,
    PageRank divides by it and does not converge."""
    definers: dict[str, list[str]] = defaultdict(list)
    for path in sorted(gists):
        for name in {symbol.name for symbol in gists[path].symbols if symbol.name}:  # an enum in C++ may have none
            definers[name].append(path)
    modules = Modules(gists)
    links: dict[tuple[str, str], float] = defaultdict(float)
    for path, one in gists.items():
        for name, times in one.used.items():
            targets = definers.get(name, [])
            if path in targets or not targets or len(targets) > _DEFINERS:
                continue
            for target in targets:
                links[path, target] += math.sqrt(times) * _telling(name) / len(targets)
        for target in {found for imported in one.imports for found in modules.of(imported, path)} - {path}:
            links[path, target] += _IMPORT
    return dict(links)


def _telling(name: str) -> float:
    """How much it says that a name is used."""
    return (_PRIVATE if name.startswith("_") else 1.0) * min(1.0, len(name) / _LONG_NAME)
