"""Law: the chunks of a file cover every line exactly once, in order, whatever the file holds."""

from hypothesis import given
from hypothesis import strategies as st
from support.examples import few

from codex.documents import Document, lines
from codex.outline.chunking import Chunk, ChunkSettings, chunk
from codex.outline.symbols import Outline, Symbol

LINE = st.one_of(
    st.sampled_from(
        [
            "",
            "    ",
            "def a():",
            "    def b(self):",
            "class C:",
            "    x = 1",
            "@wrapped",
            "# said",
            "}",
            "{",
            '"""',
            "\f",
        ]
    ),
    st.text(max_size=40),
)
TEXT = st.lists(LINE, max_size=150).map("\n".join)
PATH = st.sampled_from(["a.py", "a.js", "a.md", "a.c", "a.unknown", "a.json", "a.go", "a.css"])
LIMITS = st.builds(
    ChunkSettings, max_lines=st.integers(1, 60), max_chars=st.integers(1, 600), join_lines=st.integers(1, 60)
)


def document(path: str, text: str) -> Document:
    return Document(path, text, "", len(text))


def covered(chunks: tuple[Chunk, ...]) -> list[int]:
    return [line for one in chunks for line in range(one.start, one.end + 1)]


@few(50)
@given(PATH, TEXT, LIMITS)
def test_chunks_tile_every_file(path: str, text: str, limits: ChunkSettings) -> None:
    chunks = chunk(document(path, text), settings=limits)
    assert covered(chunks) == list(range(1, len(lines(text)) + 1))


@few(50)
@given(PATH, TEXT, LIMITS)
def test_chunks_are_bounded_unless_they_are_one_line(path: str, text: str, limits: ChunkSettings) -> None:
    for one in chunk(document(path, text), settings=limits):
        if one.start < one.end:
            assert one.end - one.start < limits.max_lines
            assert len(one.text) < limits.max_chars


@few(40)
@given(TEXT, st.lists(st.tuples(st.integers(1, 120), st.integers(0, 80)), max_size=20), LIMITS)
def test_chunks_tile_for_any_outline(text: str, ranges: list[tuple[int, int]], limits: ChunkSettings) -> None:
    """Also for outlines that overlap or reach beyond the file: a grammar may be wrong, the law holds."""
    count = len(lines(text))
    symbols = tuple(
        Symbol(f"s{start}", f"s{start}", "function", start, start + length, "")
        for start, length in sorted(ranges, key=lambda one: (one[0], -one[1]))
        if start <= count
    )
    chunks = chunk(document("a.py", text), Outline(symbols), limits)
    assert covered(chunks) == list(range(1, count + 1))


@few(25)
@given(PATH, TEXT)
def test_the_texts_of_chunks_are_the_file(path: str, text: str) -> None:
    assert "\n".join(one.text for one in chunk(document(path, text))) == "\n".join(lines(text))
