"""Laws of every vocabulary. Nothing from a file, a memory or a client becomes a control token, whatever its text (law 3);
ids give the text back; the fast way gives llama.cpp's own ids. In one file, because reading a vocabulary takes a second."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.vocabularies import vocabulary_model

from orchestrator.engine.vocab import Vocabulary
from orchestrator.engine.vocab.vocabulary import NativeTokenizer, TokenKind, read_table, reserved_texts, sample

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
FAST = ("command-r", "gpt-2", "llama-bpe", "qwen2", "qwen35", "refact", "starcoder")
# Not falcon: it has no tokens for some control characters, and loses them.
EXACT = (*FAST, "aquila", "baichuan", "deepseek-coder", "deepseek-llm", "gemma-4", "llama-spm", "mpt", "phi-3")
CODE = inspect.getsource(gguf.GGUFReader) + inspect.getsource(st)
ALPHABET = st.sampled_from(list("ab1 \n\t<>|[]/_.é中😀"))


@dataclass(frozen=True)
class Loaded:
    name: str
    vocabulary: Vocabulary
    native: NativeTokenizer
    reserved: list[str]
    never: frozenset[int]  # control tokens, and the user-defined ones that content must not become either

    def check(self, text: str) -> None:
        ids = self.vocabulary.content(text)
        assert not self.never & set(ids)
        if self.name not in FOLDING:
            assert self.vocabulary.text(ids).decode() == text


def describe(name: str, model: Any) -> Loaded:
    table = read_table(model)
    reserved = reserved_texts(table)
    texts = set(reserved)
    defined = {n for n in table.of(TokenKind.USER_DEFINED) if table.texts[n] in texts}
    with pytest.MonkeyPatch.context() as patch:  # a quarter of a million tokens need not be read twice
        patch.setattr("orchestrator.engine.vocab.vocabulary.read_table", {model: table}.__getitem__)
        patch.setattr("orchestrator.engine.vocab.vocabulary.reserved_texts", {table: reserved}.__getitem__)
        vocabulary = Vocabulary(model)
    return Loaded(
        name,
        vocabulary,
        NativeTokenizer(model, table),
        reserved,
        frozenset(table.of(TokenKind.CONTROL)) | defined,
    )


@pytest.fixture(scope="module", params=NAMES)
def loaded(request: pytest.FixtureRequest, llama_sources: Path) -> Loaded:
    model = vocabulary_model(llama_sources / "models" / f"ggml-vocab-{request.param}.gguf")
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


def test_ids_give_the_text_back(loaded: Loaded) -> None:
    if loaded.name in EXACT:
        for text in (CODE, sample(), " leading", "trailing ", "\n\n  x", "x" * 3000, ""):
            assert loaded.vocabulary.text(loaded.vocabulary.content(text)).decode() == text


def test_the_fast_way_gives_the_ids_of_llama_cpp_on_real_code_and_any_text(loaded: Loaded) -> None:
    ours, theirs = loaded.vocabulary, loaded.native

    @given(st.text() | st.text(st.sampled_from(list("aZ1 .'\n\r\t-é中½\u0301\u00a0😀sStTlL"))))
    def law(text: str) -> None:
        assert ours.content(text) == theirs.encode(text, special=False)

    if loaded.name in FAST:
        assert ours.fast
        assert ours.content(CODE) == theirs.encode(CODE, special=False)
        law()


def test_sentencepiece_puts_no_space_before_a_piece(loaded: Loaded) -> None:
    if loaded.name in ("llama-spm", "phi-3", "baichuan"):
        ours = loaded.vocabulary
        assert ours.text([*ours.content("one"), *ours.content("two"), *ours.template("three")]) == b"onetwothree"


def test_template_text_makes_control_tokens_and_content_none(loaded: Loaded) -> None:
    if loaded.name == "llama-bpe":
        ours = loaded.vocabulary
        assert list(ours.template("<|begin_of_text|>hi")) == [128000, *ours.content("hi")]
        assert 128000 not in ours.content("<|begin_of_text|>hi")
        assert ours.text(ours.template("<|begin_of_text|>hi")) == b"hi"
