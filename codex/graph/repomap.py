"""The repo map: the most important definitions of the most central files, as many as fit a token budget.

    src/app.py
      83 class App(Scaffold)
      212   def route(self, rule, **options)

A definition's share is its file's centrality, reduced outside of source, times how often other files use its name. A file's
centrality is its PageRank among the files: an edge leads from a file that uses a name to the files that define it. A name
that many files define has a low weight, one that many files use a high one. Deterministic: equal gists give an equal map.
A token count is passed in.

Only the gist of each file's outline is kept in memory. A large codebase has millions of references; with an object for
each, the garbage collector stopped every thread of the process, the event loop's too, for up to 0.7 s.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from codex.graph.modules import Modules
from codex.outline.symbols import Outline, Symbol
from codex.trees.roles import share_of

Count = Callable[[Sequence[str]], Sequence[int]]
_PRIVATE = 0.3
_INNER = 0.6  # weight of a method relative to its class, and of a function inside another
_TRIES = 12  # of halving: the budget is met to a few hundredths of a per cent
_KINDS_LEFT_OUT = frozenset({"key", "rule", "element", "variable"})
_DAMPING = 0.85  # Brin and Page, 1998
_DEFINERS = 5  # a name that more files define links none of them
_PRIVATE_USE = 0.2  # a name that begins with an underscore is seldom meant from outside
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


def repo_map(gists: Mapping[str, Gist], budget: int, count: Count) -> str:
    """The map of at most `budget` tokens; '' when nothing fits."""
    ranks = centrality(gists)
    weights = {path: ranks[path] * share_of(path, generated=one.generated) for path, one in gists.items()}
    lines = sorted(_lines(gists, weights), key=lambda one: (-one.share, one.path, one.symbol.start))
    files = sorted(gists, key=lambda path: (-weights[path], path))
    low, high = 0, len(lines) + len(files)
    best = ""
    for _ in range(max(_TRIES, high.bit_length() + 1)):
        if low > high:
            break
        middle = (low + high) // 2
        text = _rendered(lines[:middle], files[: max(0, middle - len(lines))], ranks)
        if count([text])[0] <= budget:
            best, low = text, middle + 1
        else:
            high = middle - 1
    return best


@dataclass(frozen=True)
class _Line:
    path: str
    symbol: Symbol
    depth: int
    share: float


def _lines(gists: Mapping[str, Gist], weights: Mapping[str, float]) -> list[_Line]:
    used: Counter[str] = Counter()
    for one in gists.values():
        used.update(one.used.keys())
    lines: list[_Line] = []
    for path, one in gists.items():
        for symbol in one.symbols:
            if symbol.kind not in _KINDS_LEFT_OUT:
                depth = symbol.qualname.count(".") - symbol.name.count(".")
                share = weights[path] * (1 + math.log1p(used[symbol.name])) * _INNER ** max(0, depth)
                lines.append(_Line(path, symbol, depth, share * (_PRIVATE if symbol.name.startswith("_") else 1.0)))
    return lines


def _rendered(lines: Sequence[_Line], bare: Sequence[str], ranks: Mapping[str, float]) -> str:
    by_path: dict[str, list[_Line]] = {path: [] for path in bare}
    for line in lines:
        by_path.setdefault(line.path, []).append(line)
    parts: list[str] = []
    for path in sorted(by_path, key=lambda one: (-ranks[one], one)):
        parts.append(path)
        parts.extend(map(_text, sorted(by_path[path], key=lambda one: (one.symbol.start, one.symbol.qualname))))
    return "\n".join([*parts, ""]) if parts else ""


def _text(line: _Line) -> str:
    return f"{'  ' * max(0, line.depth)}  {line.symbol.start} {line.symbol.signature or line.symbol.name}"


def gist(parsed: Outline) -> Gist:
    """Of one outline, in a few objects that the garbage collector follows, however many names are used."""
    counted = Counter(reference.name for reference in parsed.references)
    plain = {name: times for name, times in counted.items()}  # noqa: C416 - unlike a copy it is not followed
    return Gist(parsed.symbols, plain, parsed.imports, parsed.generated)


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
                links[path, target] += math.sqrt(times) * _weight_of_name(name) / len(targets)
        for target in {found for imported in one.imports for found in modules.of(imported, path)} - {path}:
            links[path, target] += _IMPORT
    return dict(links)


def _weight_of_name(name: str) -> float:
    """The weight of a use of a name."""
    return (_PRIVATE_USE if name.startswith("_") else 1.0) * min(1.0, len(name) / _LONG_NAME)
