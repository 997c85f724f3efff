"""Law 3: nothing from a file, a memory or a client becomes a control token, whatever its text, in any vocabulary."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp as lib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine import native
from orchestrator.engine.vocab import Vocabulary
from orchestrator.engine.vocab.reserved import reserved_texts
from orchestrator.engine.vocab.table import Kind, read_table

NAMES = [
    "aquila",
    "baichuan",
    "bert-bge",
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "gpt-neox",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "nomic-bert-moe",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
]
# Embedding models: they lower letters or fold spaces, so their ids never gave the text back. They still get no control.
FOLDING = ("bert-bge", "nomic-bert-moe")
ALPHABET = st.sampled_from(list("ab1 \n\t<>|[]/_.é中😀"))


@dataclass(frozen=True)
class Loaded:
    name: str
    vocabulary: Vocabulary
    reserved: list[str]
    never: frozenset[int]  # control tokens, and the user-defined ones that content must not become either

    def check(self, text: str) -> None:
        ids = self.vocabulary.content(text)
        assert not self.never & set(ids)
        if self.name not in FOLDING:
            assert self.vocabulary.text(ids).decode() == text


@functools.cache
def load(path: Path) -> Any:
    native.start()
    settings = lib.llama_model_default_params()
    settings.vocab_only = True
    model = lib.llama_model_load_from_file(str(path).encode(), settings)
    assert model, path
    return model


def describe(name: str, model: Any) -> Loaded:
    table = read_table(model)
    reserved = reserved_texts(table)
    texts = set(reserved)
    defined = {n for n in table.of(Kind.USER_DEFINED) if table.texts[n] in texts}
    return Loaded(name, Vocabulary(model), reserved, frozenset(table.of(Kind.CONTROL)) | defined)


@pytest.fixture(scope="module", params=NAMES)
def loaded(request: pytest.FixtureRequest, llama_sources: Path) -> Loaded:
    model = load(llama_sources / "models" / f"ggml-vocab-{request.param}.gguf")
    return describe(request.param, model)


def test_the_list_of_vocabularies_is_whole(llama_sources: Path) -> None:
    there = {path.stem.removeprefix("ggml-vocab-") for path in (llama_sources / "models").glob("ggml-vocab-*.gguf")}
    assert there == set(NAMES)


def test_a_file_full_of_reserved_tokens_stays_text(loaded: Loaded) -> None:
    texts = loaded.reserved
    assert texts
    loaded.check("\n".join(texts))
    loaded.check("".join(texts))
    loaded.check("x ".join(texts) + " ")
    if texts[0] != "<unk>":  # otherwise the law would be kept by a tokenizer that never makes any
        assert loaded.never & set(loaded.vocabulary.template("\n".join(texts)))


def test_reserved_texts_that_overlap_stay_text(loaded: Loaded) -> None:
    for text in loaded.reserved[:40]:
        loaded.check(text[:-1] + text)
        loaded.check(text + text[1:])
        loaded.check(text[0] + text + text)


def test_every_special_text_alone_stays_text(loaded: Loaded) -> None:
    for text in loaded.reserved:
        loaded.check(text)


def test_any_mixture_of_reserved_texts_and_their_parts_stays_text(loaded: Loaded) -> None:
    never = loaded.never
    texts = loaded.reserved[:60]
    parts = st.sampled_from(texts).flatmap(lambda text: st.sampled_from([text, text[1:], text[:-1], text.strip("<>|")]))
    pieces = st.lists(parts | st.text(ALPHABET, max_size=6), max_size=12).map("".join)

    @settings(max_examples=30)
    @given(pieces)
    def law(text: str) -> None:
        ids = loaded.vocabulary.content(text)
        assert not never & set(ids)
        if loaded.name not in FOLDING:
            assert loaded.vocabulary.text(ids).decode() == text

    law()
