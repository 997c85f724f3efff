"""The binding of tree-sitter keeps what it is given to read; a parse that ends leaves nothing of it behind."""

import gc
import tracemalloc

import pytest

from codex.documents import Document, digest_of
from codex.outline.symbols import Pieces, outline

LARGE = "def f(x):\n    return x\n\n" * 6_000  # more than two pieces


def document(path: str, text: str) -> Document:
    return Document(path, text, digest_of(text.encode()), len(text))


@pytest.mark.parametrize(
    ("path", "text", "times"),
    [("a.py", LARGE[:20_000], 4), ("a.py", LARGE, 2), ("a.rb", "require 'a'\n" * 500, 10)],
    ids=["a piece", "several pieces", "a query with predicates"],
)
def test_texts_that_were_parsed_are_not_kept(path: str, text: str, times: int) -> None:
    outline(document(path, text))  # loads the grammar
    tracemalloc.start()
    try:
        for number in range(times):
            outline(document(path, f"{text}# {number}\n"))
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < max(len(text), 50_000)


def test_pieces_are_the_text_from_each_place() -> None:
    raw = LARGE.encode()
    pieces = Pieces(raw)
    read = b""
    while piece := pieces(len(read), None):
        read += piece
    assert read == raw


def test_behind_the_parse_each_place_still_gives_its_text() -> None:
    pieces = Pieces(b"alpha beta")
    pieces(0, None)
    pieces.parsed()
    assert (pieces(6, None), pieces(10, None)) == (b"beta", b"")
