"""Law: a string that a text holds is found as it is, whatever stands around it; one that none holds is found nowhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import few

from codex.archive.archive import Archive
from codex.archive.substring_index import may_hold, sketch
from codex.documents import Document, digest_of

TEXTS = st.text(alphabet="ab_ .('é\U0001f600\ud800\n", max_size=40)
LINES = ("def parse_header(line):", "x = f'{name!r}: it''s'", '    é = naïve("ß")', "__all__ = ['a', 'b']", "Σίσυφος")


def split(sketches: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, sketches)])
    return offsets, np.frombuffer(b"".join(sketches), np.uint8)


@given(st.lists(st.lists(TEXTS, max_size=3), min_size=1, max_size=5), TEXTS, st.data())
def test_no_sketch_rules_out_what_its_file_holds(files: list[list[str]], other: str, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([text for texts in files for text in texts] or [""]))
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    offsets, body = split([sketch(texts) for texts in files])
    for wanted in (text[start:end], other):
        holding = {number for number, texts in enumerate(files) if any(wanted in one for one in texts)}
        assert holding <= set(may_hold(offsets, body, wanted).tolist())


def test_a_large_file_and_an_empty_one_are_told_apart_by_their_own_sketches() -> None:
    large = " ".join(f"word{number}" for number in range(100_000))
    offsets, body = split([sketch([]), sketch([large]), sketch(["word7 "])])
    assert may_hold(offsets, body, "word99999").tolist() == [1]
    assert may_hold(offsets, body, "word7 ").tolist() == [1, 2]
    assert may_hold(offsets, body, "abc").tolist() == [0, 1, 2]  # shorter than what sketches know of


def texts() -> list[str]:
    """A few lines each, in every order of two, and lines with parts of others' words."""
    pairs = [f"{one}\n{two}\n" for one in LINES for two in LINES]
    return [*pairs, "xparse_headery\n", "pre__all__post\n", "a" * 20_000 + " end\n", ""]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Some of it folded into the index, some not, some replaced."""
    archive = Archive(tmp_path_factory.mktemp("archive"))
    documents = [Document(f"{n}.py", text, digest_of(text.encode()), len(text)) for n, text in enumerate(texts())]
    archive.replace("c", [Document("0.py", "gone_and_never_found = 1\n", "0", 0), *documents[1:20]])
    archive.optimize("c")
    archive.replace("c", [documents[0], *documents[20:]])
    return archive


PIECES = st.sampled_from([*LINES, "header(", "rse_hea", "__all__", "gone_and", "a" * 19, "naïve", "'s'", "nowhere(x)"])


@few(25)
@given(PIECES, st.data())
def test_a_string_is_found_where_it_stands_and_nowhere_else(archive: Archive, piece: str, data: st.DataObject) -> None:
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(piece)), st.integers(0, len(piece)))))
    wanted = piece[start:end].strip() or piece
    holding = {f"{number}.py" for number, text in enumerate(texts()) if wanted in text}
    found = {match.place.path for match in archive.exact("c", wanted, 50)}
    assert found <= holding
    assert bool(found) == bool(holding)
