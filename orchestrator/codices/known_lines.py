"""What an edited file shows of its change, and which of its lines the model then knows by which numbers. Pure.

A change is written as parts that are shorter than the file:

    lines 40-52, Cart.add, in place of lines 38-49:     a changed definition, whole
    lines 1-8, in place of lines 1-7:                   imports, constants, prose: the change with a few lines around it
    lines 60-71, Cart.clear, added behind line 57:

The first numbers are the file's as it is now, the second ones as it was before. Laid over each other in turn, the parts
give the file as it is. What is known of a file is its state in the floor with the log laid over it:

    floor  whole, or by the lines that a skeleton lists                 7   def route(self)
    log    whole, or by changed parts                                   ten lines in place of lines 1-2
    known  replaced lines are known as the log has them, others move    15  def route(self)

A skeleton in the floor is never rewritten: an entry that changes lines above a listed line also gives its new number, or,
of many, by how much they moved. Knows pieces and entries, no prompt and no disk.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from codex.documents import Document, lines
from codex.following.amendments import Amendment, Block, ChangeKind, changed_blocks
from codex.outline.symbols import Symbol, outline
from formatters.context import CodexPiece
from formatters.writers import LINE

NAMED_KINDS = frozenset({"function", "method", "constructor", "class", "struct", "enum", "interface", "trait", "type"})
CHANGED_PARTS = "Changed parts. All other lines stand as they were, moved by what was added or removed above them."
LINES_AROUND = 3  # lines before and behind a change that lies in no definition, as in a diff
LONGEST = 60  # lines of a definition that is written whole; of a longer one the change with what is around it
SHORTER = 0.75  # of the file's text: above it the file itself says more for about as much
HEAD = re.compile(r"lines (\d+)-(\d+)(?:, (.*?))?, (?:in place of lines (\d+)-(\d+)|added behind line (\d+)):\n")
LISTED = re.compile(r"^([^\S\n]*)(\d+)( .*)$", re.MULTILINE)  # a line of a skeleton begins with its number
EXCERPT = re.compile(r"^lines (\d+)-(\d+), .*:\n", re.MULTILINE)  # the head of a changed part
MOST_LISTED = 40  # listed lines that moved; of more the distance is written
MOVED = "Lines that were listed before and have moved:"


@dataclass(frozen=True, slots=True)
class ChangedPart:
    """Lines `start`–`end` of the file replace `old_start`–`old_end` of it as reported last; from 0, the ends not in it.

    `names`: definitions that are written whole.
    """

    start: int
    end: int
    old_start: int
    old_end: int
    names: tuple[str, ...]
    text: tuple[str, ...]

    def written(self) -> str:
        named = f", {' and '.join(self.names)}" if self.names else ""
        was = (
            f"in place of lines {self.old_start + 1}-{self.old_end}"
            if self.old_end > self.old_start
            else f"added behind line {self.old_start}"
        )
        body = "".join(f"{line}\n" for line in self.text)
        return f"lines {self.start + 1}-{self.end}{named}, {was}:\n{body}"


ChangedSpan = tuple[int, int, tuple[str, ...]]  # new lines, names


def changed_parts(before: Document, now: Document) -> str | None:
    """The parts that differ; None where the whole file says it in about as much."""
    parts = parts_of(before, now)
    text = "\n".join(part.written() for part in parts)
    return text if parts and len(text) <= SHORTER * len(now.text) else None


def parts_of(before: Document, now: Document) -> list[ChangedPart]:
    """In the file's order, none touching another; empty for a file that is empty now."""
    old, new = lines(before.text), lines(now.text)
    blocks = changed_blocks(old, new)
    symbols = [symbol for symbol in outline(now).symbols if symbol.kind in NAMED_KINDS] if blocks else []
    spans = merged(sorted(span_of(block, symbols, len(new)) for block in blocks))
    return [part_of(span, blocks, new, len(old)) for span in spans if span[1] > span[0]]


def span_of(block: Block, symbols: Iterable[Symbol], count: int) -> ChangedSpan:
    """The lines that show a change: the innermost definition that holds it, or a few around it."""
    _, _, _, start, end = block
    holding = smallest(symbols, start, end)
    if holding is not None and holding.end - holding.start < LONGEST:
        return holding.start - 1, holding.end, (holding.qualname,)
    return max(0, start - LINES_AROUND), min(count, end + LINES_AROUND), ()


