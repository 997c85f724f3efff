"""Which lines of a file those know who were told its floor and its log, by the numbers that these lines have now. Pure.

    floor  whole, or by the lines that a skeleton or a map lists        7   def route(self)
    log    whole, or by changed parts                                   ten lines in place of lines 1-2
    known  what was replaced is known as it was told, all else moves    15   def route(self)

A skeleton stands in the floor and is never touched; so whoever changes lines above it tells where its lines are now, as
long as that is short, and else by how much they moved. Knows pieces and entries, no prompt and no disk.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from codex.amendments import Amendment, ChangeKind
from formatters.context import CodexPiece
from orchestrator.codices.changed import Part, read_parts

LISTED = re.compile(r"^([^\S\n]*)(\d+)( .*)$", re.MULTILINE)  # a line of a skeleton or a map begins with its number
EXCERPT = re.compile(r"^lines (\d+)-(\d+), .*:\n", re.MULTILINE)  # the head of a changed part
MOST_TOLD = 40  # listed lines that moved; of more it is told by how much
MOVED = "Lines that were listed before and have moved:"

Span = tuple[int, int]  # lines from 1, both inclusive


@dataclass(frozen=True, slots=True)
class Head:
    """A line that stands for a definition: its number, and what stands before and behind it in the list."""

    number: int
    before: str
    behind: str

    def said(self) -> str:
        return f"{self.before}{self.number}{self.behind}"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one file."""

    whole: bool = False
    spans: tuple[Span, ...] = ()
    heads: tuple[Head, ...] = ()


Base = Callable[[str], Known]


def base_of(pieces: Iterable[CodexPiece]) -> Base:
    """What a floor of these pieces shows of a file, by its path."""
    by_path = {piece.path: piece for piece in pieces if piece.kind != "map"}
    maps = [piece.text for piece in pieces if piece.kind == "map"]

    def base(path: str) -> Known:
        piece = by_path.get(path)
        if piece is not None:
            return Known(whole=True) if piece.kind == "full" else Known(heads=heads_in(piece.text))
        return Known(heads=tuple(head for text in maps for head in heads_in(section(text, path))))

    return base


def known_after(base: Base, log: Iterable[Amendment]) -> Iterator[tuple[Amendment, Known, Known]]:
    """Each entry with what was known of its file before it, and what is then."""
    states: dict[str, Known] = {}
    for entry in log:
        before = states[entry.path] if entry.path in states else base(entry.path)
        if entry.told is ChangeKind.MOVED and entry.source:
            after = states[entry.source] if entry.source in states else base(entry.source)
        elif entry.told is ChangeKind.RESTORED:
            after = base(entry.path)
        else:
            after = changed(before, entry)
        states[entry.path] = after
        yield entry, before, after


def known_now(path: str, base: Base, log: Sequence[Amendment]) -> Known:
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
        if entry.path in names and entry.told is ChangeKind.MOVED and entry.source:
            names.add(entry.source)
    return names


def changed(before: Known, entry: Amendment) -> Known:
    """What is known behind an entry that says what the file holds, or that it is gone."""
    if entry.told is ChangeKind.REMOVED:
        return Known()
    if entry.whole:
        return Known(whole=True)
    own = tuple((int(head[1]), int(head[2])) for head in EXCERPT.finditer(entry.text))
    parts = parts_of(entry)
    heads = tuple(replace(head, number=at) for head in before.heads if (at := line_now(head.number, parts)))
    spans = tuple(span for one in before.spans for span in span_now(one, parts))
    return Known(before.whole, (*spans, *own), heads)


def parts_of(entry: Amendment) -> list[Part] | None:
    """None where it does not say what its parts stand for, as an earlier version wrote it: nobody can say what moved."""
    try:
        return list(read_parts(entry.text))
    except ValueError:
        return None


def line_now(number: int, parts: Sequence[Part] | None) -> int | None:
    """The number that a line has behind these parts; None where they replace it."""
    if parts is None:
        return None
    above = [part for part in parts if part.old_start < number]
    if any(number <= part.old_end for part in above):
        return None
    return number + sum((part.end - part.start) - (part.old_end - part.old_start) for part in above)


def span_now(span: Span, parts: Sequence[Part] | None) -> list[Span]:
    """What of these lines the parts leave as they were, by the numbers that it has behind them."""
    if parts is None:
        return []
    first, last = span
    cuts = [part for part in parts if part.old_end >= first and part.old_start < last]
    starts = [first, *(max(first, part.old_end + 1) for part in cuts)]
    ends = [*(min(last, part.old_start) for part in cuts), last]
    left = [(start, end) for start, end in zip(starts, ends, strict=True) if start <= end]
    moved = ((line_now(start, parts), line_now(end, parts)) for start, end in left)
    return [(start, end) for start, end in moved if start and end]


def spans_now(span: Span, entries: Iterable[Amendment]) -> list[Span]:
    """The same behind entries of one file that were told later."""
    spans = [span]
    for entry in entries:
        if entry.told in (ChangeKind.CHANGED, ChangeKind.ADDED) and not entry.whole:
            parts = parts_of(entry)
            spans = [now for one in spans for now in span_now(one, parts)]
        else:
            return []
    return spans


# -- what lists say


def heads_in(text: str) -> tuple[Head, ...]:
    return tuple(Head(int(line[2]), line[1], line[3]) for line in LISTED.finditer(text))


def section(text: str, path: str) -> str:
    """What a map says of a file: the indented lines behind its name."""
    _, found, behind = f"\n{text}".partition(f"\n{path}\n")
    end = re.search(r"^\S", behind, re.MULTILINE) if found else None
    return behind[: end.start()] if end else behind


# -- where listed lines are now


def moved_heads(pieces: Iterable[CodexPiece], log: Sequence[Amendment]) -> Mapping[int, str]:
    """What to tell behind entries, by their number, so that lists in the floor can still be cited; none where none moved.

    What is told behind an entry rests on those before it alone: a log that grows tells them as it did.
    """
    told: dict[int, str] = {}
    for entry, before, _ in known_after(base_of(pieces), log):
        parts = parts_of(entry) if entry.told is ChangeKind.CHANGED and not entry.whole else None
        if before.heads and parts and (text := moved_text(before.heads, parts)):
            told[entry.number] = text
    return told


def moved_text(heads: Iterable[Head], parts: Sequence[Part]) -> str:
    """Lines that have other numbers behind these parts; '' where none has."""
    ordered = sorted(heads, key=lambda head: head.number)
    moved = [(head, at) for head in ordered if (at := line_now(head.number, parts)) and at != head.number]
    if len(moved) <= MOST_TOLD:
        return "".join(
            f"{line}\n" for line in (MOVED, *(replace(head, number=at).said() for head, at in moved)) if moved
        )
    runs = [list(run) for _, run in groupby(moved, key=lambda pair: pair[1] - pair[0].number)]
    return f"{MOVED} {', '.join(_by_how_much(run) for run in runs)}\n"


def _by_how_much(run: Sequence[tuple[Head, int]]) -> str:
    (first, at), (last, _) = run[0], run[-1]
    return f"{first.number}-{last.number} by {at - first.number:+d}"
