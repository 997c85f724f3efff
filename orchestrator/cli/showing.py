"""An answer as it is shown while it comes: its text as it is, or as Markdown on a terminal.

On a terminal a finished piece is printed once for all. Of the piece that is still open the terminal has the text as it is,
which costs a write a delta and no layout; when the piece ends, these rows are erased and the piece is printed in one
write. So nothing flickers, and nothing above the open piece is ever drawn again. A piece that would outgrow the screen has
its end there alone, for rows that scrolled away cannot be erased.
"""

import os
import sys
import threading
import unicodedata
from collections.abc import Mapping
from importlib import import_module
from typing import Protocol

from orchestrator.cli.pieces import Cutter, Kind, Piece, parted
from orchestrator.cli.terminal import (
    NO_CURSOR,
    VISIBLE,
    Link,
    can_link,
    coloured,
    faint,
    is_terminal,
    result,
    safe,
    to_stderr,
    written,
)

SHOWN_TAB = "    "  # how wide a terminal's own is depends on where it stands


class Shown(Protocol):
    """Where an answer goes."""

    def text(self, delta: str) -> None: ...
    def thought(self, delta: str) -> None: ...
    def busy(self) -> bool:
        """Whether a line of progress would write over something."""

    def end(self) -> None:
        """All has come, or no more will."""


def shown(*, plain: bool, link: Link) -> Shown:
    """As Markdown where somebody watches a terminal that can do it, else as it is."""
    return Rendered(link) if not plain and can_render(os.environ) else Plain()


def can_render(environ: Mapping[str, str]) -> bool:
    return is_terminal(sys.stdout) and environ.get("TERM", "") not in NO_CURSOR


class Thoughts:
    """What a model thinks: dim, on a terminal alone, and apart from the answer by an empty line."""

    def __init__(self) -> None:
        self._end = ""  # the last that was shown

    def show(self, delta: str) -> None:
        if sys.stderr.isatty():
            to_stderr(faint(safe(delta, sys.stderr), sys.stderr))
            self._end = (self._end + delta)[-2:]

    def over(self) -> None:
        if self._end:
            to_stderr("\n" * (2 - (len(self._end) - len(self._end.rstrip("\n")))))
            self._end = ""


class Plain:
    """As it is, byte for byte; on a terminal without what would drive that."""

    def __init__(self) -> None:
        self._thoughts = Thoughts()
        self._last = "\n"

    def text(self, delta: str) -> None:
        self._thoughts.over()
        result(delta, end="")
        self._last = delta

    def thought(self, delta: str) -> None:
        self._thoughts.show(delta)

    def busy(self) -> bool:
        return False

    def end(self) -> None:
        if not self._last.endswith("\n"):
            result("")


class Rendered:
    """As Markdown, on a terminal that can move its cursor."""

    def __init__(self, link: Link) -> None:
        # While the daemon computes the prompt: rich takes 0.2 s of a processor, which the first piece would wait for.
        threading.Thread(target=import_module, args=("orchestrator.cli.markdown",), daemon=True).start()
        self._link = link
        self._pieces = Cutter()
        self._thoughts = Thoughts()
        self._open = OpenRows(*screen())
        self._before: Kind | None = None  # of the last piece that was printed
        self._led = False  # the empty line above the open piece stands there: what it will be is guessed as it begins
        self._code: list[str] = []  # of the open code block, what decides how its next line is coloured

    def text(self, delta: str) -> None:
        self._thoughts.over()
        delta = delta.translate(VISIBLE)
        finished = self._pieces.feed(delta)
        if finished:
            self._print(finished)
            delta = self._pieces.open
        if delta:
            begins = not self._open.rows
            if begins:  # spaces may be all that comes, and these are no piece
                self._led = self._parted(self._pieces.kind) and bool(delta.strip())
            written("\n" * (begins and self._led) + self._open.add(delta))

    def thought(self, delta: str) -> None:
        if self._open.rows:
            self._finish()
        self._thoughts.show(delta)

    def busy(self) -> bool:
        return bool(self._open.rows)

    def end(self) -> None:
        self._thoughts.over()
        self._finish()

    def _finish(self) -> None:
        self._print(self._pieces.end())

    def _parted(self, kind: Kind) -> bool:
        return parted(self._before, kind)

    def _print(self, pieces: list[Piece]) -> None:
        """In one write: the open rows go, and the pieces stand in their place."""
        from orchestrator.cli.markdown import CODE_CONTEXT, Page

        columns, rows = screen()
        led = self._led and bool(self._open.rows)
        output = [self._open.erase(columns)]
        page = Page(columns, self._link, coloured=coloured(sys.stdout), links=can_link(os.environ))
        for piece in pieces:
            if piece.kind == "blank":
                continue
            if self._parted(piece.kind) and not led:
                output.append("\n")
            led, self._before = False, piece.kind
            output.append(page.printed(piece, self._code))
            self._code = [*self._code[1 - CODE_CONTEXT :], piece.text] if piece.kind == "code" else []
        self._open = OpenRows(columns, rows)
        written("".join(output))


class OpenRows:
    """The rows of a terminal that the open piece has, as it is. It breaks lines itself, so it knows how many there are."""

    def __init__(self, columns: int, rows: int) -> None:
        self._columns = max(columns - 1, 1)  # in the last column terminals differ
        self._most = max(rows - 1, 1)
        self.rows: list[str] = []
        self._used = 0  # cells of the last row

    def add(self, text: str) -> str:
        """What the terminal has to be sent."""
        before = len(self.rows)
        laid = self._laid(text)
        if len(self.rows) <= self._most:
            return laid
        self.rows = self.rows[-max(self._most // 2, 1) :]
        return (erasing(before) if before else "") + "\n".join(self.rows)

    def erase(self, columns: int) -> str:
        """What erases them, also where the terminal has become narrower and broke them again."""
        if not self.rows:
            return ""
        return erasing(sum(max(1, -(-cells(row) // max(columns, 1))) for row in self.rows))

    def _laid(self, text: str) -> str:
        if not self.rows:
            self.rows.append("")
        out: list[str] = []
        for number, part in enumerate(text.replace("\t", SHOWN_TAB).split("\n")):
            if number:
                self._new_row(out)
            if part.isascii() and self._used + len(part) <= self._columns:  # nearly every delta
                out.append(part)
                self.rows[-1] += part
                self._used += len(part)
                continue
            for character in part:
                width = cells(character)
                if self._used + width > self._columns:
                    self._new_row(out)
                out.append(character)
                self.rows[-1] += character
                self._used += width
        return "".join(out)

    def _new_row(self, out: list[str]) -> None:
        out.append("\n")
        self.rows.append("")
        self._used = 0


def erasing(rows: int) -> str:
    """From the end of the last of them to the beginning of the first, which is then the cursor's place."""
    return "\r" + (f"\x1b[{rows - 1}A" if rows > 1 else "") + "\x1b[J"


def cells(text: str) -> int:
    """Columns that a text takes. An emoji of several characters is counted as too wide rather than too narrow."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def screen() -> tuple[int, int]:
    """Columns and rows; 80 and 24 where the terminal does not know."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24
