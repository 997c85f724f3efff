"""Cuts a document into chunks at symbol boundaries.

Law: the chunks of a file cover every line exactly once, in order. With lines 0 … n−1 and half-open intervals:

    [0, a) [a, b) [b, c) … [z, n)        cut at: the start of a definition · the line after its end · a blank line

A range that fits is one chunk. A larger range is cut at the definitions directly inside it, each of which is treated the
same way; small neighbours are joined again. A range without definitions is cut at blank lines, or else at any line.
Only a single long line can make a chunk larger than the limit.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from codex.documents import Document, lines
from codex.outline.symbols import Outline, Symbol, outline

CHUNKING_VERSION = 2  # raise it when chunks of the same text change: archives are then built again
_HEAD_LINES = 8
_COMMENTS = ("#", "//", "/*", "*", "--", ";", "<!--", '"""')


@dataclass(frozen=True)
class ChunkSettings:
    """Bounds of a chunk."""

    max_lines: int = 60  # a screen: the longest function most people write
    max_chars: int = 3_000  # about 800 tokens: five chunks of evidence fit the smallest budget of 4,000
    join_lines: int = 24  # neighbours are joined up to here: one-line methods say little alone


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines `start`–`end` (1-based, inclusive) of a file.

    `symbol` is the qualified name of the definition that it is or lies in ('' at top level), `names` all that it
    defines, `digest` the sha256 (hex) of its text.
    """

    path: str
    start: int
    end: int
    symbol: str
    kind: str
    signature: str
    names: tuple[str, ...]
    text: str
    digest: str


def chunk(
    document: Document, parsed: Outline | None = None, settings: ChunkSettings | None = None
) -> tuple[Chunk, ...]:
    """The chunks of a document in order; none for an empty one. `parsed` is its outline, made here when not given."""
    limits = settings or ChunkSettings()
    text = lines(document.text)
    if not text:
        return ()
    symbols = (parsed if parsed is not None else outline(document)).symbols
    cutter = _Cutter(text, symbols, limits)
    return tuple(
        _chunk_of(document.path, text, symbols, start, stop)
        for start, stop in cutter.cut(0, len(text), _inside(symbols))
    )


def _inside(symbols: Sequence[Symbol], holder: int | None = None) -> list[int]:
    """Indices of the symbols directly inside one; of those that no other contains without a holder."""
    around = symbols[holder] if holder is not None else None
    found: list[int] = []
    covered = 0
    for index in range(0 if holder is None else holder + 1, len(symbols)):
        symbol = symbols[index]
        if around is not None and symbol.start > around.end:
            break
        fits = around is None or (symbol.end <= around.end and (symbol.start, symbol.end) != (around.start, around.end))
        if symbol.start > covered and fits:
            found.append(index)
            covered = symbol.end
    return found


@dataclass(frozen=True)
class _Cutter:
    text: list[str]
    symbols: Sequence[Symbol]
    limits: ChunkSettings

    def cut(self, start: int, stop: int, inner: list[int]) -> list[tuple[int, int]]:
        """Intervals that tile [start, stop), cut at the symbols of these indices."""
        if not inner:
            return [(start, stop)] if self._fits(start, stop) else self._windows(start, stop)
        pieces: list[tuple[int, int, int | None]] = []
        at = start
        for index in inner:
            symbol = self.symbols[index]
            first = max(at, self._with_comments(symbol.start - 1, at))
            last = min(max(symbol.end, first), stop)
            if first > at:
                pieces.append((at, first, None))
            if last > first:
                pieces.append((first, last, index))
            at = max(at, last)
        if at < stop:
            pieces.append((at, stop, None))
        return self._joined(self._headed([cut for piece in pieces for cut in self._piece(*piece)]))

    def _piece(self, start: int, stop: int, index: int | None) -> list[tuple[int, int]]:
        if self._fits(start, stop):
            return [(start, stop)]
        return self.cut(start, stop, _inside(self.symbols, index) if index is not None else [])

    def _headed(self, cuts: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Joins a short head (`class Big:`) with its first part: alone it has no content."""
        if len(cuts) > 1 and cuts[0][1] - cuts[0][0] <= _HEAD_LINES and self._fits(cuts[0][0], cuts[1][1]):
            return [(cuts[0][0], cuts[1][1]), *cuts[2:]]
        return cuts

    def _joined(self, cuts: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Joins small neighbours; a blank range is joined to the one before it."""
        joined: list[tuple[int, int]] = []
        for start, stop in cuts:
            if joined and self._belong(joined[-1], (start, stop)):
                joined[-1] = (joined[-1][0], stop)
            else:
                joined.append((start, stop))
        return joined

    def _belong(self, left: tuple[int, int], right: tuple[int, int]) -> bool:
        blank = not any(line.strip() for line in self.text[right[0] : right[1]])
        small = right[1] - left[0] <= self.limits.join_lines
        return (small or blank) and self._fits(left[0], right[1])

    def _with_comments(self, start: int, floor: int) -> int:
        """A definition's first line, moved up over the comments right above it."""
        while start > floor and self.text[start - 1].strip().startswith(_COMMENTS):
            start -= 1
        return start

    def _fits(self, start: int, stop: int) -> bool:
        if stop - start == 1:
            return True
        if stop - start > self.limits.max_lines:
            return False
        return sum(map(len, self.text[start:stop])) + stop - start <= self.limits.max_chars

    def _windows(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The largest windows that fit, ended after a blank line where their second half has one."""
        cuts: list[tuple[int, int]] = []
        while start < stop:
            end = self._furthest(start, stop)
            if end < stop:
                middle = start + (end - start + 1) // 2
                end = next((at for at in range(end, middle, -1) if not self.text[at - 1].strip()), end)
            cuts.append((start, end))
            start = end
        return cuts

    def _furthest(self, start: int, stop: int) -> int:
        size = 0
        for at in range(start, min(stop, start + self.limits.max_lines)):
            size += len(self.text[at]) + 1
            if size > self.limits.max_chars and at > start:
                return at
        return min(stop, start + self.limits.max_lines)


def _chunk_of(path: str, text: list[str], symbols: Sequence[Symbol], start: int, stop: int) -> Chunk:
    body = "\n".join(text[start:stop])
    defined = [one for one in symbols if start < one.start <= stop]
    holder = _holder(symbols, defined, start, stop)
    return Chunk(
        path=path,
        start=start + 1,
        end=stop,
        symbol=holder.qualname if holder is not None else "",
        kind=holder.kind if holder is not None else "",
        signature=holder.signature if holder is not None else "",
        names=tuple(dict.fromkeys(one.name for one in defined)),
        text=body,
        digest=hashlib.sha256(body.encode("utf-8", errors="replace")).hexdigest(),
    )


def _holder(symbols: Sequence[Symbol], defined: Sequence[Symbol], start: int, stop: int) -> Symbol | None:
    """The definition that names a chunk: the largest that begins in it, else the innermost that contains it."""
    if defined:
        return max(defined, key=lambda one: (min(one.end, stop) - one.start, one.end))
    around = [one for one in symbols if one.start <= start + 1 and one.end >= stop]
    return around[-1] if around else None
