"""One piece of Markdown as a terminal shows it, by rich: imported where an answer is shown on a terminal, and only there.

Nothing that a model wrote is lost or hidden. HTML, entities, images and definitions of links stay text; names such as
`__init__` keep their underscores; lines stay lines; a link shows where it leads. No character of an answer drives the
terminal: each piece of text is made harmless behind the layout, where all control sequences are ours.
"""

import io
from collections.abc import Iterable, Iterator
from textwrap import dedent

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import box
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, TableElement
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.theme import Theme

from orchestrator.cli.pieces import Piece
from orchestrator.cli.places import PLACE
from orchestrator.cli.terminal import VISIBLE, Link

CODE_CONTEXT = 60  # lines above a line of code that decide its colours: a longer text between quotes is rare
COLOURS = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}
# The terminal's own colours, which suit its background; rich's have one of their own.
THEME = Theme({"markdown.code": "cyan", "markdown.h1": "bold underline", "markdown.item.number": "cyan"})
CODE_THEME = "ansi_dark"
LITERAL = ("em_open", "em_close", "strong_open", "strong_close")
PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
PARSER.disable(["reference", "entity", "image", "code"])


class Page:
    """Cutter of one width. `link` gives the URL of a place; it is asked only where `links` may be shown."""

    def __init__(self, columns: int, link: Link, *, coloured: bool, links: bool) -> None:
        self._console = Console(
            file=io.StringIO(),
            width=columns,
            force_terminal=True,
            color_system="auto" if coloured else None,
            theme=THEME,
            highlight=False,
            legacy_windows=False,
        )
        self._colours = COLOURS.get(self._console.color_system or "")
        self._link = link if links and self._colours else None

    def printed(self, piece: Piece, code: list[str]) -> str:
        """The piece with its line ends. `code`: the lines above it, where it is a line of code."""
        if piece.kind == "code":
            return self._ansi(self._coloured(piece, code)) + "\n"
        if piece.kind in ("fence", "end"):
            return self._ansi([Segment(piece.text.rstrip("\n"), Style(dim=True))]) + "\n"
        lines = list(self._lines(piece))
        if not holds("".join(segment.text for line in lines for segment in line), piece.text):
            lines = [[Segment(line)] for line in piece.text.splitlines()]
        return "".join(self._ansi(self._linked(line)) + "\n" for line in lines)

    def _lines(self, piece: Piece) -> Iterator[list[Segment]]:
        indent = len(piece.text) - len(piece.text.lstrip()) if piece.kind == "under" else 0
        indent = min(indent, self._console.width // 4)
        text = dedent(piece.text) if indent else piece.text
        options = self._console.options.update(width=self._console.width - indent)
        lines = [ended(line) for line in self._console.render_lines(AnswerMarkdown(text), options, pad=False)]
        while lines and not lines[0]:  # rich parts pieces by itself
            lines.pop(0)
        while lines and not lines[-1]:
            lines.pop()
        for line in lines:
            yield [Segment(" " * indent), *line] if line else line

    def _coloured(self, piece: Piece, code: list[str]) -> Iterable[Segment]:
        line = piece.text.rstrip("\n")
        if not piece.language or not self._colours:
            return [Segment(line)]
        whole = Syntax("", piece.language, theme=CODE_THEME, tab_size=0).highlight("".join((*code, piece.text)))
        whole.rstrip()
        return whole[-len(line) :].render(self._console) if line else ()

    def _linked(self, line: list[Segment]) -> list[Segment]:
        if self._link is None:
            return line
        found = [
            (one.span(), url) for one in PLACE.finditer("".join(s.text for s in line)) if (url := self._link(one[1]))
        ]
        for (start, end), url in found:
            line = list(marked(line, start, end, url))
        return line

    def _ansi(self, segments: Iterable[Segment]) -> str:
        return "".join(
            (style or Style()).render(text.translate(VISIBLE), color_system=self._colours)
            for text, style, _ in segments
        )


def holds(shown: str, text: str) -> bool:
    """Whether all letters and digits of a text are shown, in their order. Markdown takes `7.` for an item that is empty,
    leaves out cells that its table has no column for, and numbers items anew."""
    left = iter(shown)
    return all(one in left for one in text if one.isalnum())


def ended(line: list[Segment]) -> list[Segment]:
    """Without blanks at its end, which rich fills lines with."""
    while line and not line[-1].text.strip():
        line.pop()
    if line:
        line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
    return line


def marked(line: list[Segment], start: int, end: int, url: str) -> Iterator[Segment]:
    """Characters start to end, the last not included, lead to the URL."""
    at = 0
    for text, style, _ in line:
        first, last = max(start - at, 0), max(end - at, 0)
        at += len(text)
        parts = ((text[:first], style), (text[first:last], (style or Style()) + Style(link=url)), (text[last:], style))
        yield from (Segment(*part) for part in parts if part[0])


class FoldedTable(TableElement):
    """In a narrow terminal words are broken, never cut off."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
        for head in self.header.row.cells if self.header and self.header.row else ():
            table.add_column(head.content, overflow="fold", header_style="bold", min_width=1)
        for row in self.body.rows if self.body else ():
            table.add_row(*(cell.content for cell in row.cells))
        yield table


class LeftHeading(Heading):
    """All begin where the text does."""

    LEVEL_ALIGN = {}  # noqa: RUF012 - as rich has it


class AnswerMarkdown(Markdown):
    """Markdown as models write it about code."""

    elements = {**Markdown.elements, "heading_open": LeftHeading, "table_open": FoldedTable}  # noqa: RUF012 - as rich has it

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = PARSER.parse(text)
        for token in self.parsed:
            token.children = [kept(child) for child in token.children or ()]


def kept(token: Token) -> Token:
    """Marks of emphasis by underscores are text, and the end of a line ends it."""
    if token.type == "softbreak":
        return Token("hardbreak", "br", 0)
    if token.type in LITERAL and token.markup.startswith("_"):
        return Token("text", "", 0, content=token.markup)
    return token