def smallest(symbols: Iterable[Symbol], start: int, end: int) -> Symbol | None:
    """The innermost definition with all of these lines; where lines were only removed, with those on both sides."""
    first, last = (start, start + 1) if start == end else (start + 1, end)
    holding = [symbol for symbol in symbols if symbol.start <= first and last <= symbol.end]
    return min(holding, key=lambda symbol: symbol.end - symbol.start, default=None)


def merged(spans: Iterable[ChangedSpan]) -> list[ChangedSpan]:
    """Spans that touch are one."""
    made: list[ChangedSpan] = []
    for start, end, names in spans:
        if made and start <= made[-1][1]:
            first, last, said = made.pop()
            inside = said and end <= last
            start, end, names = first, max(last, end), said if inside else tuple(dict.fromkeys(said + names))
        made.append((start, end, names))
    return made


def part_of(span: ChangedSpan, blocks: Sequence[Block], new: Sequence[str], old_count: int) -> ChangedPart:
    """No change begins or ends beside a span and outside of it: they would have been merged."""
    start, end, names = span
    old_start = start + sum(grown(block) for block in blocks if block[4] < start)
    old_end = end + sum(grown(block) for block in blocks if block[3] <= end)
    assert 0 <= old_start <= old_end <= old_count, "a part must stand for lines that the file had"
    return ChangedPart(start, end, old_start, old_end, names, tuple(new[start:end]))


def grown(block: Block) -> int:
    """How many lines more the old text has in a change."""
    _, old_start, old_end, start, end = block
    return (old_end - old_start) - (end - start)


# -- laid over what was reported


def read_parts(text: str) -> Iterator[ChangedPart]:
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
        yield ChangedPart(start, end, old_start, int(head[6] or head[5]), names, tuple(body[:-1]))
        at = head.end() + sum(len(line) + 1 for line in body[:-1]) + 1


def laid_over(reported: str, text: str) -> str:
    """The file as it is now, from its text as reported and its changed parts. Raises ValueError where they do not fit."""
    old, new, at = lines(reported), list[str](), 0
    for part in read_parts(text):
        if not at <= part.old_start <= part.old_end <= len(old):
            raise ValueError("a part stands for lines that the file did not have")
        new += [*old[at : part.old_start], *part.text]
        at = part.old_end
    new += old[at:]
    return "".join(f"{line}\n" for line in new)


# -- what is known

Span = tuple[int, int]  # lines from 1, both inclusive


@dataclass(frozen=True, slots=True)
class Head:
    """A line that stands for a definition: its number, and what stands before and behind it in the list."""

    number: int
    before: str
    behind: str

    def written(self) -> str:
        return f"{self.before}{self.number}{self.behind}"


@dataclass(frozen=True, slots=True)
class KnownText:
    """What is known of one file."""

    whole: bool = False
    spans: tuple[Span, ...] = ()
    heads: tuple[Head, ...] = ()


Base = Callable[[str], KnownText]


def base_of(pieces: Iterable[CodexPiece]) -> Base:
    """What a floor of these pieces shows of a file, by its path."""
    by_path = {piece.path: piece for piece in pieces}

    def base(path: str) -> KnownText:
        piece = by_path.get(path)
        if piece is None or piece.kind == LINE:
            return KnownText()
        return KnownText(whole=True) if piece.kind == "full" else KnownText(heads=heads_in(piece.text))

    return base


def known_after(base: Base, log: Iterable[Amendment]) -> Iterator[tuple[Amendment, KnownText, KnownText]]:
    """Each entry with what was known of its file before it, and what is then."""
    states: dict[str, KnownText] = {}
    for entry in log:
        before = states[entry.path] if entry.path in states else base(entry.path)
        if entry.kind is ChangeKind.MOVED and entry.source:
            after = states[entry.source] if entry.source in states else base(entry.source)
        elif entry.kind is ChangeKind.RESTORED:
            after = base(entry.path)
        else:
            after = known_behind(before, entry)
        states[entry.path] = after
        yield entry, before, after


