"""The repo map: the most telling definitions of the most central files, as many as fit a token budget.

    src/app.py
      83 class App(Scaffold)
      212   def route(self, rule, **options)

A definition's share is its file's centrality, less for what is no source, spread over its definitions by how often their
names are used elsewhere.
Deterministic: equal gists give an equal map. A tokenizer is passed in.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from codex.graph.centrality import Gist, centrality
from codex.outline.symbols import Symbol
from codex.trees.roles import share_of

Count = Callable[[Sequence[str]], Sequence[int]]
_PRIVATE = 0.3
_INNER = 0.6  # a method beside its class, a function inside another
_TRIES = 12  # of halving: the budget is met to a few hundredths of a per cent
_KINDS_LEFT_OUT = frozenset({"key", "rule", "element", "variable"})


@dataclass(frozen=True)
class _Line:
    path: str
    symbol: Symbol
    depth: int
    share: float


def repo_map(gists: Mapping[str, Gist], budget: int, count: Count, personal: Mapping[str, float] | None = None) -> str:
    """The map of at most `budget` tokens; '' when nothing fits. `personal`: files that matter more, by path."""
    ranks = centrality(gists, personal)
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
