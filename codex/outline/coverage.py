"""What of a file is in the floor, and which file gets how much. Pure and deterministic.

    nothing < line < skeleton < full

A *line* names what the file defines. A *skeleton* is its outline: the signatures and first doc lines of all definitions,
each with its line number, so that it can be cited:

    83 class App(Scaffold): The application object.
    212   def route(self, rule, **options): Registers a view function.

A text without definitions is represented by its first lines. At *full* it is the whole text. The caller decides between
which levels a codex moves, and gives budget and costs in tokens.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush
from itertools import islice
from math import sqrt
from types import MappingProxyType

from codex.documents import Document
from codex.outline.symbols import Outline, Symbol, first_lines, outline

_FIRST_LINES = 3  # of a text without headings
_LINE_CHARS = 60  # names of a line
_SYMBOLS = 3_000  # of one file: more is data in the shape of code
_LEFT_OUT = frozenset({"key", "rule", "element"})  # of data files: their names are their content
_FUNCTIONS = frozenset({"function", "method"})
_TOLD = (
    0.0,
    0.05,
    0.6,
    1.0,
)  # by level, of what it tells whole: most questions are about what a definition is and where
_TOUCHED = 4.0  # earlier questions predict the next one best


def summary_line(document: Document, parsed: Outline) -> str:
    """The names of the outermost definitions, those for others first; else the first line."""
    names = dict.fromkeys(one.name for one, depth in _visible(_ordered(parsed)) if not depth and one.name)
    said = ", ".join(sorted(names, key=lambda name: name.startswith("_")))
    if not said:
        said = next((text for _, text in first_lines(document.text, 1)), "")
    return said if len(said) <= _LINE_CHARS else f"{said[:_LINE_CHARS].rpartition(' ')[0] or said[:_LINE_CHARS]} …"


def skeleton(document: Document, parsed: Outline | None = None) -> str:
    """Signatures and first doc lines with their line numbers, one a line; ends with a newline unless it is empty."""
    found = parsed if parsed is not None else outline(document)
    lines = [_signature(symbol, depth) for symbol, depth in islice(_visible(_ordered(found)), _SYMBOLS)]
    if not lines:
        lines = [f"{number} {text}" for number, text in first_lines(document.text, _FIRST_LINES)]
    return "".join(f"{line}\n" for line in lines)


def _ordered(parsed: Outline) -> list[Symbol]:
    return sorted((*parsed.symbols, *parsed.fields), key=lambda symbol: symbol.start)


def _visible(symbols: Iterable[Symbol]) -> Iterator[tuple[Symbol, int]]:
    """Symbols with their depth. Without definitions inside a function, which other code cannot use.

    Symbols that share a line and a signature, as in `int a, b;`, are shown once.
    """
    around: list[Symbol] = []
    before = (0, "")
    for symbol in symbols:
        while around and not _holds(around[-1], symbol):
            around.pop()
        if around and around[-1].kind in _FUNCTIONS:
            continue
        if symbol.kind not in _LEFT_OUT and before != (symbol.start, symbol.signature):
            yield symbol, len(around)
        before = (symbol.start, symbol.signature)
        around.append(symbol)


def _holds(outer: Symbol, inner: Symbol) -> bool:
    return inner.start <= outer.end and inner.qualname.startswith(f"{outer.qualname}.")


def _signature(symbol: Symbol, depth: int) -> str:
    head = symbol.signature or symbol.name
    doc = f": {symbol.doc}" if symbol.doc and symbol.doc != head else ""
    return f"{symbol.start} {'  ' * depth}{head}{doc}"


# -- which file gets how much


class FileLevel(IntEnum):
    NOTHING = 0
    LINE = 1
    SKELETON = 2
    FULL = 3


@dataclass(frozen=True)
class FileSigns:
    """Why a file matters, numbers of any scale, compared among the files only.

    `centrality`: PageRank in the graph of files; `churn`: recent commits; `touched`: questions whose answers used it;
    `role`: the share of its role, 1 for source; `size`: of the text, in bytes.
    """

    path: str
    centrality: float = 0.0
    churn: float = 0.0
    touched: float = 0.0
    role: float = 1.0
    size: int = 1


@dataclass(frozen=True)
class GradedFile:
    """`value` of its whole text, above 0; `costs`: tokens of each level above NOTHING, as many as the file may have."""

    path: str
    value: float
    costs: tuple[int, ...]

    def cost(self, level: FileLevel) -> int:
        return self.costs[level - 1] if level else 0


def values(files: Sequence[FileSigns]) -> dict[str, float]:
    """By path: centrality, recency of change, what questions touched, role, and the root of the size, multiplied.

    Without the root a large file, which costs more, would hardly be raised, though more is asked about it.
    """
    churn = max((one.churn for one in files), default=0.0) or 1.0
    touched = max((one.touched for one in files), default=0.0) or 1.0
    least = min((one.centrality for one in files if one.centrality > 0), default=1.0)

    def value(one: FileSigns) -> float:
        asked = (1 + one.churn / churn) * (1 + _TOUCHED * one.touched / touched)
        return max(one.centrality, least) * asked * one.role * sqrt(max(1, one.size))

    return {one.path: value(one) for one in files}


def levels(
    files: Sequence[GradedFile], budget: int, start: Mapping[str, FileLevel] = MappingProxyType({})
) -> dict[str, FileLevel]:
    """The level of each file, from that of `start` up, so that all cost at most `budget` together: again and again the
    raise that gives the most value for a token, of all that still fit. What `start` does not name starts at NOTHING.

    No raise fits in what is left: at least 95 % of the budget are used where one of at most 5 % is left. A larger budget
    never has less value. Requires that `start` fits.
    """
    chosen = {one.path: _freely(one, start.get(one.path, FileLevel.NOTHING)) for one in files}
    left = budget - sum(one.cost(chosen[one.path]) for one in files)
    waiting = [raised for one in files for raised in _best_raise(one, chosen[one.path], left)]
    heapify(waiting)
    by_path = {one.path: one for one in files}
    while waiting:
        _, path, level = heappop(waiting)
        file = by_path[path]
        cost = file.cost(level) - file.cost(chosen[path])
        if cost <= left:
            chosen[path] = level
            left -= cost
        for again in _best_raise(file, chosen[path], left):
            heappush(waiting, again)
    return chosen


def _freely(file: GradedFile, now: FileLevel) -> FileLevel:
    """The level that it reaches by raises that cost nothing."""
    above = islice(FileLevel, now + 1, len(file.costs) + 1)
    free = next((level for level in above if file.cost(level) <= file.cost(now)), None)
    return now if free is None else _freely(file, free)


def _best_raise(file: GradedFile, now: FileLevel, left: int) -> list[tuple[float, str, FileLevel]]:
    """The raise of a file that gives the most for a token, of those that fit, as an entry of a heap; none fits: none."""
    return sorted(
        (-_gain(file, now, level), file.path, level)
        for level in islice(FileLevel, now + 1, len(file.costs) + 1)
        if file.cost(level) - file.cost(now) <= left
    )[:1]


def _gain(file: GradedFile, now: FileLevel, level: FileLevel) -> float:
    """Value for a token. No raise is free any more: a higher level that costs less than the best one would be better."""
    return file.value * (_TOLD[level] - _TOLD[now]) / (file.cost(level) - file.cost(now))