def known_now(path: str, base: Base, log: Sequence[Amendment]) -> KnownText:
    """What is known of a file after its log."""
    now = base(path)
    wanted = lineage(path, log)
    for entry, _, after in known_after(base, (entry for entry in log if entry.path in wanted)):
        now = after if entry.path == path else now
    return now


def lineage(path: str, log: Sequence[Amendment]) -> set[str]:
    """The file's name, and those that it had before."""
    names = {path}
    for entry in reversed(log):
        if entry.path in names and entry.kind is ChangeKind.MOVED and entry.source:
            names.add(entry.source)
    return names


def known_behind(before: KnownText, entry: Amendment) -> KnownText:
    """What is known behind an entry that says what the file holds, or that it is gone."""
    if entry.kind is ChangeKind.REMOVED:
        return KnownText()
    if entry.whole:
        return KnownText(whole=True)
    own = tuple((int(head[1]), int(head[2])) for head in EXCERPT.finditer(entry.text))
    parts = list(read_parts(entry.text))
    heads = tuple(replace(head, number=at) for head in before.heads if (at := line_now(head.number, parts)))
    spans = tuple(span for one in before.spans for span in span_now(one, parts))
    return KnownText(before.whole, (*spans, *own), heads)


def line_now(number: int, parts: Sequence[ChangedPart]) -> int | None:
    """The number that a line has behind these parts; None where they replace it."""
    above = [part for part in parts if part.old_start < number]
    if any(number <= part.old_end for part in above):
        return None
    return number + sum((part.end - part.start) - (part.old_end - part.old_start) for part in above)


def span_now(span: Span, parts: Sequence[ChangedPart]) -> list[Span]:
    """What of these lines the parts leave as they were, by the numbers that it has behind them."""
    first, last = span
    cuts = [part for part in parts if part.old_end >= first and part.old_start < last]
    starts = [first, *(max(first, part.old_end + 1) for part in cuts)]
    ends = [*(min(last, part.old_start) for part in cuts), last]
    left = [(start, end) for start, end in zip(starts, ends, strict=True) if start <= end]
    moved = ((line_now(start, parts), line_now(end, parts)) for start, end in left)
    return [(start, end) for start, end in moved if start and end]


def spans_now(span: Span, entries: Iterable[Amendment]) -> list[Span]:
    """The same behind entries of one file that were reported later."""
    spans = [span]
    for entry in entries:
        if entry.kind in (ChangeKind.CHANGED, ChangeKind.ADDED) and not entry.whole:
            parts = list(read_parts(entry.text))
            spans = [now for one in spans for now in span_now(one, parts)]
        else:
            return []
    return spans


# -- what lists say


def heads_in(text: str) -> tuple[Head, ...]:
    return tuple(Head(int(line[2]), line[1], line[3]) for line in LISTED.finditer(text))


# -- where listed lines are now


def moved_heads(pieces: Iterable[CodexPiece], log: Sequence[Amendment]) -> Mapping[int, str]:
    """What to write behind entries, by their number, so that lists in the floor can still be cited; none where none moved.

    The text behind an entry depends on those before it alone: it stays as it is when the log grows.
    """
    texts: dict[int, str] = {}
    for entry, before, _ in known_after(base_of(pieces), log):
        if before.heads and entry.kind is ChangeKind.CHANGED and not entry.whole:
            texts[entry.number] = moved_text(before.heads, list(read_parts(entry.text)))
    return {number: text for number, text in texts.items() if text}


def moved_text(heads: Iterable[Head], parts: Sequence[ChangedPart]) -> str:
    """Lines that have other numbers behind these parts; '' where none has."""
    ordered = sorted(heads, key=lambda head: head.number)
    moved = [(head, at) for head in ordered if (at := line_now(head.number, parts)) and at != head.number]
    if len(moved) <= MOST_LISTED:
        return "".join(
            f"{line}\n" for line in (MOVED, *(replace(head, number=at).written() for head, at in moved)) if moved
        )
    runs = [list(run) for _, run in groupby(moved, key=lambda pair: pair[1] - pair[0].number)]
    return f"{MOVED} {', '.join(_by_how_much(run) for run in runs)}\n"


def _by_how_much(run: Sequence[tuple[Head, int]]) -> str:
    (first, at), (last, _) = run[0], run[-1]
    return f"{first.number}-{last.number} by {at - first.number:+d}"
