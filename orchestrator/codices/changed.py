"""What of a file differs from what was told of it, as a text shorter than the file; and that text laid over the file. Pure.

    lines 40-52, Cart.add, in place of lines 38-49:     a changed definition, whole: what a reader thinks in
    lines 1-8, in place of lines 1-7:                   imports, constants, prose: the change with a few lines around it
    lines 60-71, Cart.clear, added behind line 57:

The first numbers are the file's as it is now, the second ones as it was told last. Laid over that in turn, the parts give
the file as it is: whoever was told it and them knows every line and its number.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from codex.documents import Document, lines
from codex.line_changes import Block, changed_blocks
from codex.outline.symbols import Symbol, outline

TELLABLE = frozenset({"function", "method", "constructor", "class", "struct", "enum", "interface", "trait", "type"})
CHANGED_PARTS = "Changed parts. All other lines stand as they were, moved by what was added or removed above them."
AROUND = 3  # lines before and behind a change that lies in no definition, as in a diff
LONGEST = 60  # lines of a definition that is told whole; of a longer one the change with what is around it
SHORTER = 0.75  # of the file's text: above it the file itself says more for about as much
HEAD = re.compile(r"lines (\d+)-(\d+)(?:, (.*?))?, (?:in place of lines (\d+)-(\d+)|added behind line (\d+)):\n")


@dataclass(frozen=True, slots=True)
class Part:
    """Lines `start`–`end` of the file now stand for `old_start`–`old_end` of it as told last; from 0, the ends not in it.

    `names`: definitions that are told whole.
    """

    start: int
    end: int
    old_start: int
    old_end: int
    names: tuple[str, ...]
    text: tuple[str, ...]

    def said(self) -> str:
        named = f", {' and '.join(self.names)}" if self.names else ""
        was = (
            f"in place of lines {self.old_start + 1}-{self.old_end}"
            if self.old_end > self.old_start
            else f"added behind line {self.old_start}"
        )
        body = "".join(f"{line}\n" for line in self.text)
        return f"lines {self.start + 1}-{self.end}{named}, {was}:\n{body}"


Span = tuple[int, int, tuple[str, ...]]  # new lines, names


def changed_parts(before: Document, now: Document) -> str | None:
    """The parts that differ; None where the whole file says it in about as much."""
    parts = parts_of(before, now)
    text = "\n".join(part.said() for part in parts)
    return text if parts and len(text) <= SHORTER * len(now.text) else None


def parts_of(before: Document, now: Document) -> list[Part]:
    """In the file's order, none touching another; empty for a file that is empty now."""
    old, new = lines(before.text), lines(now.text)
    blocks = changed_blocks(old, new)
    symbols = [symbol for symbol in outline(now).symbols if symbol.kind in TELLABLE] if blocks else []
    spans = merged(sorted(span_of(block, symbols, len(new)) for block in blocks))
    return [part_of(span, blocks, new, len(old)) for span in spans if span[1] > span[0]]


def span_of(block: Block, symbols: Iterable[Symbol], count: int) -> Span:
    """The lines by which a change is told: the innermost definition that holds it, or a few around it."""
    _, _, _, start, end = block
    holding = smallest(symbols, start, end)
    if holding is not None and holding.end - holding.start < LONGEST:
        return holding.start - 1, holding.end, (holding.qualname,)
    return max(0, start - AROUND), min(count, end + AROUND), ()


def smallest(symbols: Iterable[Symbol], start: int, end: int) -> Symbol | None:
    """The innermost definition with all of these lines; where lines were only removed, with those on both sides."""
    first, last = (start, start + 1) if start == end else (start + 1, end)
    holding = [symbol for symbol in symbols if symbol.start <= first and last <= symbol.end]
    return min(holding, key=lambda symbol: symbol.end - symbol.start, default=None)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans that touch are one."""
    made: list[Span] = []
    for start, end, names in spans:
        if made and start <= made[-1][1]:
            first, last, said = made.pop()
            inside = said and end <= last
            start, end, names = first, max(last, end), said if inside else tuple(dict.fromkeys(said + names))
        made.append((start, end, names))
    return made


def part_of(span: Span, blocks: Sequence[Block], new: Sequence[str], old_count: int) -> Part:
    """No change begins or ends beside a span and outside of it: they would have been merged."""
    start, end, names = span
    old_start = start + sum(grown(block) for block in blocks if block[4] < start)
    old_end = end + sum(grown(block) for block in blocks if block[3] <= end)
    assert 0 <= old_start <= old_end <= old_count, "a part must stand for lines that the file had"
    return Part(start, end, old_start, old_end, names, tuple(new[start:end]))


def grown(block: Block) -> int:
    """How many lines more the old text has in a change."""
    _, old_start, old_end, start, end = block
    return (old_end - old_start) - (end - start)


# -- laid over what was told


def read_parts(text: str) -> Iterator[Part]:
    """The parts of a text of `changed_parts`. Raises ValueError for any other."""
    at = 0
    while at < len(text):
        head = HEAD.match(text, at)
        if head is None:
            raise ValueError(f"no part begins at character {at}")
        start, end = int(head[1]) - 1, int(head[2])
        body = text[head.end() :].split("\n", end - start)
        if len(body) <= end - start:
            raise ValueError(f"fewer lines than {head[0]!r} says")
        old_start = int(head[6]) if head[6] else int(head[4]) - 1
        names = tuple(head[3].split(" and ")) if head[3] else ()
        yield Part(start, end, old_start, int(head[6] or head[5]), names, tuple(body[:-1]))
        at = head.end() + sum(len(line) + 1 for line in body[:-1]) + 1


def laid_over(told: str, text: str) -> str:
    """The file as it is now, from what was told of it and its changed parts. Raises ValueError where they do not fit."""
    old, new, at = lines(told), list[str](), 0
    for part in read_parts(text):
        if not at <= part.old_start <= part.old_end <= len(old):
            raise ValueError("a part stands for lines that the file did not have")
        new += [*old[at : part.old_start], *part.text]
        at = part.old_end
    new += old[at:]
    return "".join(f"{line}\n" for line in new)
