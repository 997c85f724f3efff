"""What holds for any answer that is shown on a terminal."""

import io
import re
from contextlib import redirect_stdout

from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.cli.markdown import Page
from orchestrator.cli.pieces import Cutter, Piece, parted
from orchestrator.cli.showing import OpenRows, Rendered
from orchestrator.cli.terminal import VISIBLE

MARKS = [
    "```",
    "```python\n",
    "~~~",
    "\n",
    "\n\n",
    "- ",
    "1. ",
    "12) ",
    "  ",
    "    ",
    "\t",
    "# ",
    "---",
    "===",
    "> ",
    "**",
]
WORDS = [
    "__",
    "_",
    "`",
    "word",
    "a.py:3",
    "é",
    "漢字",
    "<b>",
    "&#27;",
    "[x](y)",
    "![i](j)",
    "*",
    "[x]: y\n",
    "\\",
    "'''",
    '"',
]
PIECES = st.sampled_from([*MARKS, *WORDS, "| a | b |\n", "|---|---|\n", "def f(x):\n", "e\u0301"])
ANSWERS = st.lists(PIECES | st.text(max_size=5), max_size=40).map("".join)
HOSTILE = st.lists(
    PIECES
    | st.sampled_from(
        ["\x1b]8;;http://e\x1b\\", "\x1b[2J", "\x9b31m", "\r", "\x07", "\u202e", "\x1b", "\x00", "&#x202e;"]
    ),
    max_size=30,
).map("".join)
# All that may drive the terminal: colours, and links to files of ours.
OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;(?:id=\d+)?;(?:file:///[\w/.%]*)?\x1b\\")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def pieces_of(text: str, cuts: list[int]) -> list[Piece]:
    reader, found, at = Cutter(), [], 0
    for cut in sorted(cut % (len(text) + 1) for cut in cuts):
        found += reader.feed(text[at:cut])
        at = cut
    return [*found, *reader.feed(text[at:]), *reader.end()]


def printed(text: str, *, columns: int = 80, coloured: bool = True) -> str:
    page = Page(columns, lambda path: f"file:///codex/{path}", coloured=coloured, links=True)
    out, code, before = [], [], None
    for piece in pieces_of(text, []):
        if piece.kind == "blank":
            continue
        out.append("\n" * parted(before, piece.kind) + page.printed(piece, code))
        before = piece.kind
        code = [*code, piece.text] if piece.kind == "code" else []
    return "".join(out)


@given(ANSWERS, st.lists(st.integers(0, 10_000), max_size=8))
def test_the_blocks_of_an_answer_joined_are_its_text_however_it_came(text, cuts):
    pieces = pieces_of(text, cuts)
    assert "".join(piece.text for piece in pieces) == text
    assert pieces == pieces_of(text, [])


@given(ANSWERS)
def test_what_is_open_and_what_is_finished_are_all_that_came(text):
    reader, finished = Cutter(), ""
    for at, character in enumerate(text, start=1):
        finished += "".join(piece.text for piece in reader.feed(character))
        assert finished + reader.open == text[:at]


@given(HOSTILE, st.sampled_from([1, 3, 20, 80]))
def test_no_character_of_an_answer_drives_the_terminal(text, columns):
    assert CONTROL.search(OURS.sub("", printed(text, columns=columns))) is None


@given(HOSTILE)
def test_without_colour_no_sequence_at_all_is_printed(text):
    assert CONTROL.search(printed(text, coloured=False)) is None


@given(
    st.lists(st.sampled_from(["ab", "\n", "漢", "e\u0301", "x" * 9, "\t"]), max_size=30),
    st.integers(2, 12),
    st.integers(2, 8),
)
def test_the_rows_of_an_open_block_are_those_of_the_screen(deltas, columns, height):
    """A terminal that knows line ends, the cursor and erasing alone shows exactly the rows that are counted."""
    rows = OpenRows(columns, height)
    screen = Screen(columns)
    for delta in deltas:
        screen.write(rows.add(delta))
        assert screen.lines == (rows.rows or [""])
        assert len(screen.lines) <= height - 1
    screen.write(rows.erase(columns))
    assert screen.lines == [""]


@given(ANSWERS, st.sampled_from([8, 20, 80]))
def test_no_letter_of_an_answer_is_lost(text, columns):
    shown = iter(printed(text, columns=columns, coloured=False))
    assert [one for one in text if one.isalnum() and one not in shown] == []


@given(ANSWERS, st.lists(st.integers(0, 10_000), max_size=8))
@example("- \n\n```", [])
@example("# a\n  ", [])
@example("# a\n  b", [6])
@example("- a\n\n```\nb\n```\n", [5, 6])
def test_a_terminal_ends_with_the_same_lines_however_an_answer_came(text, cuts):
    screen = Screen(80)
    with redirect_stdout(io.StringIO()) as terminal:
        view, at = Rendered(lambda _: None), 0
        for cut in [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]:
            view.text(text[at:cut])
            at = cut
        view.end()
    screen.write(terminal.getvalue())
    assert screen.lines == printed(text.translate(VISIBLE), coloured=False).split("\n")


class Screen:
    """Rows that a terminal has, all of them; what goes up may not go beyond its 24."""

    def __init__(self, columns: int) -> None:
        self.columns, self.lines, self.row = columns, [""], 0

    def write(self, text: str) -> None:
        for part in re.findall(r"\x1b\[\d*[AJ]|[^\x1b]", text):
            if part == "\n":
                self.row += 1
                self.lines.append("")
            elif part.endswith("A") and len(part) > 1:
                assert int(part[2:-1]) < 24
                self.row -= int(part[2:-1])
                assert self.row >= 0
            elif part == "\x1b[J":
                self.lines = [*self.lines[: self.row], ""]
            elif part != "\r":
                self.lines[self.row] += part
