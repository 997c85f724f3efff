"""Where chunks are cut, and what they are called."""

from codex.documents import Document
from codex.outline.chunking import ChunkSettings, chunk

BODY = "    value = 1\n" * 30


def chunks_of(text: str, path: str = "a.py", **limits: int) -> list[tuple[int, int, str]]:
    found = chunk(Document(path, text, "", len(text)), settings=ChunkSettings(**limits))
    return [(one.start, one.end, one.symbol) for one in found]


def test_an_empty_file_has_no_chunks() -> None:
    assert chunks_of("") == []


def test_a_small_file_is_one_chunk_known_by_its_largest_definition() -> None:
    assert chunks_of("import os\n\ndef a():\n    pass\n\ndef b():\n    x = 1\n    return x\n") == [(1, 8, "b")]


def test_definitions_are_cut_apart_with_the_comments_above_them() -> None:
    text = f"def first():\n{BODY}\n# about the second\n@wrapped\ndef second():\n{BODY}"
    assert chunks_of(text) == [(1, 32, "first"), (33, 65, "second")]


def test_a_large_class_is_cut_at_its_methods() -> None:
    body = "        value = 1\n" * 30
    text = "class Big:\n" + "".join(f"    def {name}(self):\n{body}" for name in ("one", "two", "three"))
    assert chunks_of(text) == [(1, 32, "Big"), (33, 63, "Big.two"), (64, 94, "Big.three")]


def test_a_long_function_keeps_its_name_in_every_piece() -> None:
    text = "def long():\n" + "    value = 1\n" * 150
    assert {symbol for _, _, symbol in chunks_of(text)} == {"long"}
    assert len(chunks_of(text)) == 3


def test_windows_end_at_blank_lines() -> None:
    text = ("word\n" * 9 + "\n") * 10
    assert [end for _, end, _ in chunks_of(text, "a.txt", max_lines=34)] == [30, 60, 90, 100]


def test_one_line_may_be_larger_than_the_limit() -> None:
    assert chunks_of("x" * 10_000 + "\ny\n", "a.txt") == [(1, 1, ""), (2, 2, "")]


def test_equal_texts_have_equal_digests_wherever_they_stand() -> None:
    one, other = (chunk(Document(path, "x = 1\n", "", 6))[0] for path in ("a.py", "b/c.py"))
    assert one.digest == other.digest
    assert len(one.digest) == 64
