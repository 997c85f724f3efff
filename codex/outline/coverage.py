"""How a file stands in the floor: whole, as a skeleton, or whole because it is hot. Pure and deterministic.

A skeleton is the signatures and first doc lines of everything, each with its line, so that it can be cited:

    83 class App(Scaffold): The application object.
    212   def route(self, rule, **options): Registers a view function.

Text without definitions is shown by its first lines. Which floor a codex gets is decided elsewhere.
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
_WEIGHTS = (1.0, 1.0, 2.0)  # churn, centrality, touched: what questions touched says most about the next one


def skeleton(document: Document, parsed: Outline | None = None) -> str:
    """Signatures and first doc lines with their line numbers, one a line; ends with a newline unless it is empty."""
    found = parsed if parsed is not None else outline(document)
    every = sorted((*found.symbols, *found.fields), key=lambda symbol: symbol.start)
    lines = [_line(symbol, depth) for symbol, depth in islice(_visible(every), _SYMBOLS)]
    if not lines:
        lines = [f"{number} {text}" for number, text in first_lines(document.text, _FIRST_LINES)]
    return "".join(f"{line}\n" for line in lines)


def _visible(symbols: Iterable[Symbol]) -> Iterator[tuple[Symbol, int]]:
    """With how deep each stands. Without what is defined inside a function, which nobody can use from elsewhere.

    What shares a line and its signature, as `int a, b;` does, is shown once.
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
    """What speaks for a file's whole body in the floor. Numbers of any scale, compared among the files alone.

    `tokens`: what its body costs beyond its skeleton; `churn`: recent commits; `centrality`: share of attention;
    `touched`: questions whose answers used it.
    """

    path: str
    tokens: int
    churn: float = 0.0
    centrality: float = 0.0
    touched: float = 0.0


def hot(files: Sequence[Heat], budget: int) -> tuple[str, ...]:
    """Paths whose bodies fill `budget` tokens, hottest first; one that does not fit leaves its room to the next."""
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
