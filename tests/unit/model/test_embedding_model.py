"""Which model embeds: found by its header alone, and told when it is none."""

import gguf
import pytest

from orchestrator.engine.builtin import ensure
from orchestrator.model.embedding_model import EmbeddingChoice, find_embedding
from orchestrator.settings.model import EmbeddingSettings


def found(model, models, **settings):
    return find_embedding(EmbeddingSettings(model=str(model), **settings), models)


def header(path, pooling=None, causal=None, length=64):
    writer = gguf.GGUFWriter(path, "bert")
    if length:
        writer.add_embedding_length(length)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    if causal is not None:
        writer.add_causal_attention(causal)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_no_setting_is_no_model_and_no_fault(models):
    assert find_embedding(EmbeddingSettings(), models) == EmbeddingChoice()


def test_the_built_in_model_is_made_and_its_dimensions_read(models):
    model = found("builtin:words", models, window=100, threads=2)
    assert model.file.dimensions == 256
    assert (model.spec.window, model.spec.threads) == (100, 2)
    assert model.file.name.startswith("words-")
    assert model.fault == ""


@pytest.mark.parametrize("pooling", [gguf.PoolingType.MEAN, gguf.PoolingType.CLS, gguf.PoolingType.LAST])
def test_a_model_that_pools_embeds(tmp_path, models, pooling):
    assert found(header(tmp_path / "model.gguf", pooling), models).file.dimensions == 64


def test_an_encoder_without_pooling_embeds(tmp_path, models):
    assert found(header(tmp_path / "model.gguf", causal=False), models).fault == ""


@pytest.mark.parametrize(
    ("pooling", "causal", "length", "why"),
    [
        (gguf.PoolingType.RANK, False, 64, "ranking model"),
        (None, None, 64, "writes text"),
        (gguf.PoolingType.NONE, True, 64, "writes text"),
        (gguf.PoolingType.MEAN, False, 0, "length of its vectors"),
    ],
)
def test_a_model_that_does_not_embed_says_what_it_is(tmp_path, models, pooling, causal, length, why):
    model = found(header(tmp_path / "model.gguf", pooling, causal, length), models)
    assert (model.file, model.spec) == (None, None)
    assert why in model.fault


def test_the_model_that_quotes_is_named_with_its_architecture(models):
    assert "architecture llama that writes text" in found(ensure("builtin:quoter", models), models).fault


@pytest.mark.parametrize("model", ["builtin:word", "builtin:quoter"])
def test_only_built_in_models_that_embed_are_offered_in_place_of_one_that_does_not(tmp_path, model):
    fault = found(model, tmp_path).fault
    assert fault.startswith(model)
    assert fault.endswith("built in to embed: builtin:words")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", ["builtin:nothing", "/nowhere/model.gguf", "/"])
def test_a_model_that_cannot_be_read_is_a_fault_that_names_it(models, model):
    assert model in found(model, models).fault
    assert found(model, models).file is None


def test_a_damaged_file_is_a_fault(tmp_path, models):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + b"\xff" * 100)
    assert str(path) in found(path, models).fault
