import sqlite3
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest

from codex.catalog.tokens import TokenStore


class Words:
    """Ids are the lengths of words; remembers what it was asked."""

    def __init__(self, name: str = "words") -> None:
        self.name = name
        self.asked: list[str] = []

    def encode_many(self, texts: Sequence[str]) -> list["array[int]"]:
        self.asked += texts
        return [array("I", map(len, text.split())) for text in texts]


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path / "tokens.sqlite")


def test_a_text_is_tokenised_once_whoever_asks_again(store: TokenStore, tmp_path: Path) -> None:
    words = Words()
    assert store.ids(words, ["one three", "", "one three"]) == [array("I", [3, 5]), array("I"), array("I", [3, 5])]
    store.close()
    again = TokenStore(tmp_path / "tokens.sqlite")
    assert again.counts(words, ["one three", ""]) == [2, 0]
    assert words.asked == ["one three", ""]


def test_another_tokenizer_has_its_own_ids(store: TokenStore) -> None:
    one, other = Words("one"), Words("other")
    store.ids(one, ["a b"])
    store.ids(other, ["a b"])
    assert (one.asked, other.asked) == (["a b"], ["a b"])


def test_ids_use_the_whole_range_of_uint32(store: TokenStore) -> None:
    class Large(Words):
        def encode_many(self, texts: Sequence[str]) -> list["array[int]"]:
            return [array("I", [0, 2**32 - 1]) for _ in texts]

    for _ in range(2):
        assert store.ids(Large(), ["x"]) == [array("I", [0, 2**32 - 1])]


def test_trimming_drops_the_oldest_first(store: TokenStore) -> None:
    words = Words()
    for text in ["a b", "c d", "e f"]:
        store.ids(words, [text])
    assert store.bytes() == 24
    assert store.trim(16) == 1
    words.asked.clear()
    store.counts(words, ["e f", "c d", "a b"])
    assert words.asked == ["a b"]


def test_a_damaged_store_is_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "tokens.sqlite"
    path.write_bytes(b"damaged" * 1000)
    store = TokenStore(path)
    assert store.counts(Words(), ["a b c"]) == [3]


def test_a_tokenizer_that_returns_too_few_is_found_out(store: TokenStore) -> None:
    class Short(Words):
        def encode_many(self, texts: Sequence[str]) -> list["array[int]"]:
            return []

    with pytest.raises(ValueError, match="shorter"):
        store.ids(Short(), ["a"])


@pytest.mark.parametrize("work", ["ids", "counts", "bytes", "trim", "fresh"])
def test_a_file_whose_pages_are_damaged_is_begun_again_by_whatever_meets_it(tmp_path: Path, work: str) -> None:
    path, words = tmp_path / "tokens.sqlite", Words()
    texts = [f"{'word ' * 300}{number}" for number in range(200)]
    store = TokenStore(path)
    wanted = store.ids(words, texts)
    store.close()
    body = bytearray(path.read_bytes())
    body[4096:] = bytes(byte ^ 0xFF for byte in body[4096:])  # the first page is whole: the file opens
    path.write_bytes(body)
    again = TokenStore(path)
    if work == "bytes":
        assert again.bytes() == 0
    elif work == "trim":
        assert again.trim(0) == 0
    elif work == "counts":
        assert again.counts(words, texts) == [301] * len(texts)
    elif work == "fresh":
        assert again.ids(words, ["never seen"]) == [array("I", [5, 4])]
    assert again.ids(words, texts) == wanted
    words.asked.clear()
    assert again.ids(words, texts) == wanted
    assert words.asked == []


@pytest.mark.parametrize("column", ["ids", "ids_check", "count", "count_check", "text"])
def test_a_flipped_bit_is_a_miss_and_is_logged(tmp_path: Path, column: str, caplog: pytest.LogCaptureFixture) -> None:
    path, words = tmp_path / "tokens.sqlite", Words()
    store = TokenStore(path)
    wanted = store.ids(words, ["a bb", "ccc dddd"])
    store.close()
    with sqlite3.connect(path) as database:
        rows = database.execute(f"SELECT number, {column} FROM tokens").fetchall()
        database.executemany(f"UPDATE tokens SET {column} = ? WHERE number = ?", [(flipped(v), n) for n, v in rows])
    database.close()
    words.asked.clear()
    again = TokenStore(path)
    assert again.counts(words, ["a bb", "ccc dddd"]) == [2, 2]
    assert again.ids(words, ["a bb", "ccc dddd"]) == wanted
    assert sorted(words.asked) == ["a bb", "ccc dddd"]  # once: what is tokenised anew takes the place of the damaged
    assert ("2 entries" in caplog.text) == (column != "text")  # under another key it is another text, which nobody asks


def flipped(value: object) -> object:
    """With another lowest bit, or another first one of a text."""
    match value:
        case int():
            return value ^ 1
        case bytes():
            return bytes([value[0] ^ 1, *value[1:-1], value[-1] ^ 1])
        case _:
            return f"{int(str(value)[0], 16) ^ 1:x}{str(value)[1:]}"
