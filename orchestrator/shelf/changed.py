"""The definitions in which a file differs from what was told of it, as a text shorter than the file. Pure."""

from collections.abc import Iterable
from difflib import SequenceMatcher

from codex.documents import Document, lines
from codex.symbols import Symbol, outline

TELLABLE = frozenset({"function", "method", "constructor", "class", "struct", "enum", "interface", "trait", "type"})


def changed_definitions(before: Document, now: Document) -> str | None:
    """The whole definitions that hold a change; None when a change lies outside of all, so that the file must be told."""
    old, new = lines(before.text), lines(now.text)
    symbols = [symbol for symbol in outline(now).symbols if symbol.kind in TELLABLE]
    touched: dict[tuple[int, int], Symbol] = {}
    for kind, _, _, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        holding = smallest(symbols, start + 1, max(end, start + 1))
        if holding is None:
            return None
        touched[holding.start, holding.end] = holding
    parts = (excerpt(symbol, new) for _, symbol in sorted(touched.items()))
    return "\n".join(parts) or None


def smallest(symbols: Iterable[Symbol], first: int, last: int) -> Symbol | None:
    """The innermost definition that holds all of these lines, from 1 and inclusive."""
    holding = [symbol for symbol in symbols if symbol.start <= first and last <= symbol.end]
    return min(holding, key=lambda symbol: symbol.end - symbol.start, default=None)


def excerpt(symbol: Symbol, text: list[str]) -> str:
    body = "\n".join(line.rstrip("\n") for line in text[symbol.start - 1 : symbol.end])
    return f"lines {symbol.start}-{symbol.end}, {symbol.qualname}:\n{body}\n"
