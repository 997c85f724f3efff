"""What only vectors found must be near, and not merely the nearest."""

from statistics import median

from hypothesis import given
from hypothesis import strategies as st
from support.memory_archive import MemoryArchive
from support.memory_vectors import MemoryVectors
from support.word_embedder import WordEmbedder

from codex.documents import Document
from codex.searching.search import Search
from codex.vectors.embedder import space_of
from codex.vectors.filling import fill
from codex.vectors.search import FAR, UNRELATED, Background, stands_out

# Sixty-fourths, so that moving and stretching them is exact and no rounding decides.
COSINES = st.integers(-64, 64).map(lambda number: number / 64)
BACKGROUNDS = st.lists(COSINES, min_size=1, max_size=40)


@given(COSINES, BACKGROUNDS, st.sampled_from([0.25, 0.5, 2.0]), COSINES)
def test_a_model_whose_cosines_are_all_moved_and_stretched_decides_the_same(cosine, background, stretch, moved):
    other = [one * stretch + moved for one in background]
    near = cosine - median(background)
    spread = 1.4826 * median(abs(one - median(background)) for one in background)
    if abs(near - FAR * spread) > 1e-9:
        assert stands_out(cosine * stretch + moved, other) == stands_out(cosine, background)


@given(COSINES, COSINES, BACKGROUNDS)
def test_what_is_nearer_stands_out_where_what_is_farther_does(one, other, background):
    if stands_out(min(one, other), background):
        assert stands_out(max(one, other), background)


@given(BACKGROUNDS, st.randoms(use_true_random=False))
def test_the_order_of_the_background_says_nothing_and_its_middle_never_stands_out(background, random):
    shuffled = list(background)
    random.shuffle(shuffled)
    assert [stands_out(one, shuffled) for one in background] == [stands_out(one, background) for one in background]
    assert not stands_out(median(background), background)


@given(st.lists(COSINES, min_size=3, max_size=40), st.data())
def test_a_codex_about_one_of_the_unrelated_things_changes_little(background, data):
    """However near one question comes, the bound stays within what the others span."""
    at = data.draw(st.integers(0, len(background) - 1))
    moved = [*background[:at], 1.0, *background[at + 1 :]]
    others = [*background[:at], *background[at + 1 :]]
    above = max(others) + FAR * 1.4826 * (max(others) - min(others))
    assert stands_out(above + 1e-9, moved) or above >= 1.0


def test_where_there_is_no_background_nothing_stands_out():
    assert not stands_out(1.0, ())


FILES = {
    "net.py": "def open_line(target):\n    connect(target)\n",
    "store.py": "class TokenStore:\n    keep = 'token ids in a database'\n",
    "parse.py": "def parse_header(line):\n    return split_fields(line)\n",
}


class Interpreter(WordEmbedder):
    """Knows one foreign word beside the words of the code."""

    def _vector(self, text: str) -> list[float]:
        return super()._vector(text.replace("Kopfzeile", "parse_header(line) split_fields"))


def searching(embedder: WordEmbedder) -> Search:
    archive, vectors = MemoryArchive(), MemoryVectors()
    archive.replace("c", [Document(path, text, path, len(text)) for path, text in FILES.items()])
    fill(archive, vectors, embedder, "c")
    return Search(archive, embedder, vectors)


def test_what_no_word_found_and_is_near_in_meaning_is_found():
    found = searching(Interpreter()).search("Kopfzeile", "c")
    assert found.hits[0].path == "parse.py"
    assert found.notices == ()


def test_what_no_word_found_and_is_near_to_nothing_is_not_found_and_it_is_said():
    found = searching(WordEmbedder()).search("Kopfzeile", "c")
    assert found.hits == ()
    assert "hardly nearer to anything here" in found.notices[0]


def test_where_words_found_something_the_model_is_not_asked_for_a_background():
    embedder = WordEmbedder()
    searching(embedder).search("parse header", "c")
    assert embedder.asked[-1] == "parse header"
    assert not set(UNRELATED) & set(embedder.asked)


def test_the_background_is_asked_for_once_and_measured_again_when_vectors_have_come():
    embedder, vectors, archive = WordEmbedder(), MemoryVectors(), MemoryArchive()
    documents = [Document(path, text, path, len(text)) for path, text in FILES.items()]
    archive.replace("c", documents[:1])
    fill(archive, vectors, embedder, "c")
    background = Background()
    first = background.of("c", embedder, vectors)
    assert background.of("c", embedder, vectors) == first
    archive.replace("c", documents[1:])
    fill(archive, vectors, embedder, "c")
    second = background.of("c", embedder, vectors)
    assert len(first) == len(second) == len(UNRELATED)
    assert all(now >= before for before, now in zip(first, second, strict=True))
    assert sum(text in UNRELATED for text in embedder.asked) == len(UNRELATED)
    assert vectors.count("c", space_of(embedder)) == 3
