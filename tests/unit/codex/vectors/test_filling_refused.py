"""A text that the model can make nothing of is passed over; it never holds up the rest of its codex."""

import pytest
from support.memory_archive import MemoryArchive
from support.memory_vectors import MemoryVectors
from support.word_embedder import WordEmbedder

from codex.documents import Document, digest_of
from codex.vectors.embedder import UnembeddableText, space_of
from codex.vectors.filling import Filled, fill


class Choosy(WordEmbedder):
    """Refuses whole calls that hold one text without its word, as a model does whose words they have none of."""

    def embed(self, texts):
        for number, text in enumerate(texts):
            if "odd" in text:
                raise UnembeddableText(f"text {number} is empty: there is nothing to embed")
        return super().embed(texts)


def archive_of(*names):
    texts = {f"{name}.py": f"def {name}():\n    return '{name}'\n" for name in names}
    archive = MemoryArchive()
    archive.replace("c", [Document(path, text, digest_of(text.encode()), len(text)) for path, text in texts.items()])
    return archive


@pytest.mark.parametrize("names", [("one", "odd", "two"), ("odd",), ("odd", "odder", "one")])
@pytest.mark.parametrize("batch", [1, 2, 16])
def test_a_refused_text_is_passed_over_and_counted_as_done(names, batch):
    vectors, embedder = MemoryVectors(), Choosy()
    filled = fill(archive_of(*names), vectors, embedder, "c", batch=batch)
    odd = sum("odd" in name for name in names)
    assert filled == Filled("c", len(names), len(names), refused=odd)
    assert vectors.count("c", space_of(embedder)) == len(names) - odd
    assert fill(archive_of(*names), vectors, embedder, "c").complete  # after a restart too
