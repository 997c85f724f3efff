"""What the lanes rely on, held by the fake, by an encoder and by a model that reads one way only (with a KV cache)."""

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
from support.fake_engine import FakeEmbedding

from orchestrator.engine.backend import BackendError
from orchestrator.engine.builtin import ensure
from orchestrator.engine.builtin.shape import BuiltinShape, tensors, tokens, write_tensors
from orchestrator.engine.embedding.llama import LlamaEmbedding
from orchestrator.engine.embedding.port import (
    BATCH_TEXTS,
    BATCH_TOKENS,
    EmbeddingBackend,
    EmbeddingContext,
    Vectors,
    batches,
    cut,
    normalised,
)
from orchestrator.engine.model import EmbeddingSpec

ONE_WAY = BuiltinShape("reads one way", 2, 64, 4, 2, 16, 128, 10_000.0, 1e-5)
TEXTS = [
    "the socket refuses to connect",
    "retry when a socket refuses",
    "token ids are kept on disk",
    "\n\t",
    "Grüße 🦉",
]


def one_way(path: Path, pooling: gguf.PoolingType | None) -> Path:
    """A small causal model that says how its tokens are pooled, or does not."""
    vocabulary = tokens()

    def describe(writer: gguf.GGUFWriter) -> None:
        ONE_WAY.describe(writer)
        writer.add_vocab_size(len(vocabulary.texts))
        if pooling is not None:
            writer.add_pooling_type(pooling)
        vocabulary.describe(writer)

    write_tensors(path, "llama", describe, list(tensors(ONE_WAY, vocabulary)))
    return path


@pytest.fixture(scope="module", params=["fake", "encoder", "one way"])
def model(
    request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddingBackend]:
    if request.param == "fake":
        yield FakeEmbedding(window=48)
        return
    if request.param == "encoder":
        path = ensure("builtin:words", models)
    else:
        path = one_way(tmp_path_factory.mktemp("one-way") / "model.gguf", gguf.PoolingType.LAST)
    loaded = LlamaEmbedding(EmbeddingSpec(str(path), window=48, threads=1))
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def context(model: EmbeddingBackend) -> Iterator[EmbeddingContext]:
    opened = model.open()
    yield opened
    opened.close()


def alone(model: EmbeddingBackend, context: EmbeddingContext, text: str) -> Vectors:
    return normalised(context.vectors([cut(model.encode(text), model.window, model.ending)]))[0]


def test_a_batch_gives_each_text_the_vector_that_it_has_alone(
    model: EmbeddingBackend, context: EmbeddingContext
) -> None:
    together = normalised(context.vectors([model.encode(text) for text in TEXTS]))
    assert together.shape == (len(TEXTS), model.dimensions)
    assert together.dtype == np.float32
    for text, vector in zip(TEXTS, together, strict=True):
        assert vector @ alone(model, context, text) > 0.999, text  # another batch shape rounds otherwise


def test_the_same_text_twice_gives_the_same_bits(model: EmbeddingBackend, context: EmbeddingContext) -> None:
    first = alone(model, context, TEXTS[0])
    alone(model, context, TEXTS[2])
    assert (alone(model, context, TEXTS[0]) == first).all()


def test_another_context_of_the_same_model_gives_the_same_vector(
    model: EmbeddingBackend, context: EmbeddingContext
) -> None:
    other = model.open()
    assert (alone(model, other, TEXTS[1]) == alone(model, context, TEXTS[1])).all()
    other.close()


def test_other_texts_have_other_vectors(model: EmbeddingBackend, context: EmbeddingContext) -> None:
    vectors = np.stack([alone(model, context, text) for text in TEXTS])
    assert ((vectors @ vectors.T - 2 * np.eye(len(TEXTS))) < 0.999).all()


def test_a_text_longer_than_the_window_is_its_beginning(model: EmbeddingBackend, context: EmbeddingContext) -> None:
    words = [f"w{n}" for n in range(300)]
    ids = model.encode(" ".join(words))
    read = cut(ids, model.window, model.ending)
    assert len(read) == model.window < len(ids)
    assert read[: model.window - model.ending] == ids[: model.window - model.ending]
    assert read[model.window - model.ending :] == ids[len(ids) - model.ending :]
    assert np.isfinite(context.vectors([read])).all()


def test_the_largest_batch_fits(model: EmbeddingBackend, context: EmbeddingContext) -> None:
    ids = cut(model.encode("word " * 500), model.window, model.ending)
    texts = [ids] * (BATCH_TOKENS // len(ids))
    assert context.vectors(texts).shape == (len(texts), model.dimensions)
    short = [model.encode("a")] * BATCH_TEXTS
    assert context.vectors(short).shape == (BATCH_TEXTS, model.dimensions)
    assert [len(part) for part in batches([BATCH_TOKENS // BATCH_TEXTS] * BATCH_TEXTS)] == [BATCH_TEXTS]


# ---- what is no embedding model --------------------------------------------------------------------------------------


def test_a_model_that_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="ranks texts and gives no vectors"):
        LlamaEmbedding(EmbeddingSpec(str(one_way(tmp_path / "rank.gguf", gguf.PoolingType.RANK))))


@pytest.mark.parametrize("pooling", [None, gguf.PoolingType.NONE])
def test_a_model_that_only_writes_text_is_refused(tmp_path: Path, pooling: gguf.PoolingType | None) -> None:
    with pytest.raises(BackendError, match="is no embedding model"):
        LlamaEmbedding(EmbeddingSpec(str(one_way(tmp_path / "chat.gguf", pooling))))


def test_a_missing_file_is_told_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"cannot load .*/nowhere\.gguf"):
        LlamaEmbedding(EmbeddingSpec(str(tmp_path / "nowhere.gguf")))


@pytest.mark.parametrize("kept", [10, 3000, 200_000])
def test_a_truncated_file_is_refused(models: Path, tmp_path: Path, kept: int) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(ensure("builtin:words", models).read_bytes()[:kept])
    with pytest.raises(BackendError, match="cannot load"):
        LlamaEmbedding(EmbeddingSpec(str(damaged)))


def test_the_window_is_the_models_or_what_was_asked_for_if_that_is_less(models: Path) -> None:
    path = str(ensure("builtin:words", models))
    windows = []
    for asked in (0, 100, 100_000):
        loaded = LlamaEmbedding(EmbeddingSpec(path, window=asked))
        windows.append(loaded.window)
        loaded.close()
    assert windows == [2048, 100, 2048]
