"""Of texts to choose from exactly those can be read, each in one way."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.llama.converter import literal, one_of

TEXTS = st.sets(st.text(alphabet='ab"\\ |(', max_size=6), min_size=1, max_size=30)


@given(TEXTS)
def test_what_can_be_read_is_what_was_given(texts: set[str]) -> None:
    read = list(Reader(one_of(texts)).alternatives())
    assert sorted(read) == sorted(texts)


@given(TEXTS)
def test_alternatives_part_at_their_first_character(texts: set[str]) -> None:
    reader = Reader(one_of(texts))
    list(reader.alternatives())
    for begins in reader.beginnings:
        firsts = [text[:1] for text in begins]
        assert len(firsts) == len(set(firsts))


def test_a_folder_s_name_is_written_once() -> None:
    names = [f"src/parts/{letter}{digit}" for letter in "xy" for digit in range(3)]
    assert one_of(names) == '"src/parts/" ("x" ("0" | "1" | "2") | "y" ("0" | "1" | "2"))'


def test_texts_that_each_begin_the_next_one_are_written_however_many_they_are() -> None:
    assert one_of({"a", "aa", "aaa"}) == '"a" ("" | "a" ("" | "a"))'
    assert one_of({"a" * size for size in range(1, 1200)}).count("(") == 1198


def test_quotes_and_backslashes_are_no_grammar() -> None:
    assert literal('a" | \\') == r'"a\" | \\"'


class Reader:
    """Every text of an expression of literals, bars and brackets; `beginnings`: those of each list of alternatives."""

    def __init__(self, expression: str) -> None:
        self._rest = expression
        self.beginnings: list[list[str]] = []

    def alternatives(self) -> Iterator[str]:
        found, begins = [], []
        while True:
            start = self._literal()
            begins.append(start)
            ends = [""]
            if self._skip(" ("):
                ends = list(self.alternatives())
                assert self._skip(")")
            found += [start + end for end in ends]
            if not self._skip(" | "):
                break
        self.beginnings.append(begins)
        yield from found

    def _literal(self) -> str:
        assert self._skip('"')
        text = ""
        while not self._skip('"'):
            self._skip("\\")
            text, self._rest = text + self._rest[0], self._rest[1:]
        return text

    def _skip(self, sign: str) -> bool:
        there = self._rest.startswith(sign)
        self._rest = self._rest[len(sign) :] if there else self._rest
        return there
