"""What a header says of its model: heads, quantisation, and whether it is one to talk with."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from governor.gguf import Gguf, Value, read_gguf
from governor.model_shape import no_chat, quantisation_of, shape_of


@pytest.fixture
def llama(tiny_model: Callable[..., Path]) -> Gguf:
    return read_gguf(tiny_model("llama"))


def with_keys(gguf: Gguf, **keys: Value) -> Gguf:
    return replace(gguf, metadata={**gguf.metadata, **{key.replace("__", "."): value for key, value in keys.items()}})


def test_heads_are_those_of_the_layer_that_has_most(llama: Gguf) -> None:
    blocks = llama.number("llama.block_count") or 0
    several = (2, *[0] * (blocks - 2), 4)
    shape = shape_of(with_keys(llama, llama__attention__head_count=8, llama__attention__head_count_kv=several))
    assert (shape.heads, shape.kv_heads) == (8, 4)
    without = {key: value for key, value in llama.metadata.items() if not key.endswith("head_count_kv")}
    shape = shape_of(replace(llama, metadata=without))
    assert shape.kv_heads == shape.heads > 0


def test_the_quantisation_is_what_the_file_calls_it_else_what_takes_most_bytes(llama: Gguf) -> None:
    assert quantisation_of(with_keys(llama, general__file_type=15)) == "Q4_K_M"
    assert quantisation_of(with_keys(llama, general__file_type=0)) == "F32"
    assert quantisation_of(with_keys(llama, general__file_type=1024)) == "F32"


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({}, ""),
        ({"llama__pooling_type": 0}, ""),
        ({"llama__pooling_type": 1}, "embedding"),
        ({"llama__pooling_type": 3}, "embedding"),
        ({"llama__pooling_type": 4}, "ranking"),
        ({"general__architecture": "bert"}, "embedding"),
        ({"general__architecture": "clip"}, "image part"),
        ({"general__type": "mmproj"}, "image part"),
        ({"general__type": "adapter"}, "adapter"),
        ({"general__type": "vocab"}, "no weights"),
    ],
)
def test_what_is_no_model_to_talk_with_says_what_it_is(llama: Gguf, keys: dict[str, Value], word: str) -> None:
    said = no_chat(with_keys(llama, **keys))
    assert word in said
    assert bool(said) == bool(word)


def test_a_file_without_tensors_holds_no_weights(llama: Gguf) -> None:
    assert "no weights" in no_chat(replace(llama, tensors=()))
