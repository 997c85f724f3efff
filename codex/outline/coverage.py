"""The forms of a file in the floor: its skeleton, and the choice of hot files, which are whole. Pure and deterministic.

A skeleton has the signatures and first doc lines of all definitions, each with its line number, so that it can be cited:

    83 class App(Scaffold): The application object.
    212   def route(self, rule, **options): Registers a view function.

A text without definitions is represented by its first lines. The caller decides the codex's coverage.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from codex.documents import Document
from codex.outline.symbols import Outline, Symbol, first_lines, outline

_FIRST_LINES = 3  # of a text without headings
_SYMBOLS = 3_000  # of one file: more is data in the shape of code
_LEFT_OUT = frozenset({"key", "rule", "element"})  # of data files: their names are their content
_FUNCTIONS = frozenset({"function", "method"})
_WEIGHTS = (1.0, 1.0, 2.0)  # churn, centrality, touched: earlier questions predict the next one best


def skeleton(document: Document, parsed: Outline | None = None) -> str:
    """Signatures and first doc lines with their line numbers, one a line; ends with a newline unless it is empty."""
    found = parsed if parsed is not None else outline(document)
    every = sorted((*found.symbols, *found.fields), key=lambda symbol: symbol.start)
    lines = [_line(symbol, depth) for symbol, depth in islice(_visible(every), _SYMBOLS)]
    if not lines:
        lines = [f"{number} {text}" for number, text in first_lines(document.text, _FIRST_LINES)]
    return "".join(f"{line}\n" for line in lines)


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


def _line(symbol: Symbol, depth: int) -> str:
    head = symbol.signature or symbol.name
    doc = f": {symbol.doc}" if symbol.doc and symbol.doc != head else ""
    return f"{symbol.start} {'  ' * depth}{head}{doc}"


@dataclass(frozen=True)
class Heat:
    """The reasons for a whole body in the floor. Numbers of any scale, compared among the files only.

    `tokens`: cost of the body beyond its skeleton; `churn`: recent commits; `centrality`: PageRank in the graph of files;
    `touched`: questions whose answers used it.
    """

    path: str
    tokens: int
    churn: float = 0.0
    centrality: float = 0.0
    touched: float = 0.0


def hot(files: Sequence[Heat], budget: int) -> tuple[str, ...]:
    """Paths whose bodies fit `budget` tokens, hottest first; a file that does not fit is skipped."""
    chosen: list[str] = []
    left = budget
    greatest = tuple(max((each[kind] for each in map(_parts, files)), default=0.0) for kind in range(len(_WEIGHTS)))
    for one in sorted(files, key=lambda heat: (-_heat(heat, greatest), heat.path)):
        if 0 < one.tokens <= left:
            chosen.append(one.path)
            left -= one.tokens
    return tuple(chosen)


def _parts(one: Heat) -> tuple[float, ...]:
    return (one.churn, one.centrality, one.touched)


def _heat(one: Heat, greatest: Sequence[float]) -> float:
    """A weighted sum of shares of the greatest."""
    return sum(
        weight * part / top for weight, part, top in zip(_WEIGHTS, _parts(one), greatest, strict=True) if top > 0
    )
