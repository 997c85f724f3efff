"""Filling the vectors of a codex: what is embedded, what is not embedded again, how it ends."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.memory_archive import MemoryArchive
from support.memory_vectors import MemoryVectors
from support.word_embedder import WordEmbedder

from codex.archive.archive import Archive
from codex.documents import Document, digest_of
from codex.vectors.embedder import EmbeddingFailed, space_of
from codex.vectors.filling import Filled, fill
from codex.vectors.index import VectorIndex
from codex.vectors.search import nearest_chunks


def documents(*names: str) -> list[Document]:
    texts = {f"{name}.py": f"def {name}():\n    return '{name}'\n" for name in names}
    return [Document(path, text, digest_of(text.encode()), len(text)) for path, text in texts.items()]


def stored(*names: str, codex: str = "c", archive: Archive | None = None) -> Archive:
    made = archive or MemoryArchive()
    made.replace(codex, documents(*names))
    return made


def test_every_text_is_embedded_once_and_progress_is_told() -> None:
    archive, vectors, embedder = stored("one", "two", "three"), MemoryVectors(), WordEmbedder()
    heard: list[Filled] = []
    filled = fill(archive, vectors, embedder, "c", on_batch=heard.append, batch=2)
    assert filled == Filled("c", 3, 3)
    assert filled.complete
    assert [one.embedded for one in heard] == [0, 2, 3]
    assert len(embedder.asked) == 3
    assert fill(archive, vectors, embedder, "c") == filled
    assert len(embedder.asked) == 3


def test_equal_texts_share_a_vector_and_are_found_at_all_their_places() -> None:
    archive, vectors, embedder = stored("one", "two"), MemoryVectors(), WordEmbedder()
    (copy,) = documents("one")
    archive.replace("c", [Document("copy/one.py", copy.text, copy.digest, copy.size)])
    assert fill(archive, vectors, embedder, "c").texts == 2
    near = nearest_chunks(archive, embedder, vectors, "one", "c", 2)
    assert [place.path for place, _ in near] == ["copy/one.py", "one.py"]


def test_after_an_edit_only_the_new_text_is_embedded_and_the_old_one_not_found() -> None:
    archive, vectors, embedder = stored("one", "two"), MemoryVectors(), WordEmbedder()
    fill(archive, vectors, embedder, "c")
    archive.replace("c", documents("three"), removed=["one.py"])
    assert fill(archive, vectors, embedder, "c").complete
    assert len(embedder.asked) == 3
    assert {place.path for place, _ in nearest_chunks(archive, embedder, vectors, "one", "c", 5)} == {
        "two.py",
        "three.py",
    }


def test_a_branch_that_is_checked_out_again_embeds_nothing() -> None:
    archive, vectors, embedder = stored("one", "two"), MemoryVectors(), WordEmbedder()
    fill(archive, vectors, embedder, "c")
    archive.replace("c", documents("other"), removed=["one.py"])
    fill(archive, vectors, embedder, "c")
    archive.replace("c", documents("one"), removed=["other.py"])
    assert fill(archive, vectors, embedder, "c").complete
    assert len(embedder.asked) == 3


def test_a_second_codex_of_the_same_tree_embeds_nothing(tmp_path: Path) -> None:
    archive, embedder = Archive(tmp_path / "archive"), WordEmbedder()
    vectors = VectorIndex(tmp_path / "vectors")
    stored("one", "two", archive=archive)
    fill(archive, vectors, embedder, "c")
    stored("one", "two", "three", codex="again", archive=archive)
    assert fill(archive, vectors, embedder, "again") == Filled("again", 3, 3)
    assert len(embedder.asked) == 3


def test_it_stops_between_batches_and_goes_on_in_another_process(tmp_path: Path) -> None:
    archive, embedder = stored("one", "two", "three"), WordEmbedder()
    stops = iter([False, True])
    filled = fill(archive, VectorIndex(tmp_path), embedder, "c", stopped=lambda: next(stops), batch=1)
    assert (filled.embedded, filled.complete) == (1, False)
    assert fill(archive, VectorIndex(tmp_path), embedder, "c").complete
    assert len(embedder.asked) == 3


def test_a_model_that_vanishes_is_reported_and_what_was_embedded_stays() -> None:
    archive, vectors = stored("one", "two", "three"), MemoryVectors()
    with pytest.raises(EmbeddingFailed, match="stopped after 2 of 3 texts: the model is gone; its vectors are kept"):
        fill(archive, vectors, WordEmbedder(lasts=2), "c", batch=1)
    again = WordEmbedder()
    assert fill(archive, vectors, again, "c").complete
    assert len(again.asked) == 1


def test_sources_are_embedded_before_tests_and_copies() -> None:
    archive, embedder = MemoryArchive(), WordEmbedder()
    paths = ("vendor/a.py", "tests/test_b.py", "src/z.py")
    archive.replace("c", [Document(path, f"x = {path!r}\n", path, 9) for path in paths])
    fill(archive, MemoryVectors(), embedder, "c")
    assert embedder.asked == [f"x = {path!r}" for path in reversed(paths)]


def test_a_text_that_changes_while_it_is_embedded_waits_for_the_next_fill() -> None:
    archive, vectors, embedder = stored("one", "two"), MemoryVectors(), WordEmbedder()

    def edited() -> bool:
        (old,) = documents("one")
        text = old.text.replace("return", "yield")
        archive.replace("c", [Document("one.py", text, digest_of(text.encode()), len(text))])
        return False

    assert not fill(archive, vectors, embedder, "c", stopped=edited).complete
    assert fill(archive, vectors, embedder, "c").complete
    assert sorted(text.split()[1] for text in embedder.asked) == ["one():", "two():"]


def test_the_old_embedder_s_vectors_go_when_the_new_one_s_are_complete() -> None:
    archive, vectors, old, new = stored("one", "two"), MemoryVectors(), WordEmbedder(), WordEmbedder(name="other")
    fill(archive, vectors, old, "c")
    fill(archive, vectors, new, "c", stopped=lambda: True)
    assert vectors.count("c", space_of(old)) == 2
    fill(archive, vectors, new, "c")
    assert (vectors.count("c", space_of(old)), vectors.count("c", space_of(new))) == (0, 2)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([], "gave 0 vectors for 1 texts"),
        ([[1.0, 0.0, 0.0]], "gave a vector of 3 numbers instead of 2"),
        ([[0.0, 0.0]], "gave a vector of length 0 instead of 1"),
        ([[math.nan, 1.0]], "gave a vector of length nan instead of 1"),
        ([[3.0, 4.0]], "gave a vector of length 5 instead of 1"),
    ],
)
def test_what_is_no_vector_is_refused(answer: list[list[float]], said: str) -> None:
    class Broken:
        name, dimensions = "broken", 2

        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            del texts
            return answer

    with pytest.raises(EmbeddingFailed, match=f"'broken' {said}"):
        fill(stored("one"), MemoryVectors(), Broken(), "c")


def test_nothing_is_asked_of_the_model_where_nothing_is_embedded() -> None:
    embedder = WordEmbedder()
    assert nearest_chunks(stored("one"), embedder, MemoryVectors(), "one", "c", 5) == ()
    assert embedder.asked == []


def test_sources_are_embedded_before_tests_and_what_programs_wrote_last_by_place_or_by_its_own_word() -> None:
    texts = {
        "a_pb2.py": "first = 1\n",
        "b_lib.py": "# Code generated by a tool. DO NOT EDIT.\nsecond = 2\n",
        "tests/c.py": "third = 3\n",
        "d.py": "fourth = 4\n",
    }
    archive, embedder = MemoryArchive(), WordEmbedder()
    archive.replace("c", [Document(path, text, digest_of(text.encode()), len(text)) for path, text in texts.items()])
    fill(archive, MemoryVectors(), embedder, "c", batch=1)
    assert embedder.asked == [texts[path].rstrip() for path in ("d.py", "tests/c.py", "a_pb2.py", "b_lib.py")]
