"""Which files are central: PageRank among the files.

An edge leads from a file that uses a name to the files that define it, and to those that it imports.
A name that many files define has a low weight, one that many files use a high one. Deterministic: equal gists give equal
ranks.

Only the gist of each file's outline is kept in memory. A large codebase has millions of references; with an object for
each, the garbage collector stopped every thread of the process, the event loop's too, for up to 0.7 s.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from codex.graph.modules import Modules
from codex.outline.symbols import Outline

_DAMPING = 0.85  # Brin and Page, 1998
_DEFINERS = 5  # a name that more files define links none of them
_PRIVATE_USE = 0.2  # a name that begins with an underscore is seldom meant from outside
_LONG_NAME = 8  # such names are seldom the same by chance
_IMPORT = 1.0


@dataclass(frozen=True, slots=True)
class Gist:
    """What is central needs of a file's outline: names defined, how often each name is used, imports; and whether it says
    that a program wrote it."""

    defined: tuple[str, ...]
    used: Mapping[str, int]
    imports: tuple[str, ...]
    generated: bool = False


def gist(parsed: Outline) -> Gist:
    """Of one outline, in a few objects that the garbage collector follows, however many names are used."""
    counted = Counter(reference.name for reference in parsed.references)
    plain = {name: times for name, times in counted.items()}  # noqa: C416 - unlike a copy it is not followed
    defined = dict.fromkeys(symbol.name for symbol in parsed.symbols if symbol.name)  # an enum in C++ may have none
    return Gist(tuple(defined), plain, parsed.imports, parsed.generated)


def centrality(gists: Mapping[str, Gist]) -> dict[str, float]:
    """Share of attention by path; all shares add up to 1."""
    if not gists:
        return {}
    paths = sorted(gists)
    index = {path: at for at, path in enumerate(paths)}
    import rustworkx

    graph = rustworkx.PyDiGraph()
    graph.add_nodes_from(paths)
    graph.add_edges_from([(index[a], index[b], weight) for (a, b), weight in sorted(file_links(gists).items())])
    ranks = rustworkx.pagerank(graph, alpha=_DAMPING, weight_fn=float, max_iter=200)
    return {paths[at]: rank for at, rank in ranks.items()}


def file_links(gists: Mapping[str, Gist]) -> dict[tuple[str, str], float]:
    """Weight by (file that uses, file that defines or is imported), above 0: where nothing of a file weighs anything,
    PageRank divides by it and does not converge."""
    definers: dict[str, list[str]] = defaultdict(list)
    for path in sorted(gists):
        for name in gists[path].defined:
            definers[name].append(path)
    modules = Modules(gists)
    links: dict[tuple[str, str], float] = defaultdict(float)
    for path, one in gists.items():
        for name, times in one.used.items():
            targets = definers.get(name, [])
            if path in targets or not targets or len(targets) > _DEFINERS:
                continue
            for target in targets:
                links[path, target] += math.sqrt(times) * _weight_of_name(name) / len(targets)
        for target in {found for imported in one.imports for found in modules.of(imported, path)} - {path}:
            links[path, target] += _IMPORT
    return dict(links)


def _weight_of_name(name: str) -> float:
    """The weight of a use of a name."""
    return (_PRIVATE_USE if name.startswith("_") else 1.0) * min(1.0, len(name) / _LONG_NAME)
