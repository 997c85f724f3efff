"""Cuts Markdown into pieces as it streams, so that a finished one is shown once for all; pure, standard library only.

It decides by whole lines, so pieces do not depend on how the text was cut into deltas. Joined, they are the text. It
cuts finer than Markdown does: each item of a list is a piece, and each line of code, for an open piece must stay short.
"""

import re
from dataclasses import dataclass
from typing import Literal

# text: a paragraph, heading, table, quote or rule; item: of a list, with what is nested in it; under: indented text below
# an item; fence, code, end: the lines of a code block; blank: an empty line between pieces
Kind = Literal["text", "item", "under", "fence", "code", "end", "blank"]
FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*$)|~{3,})[ \t]*(\S*)")
ITEM = re.compile(r" ?(?:[-*+]|(\d{1,9})[.)])(?:[ \t]+\S|[ \t]*$)")
RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")  # makes a heading of the paragraph above it
HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
LIST: frozenset[Kind] = frozenset(("item", "under"))
CODE: frozenset[Kind] = frozenset(("code", "end"))


@dataclass(frozen=True)
class Piece:
    """`text` has its line ends. `language` is that of a line of code, '' where none is named."""

    kind: Kind
    text: str
    language: str = ""


class Cutter:
    """The pieces of one text, which comes in deltas of any size."""

    def __init__(self) -> None:
        self._lines: list[str] = []  # whole lines of the open piece
        self._kind: Kind = "text"  # of the open piece
        self._rest: list[str] = []  # of the line that has no end yet
        self._fence = ""  # what opened the code block that is open
        self._language = ""
        self._in_list = False

    @property
    def open(self) -> str:
        """What belongs to no finished piece yet."""
        return "".join((*self._lines, *self._rest))

    @property
    def kind(self) -> Kind:
        """Of the open piece, as far as it can be known."""
        if self._fence:
            return "code"
        return self._kind if self._lines else "item" if self._in_list else "text"

    def feed(self, delta: str) -> list[Piece]:
        """The pieces that this delta finishes."""
        *whole, rest = delta.split("\n")
        finished: list[Piece] = []
        for line in whole:
            finished += self._line("".join((*self._rest, line)))
            self._rest = []
        if rest:
            self._rest.append(rest)
        return finished

    def end(self) -> list[Piece]:
        """The pieces that are left, where the text ends."""
        rest, self._rest = "".join(self._rest), []
        finished = list(self._line(rest)) if rest else []
        finished += self._close()
        if rest:  # the line has no end, and so has the piece that holds it
            last = finished[-1]
            finished[-1] = Piece(last.kind, last.text.removesuffix("\n"), last.language)
        return finished

    def _line(self, line: str) -> list[Piece]:
        if self._fence:
            return [self._in_code(line)]
        if opening := FENCE.match(line):
            self._fence, self._language = opening[1], opening[2].strip("{}.").lower()
            return [*self._close(), Piece("fence", line + "\n", self._language)]
        if not line.strip():
            return [*self._close(), Piece("blank", line + "\n")]
        if self._lines and self._kind == "text" and UNDERLINE.match(line):
            self._lines.append(line + "\n")
            return self._close()
        if HEADING.match(line) or RULE.match(line):
            finished = self._close()
            self._in_list = False
            return [*finished, Piece("text", line + "\n")]
        return self._words(line)

    def _in_code(self, line: str) -> Piece:
        mark = line.strip()
        if len(mark) >= len(self._fence) and mark == self._fence[0] * len(mark):
            self._fence = ""
            return Piece("end", line + "\n", self._language)
        return Piece("code", line + "\n", self._language)

    def _words(self, line: str) -> list[Piece]:
        """A line that begins a piece, or goes on with the open one."""
        finished: list[Piece] = []
        item = ITEM.match(line)
        if item and self._lines and self._kind == "text" and item[1] not in (None, "1"):
            item = None  # a number that happens to begin a line of a paragraph
        if item:
            finished = self._close()
            self._kind, self._in_list = "item", True
        elif not self._lines:
            self._in_list = self._in_list and line[:2].isspace()
            self._kind = "under" if self._in_list else "text"
        self._lines.append(line + "\n")
        return finished

    def _close(self) -> list[Piece]:
        lines, self._lines = self._lines, []
        return [Piece(self._kind, "".join(lines))] if lines else []


def parted(before: Kind | None, kind: Kind) -> bool:
    """Whether an empty line stands between two pieces; before: None, where nothing stands above."""
    if before is None:
        return False
    return not (kind in CODE or (before in LIST and kind in LIST))
