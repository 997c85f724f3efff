"""Tokenising: every pattern of the fast way is llama.cpp's own, and vocabularies are told apart."""

import functools
import inspect
import struct
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.vocabularies import vocabulary_model

from orchestrator.engine.builtin.alphabet import BYTE_TO_SIGN
from orchestrator.engine.builtin.shape import END, Tokens
from orchestrator.engine.vocab import Vocabulary
from orchestrator.engine.vocab.vocabulary import PATTERNS, NativeTokenizer, TextFinder, cut, read_table

CODE = inspect.getsource(gguf.GGUFReader) + inspect.getsource(st)


@functools.cache
def vocabulary(path: Path) -> tuple[Vocabulary, NativeTokenizer]:
    model = vocabulary_model(path)
    return Vocabulary(model), NativeTokenizer(model, read_table(model))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


# Of Unicode 16, which tiktoken knows and llama.cpp takes for unassigned: a letter to the one, a sign to the other.
YOUNG = (
    *(range(0x0897, 0x0898), range(0x1C89, 0x1C8B), range(0xA7CB, 0xA7DD), range(0x105C0, 0x10600)),
    *(range(0x10D40, 0x10D90), range(0x10EC2, 0x10EFD), range(0x11380, 0x11400), range(0x116D0, 0x11700)),
    *(range(0x11BC0, 0x11C00), range(0x11F5A, 0x11F5B), range(0x13460, 0x14400), range(0x16100, 0x16140)),
    *(range(0x16D40, 0x16D80), range(0x18CFF, 0x18D00), range(0x1CC00, 0x1CEC0), range(0x1E5D0, 0x1E600)),
)
ASSIGNED_ALIKE = [chr(code) for code in sorted({*range(0xD800), *range(0xE000, 0x20000)}.difference(*YOUNG))]
SOME = [*ASSIGNED_ALIKE[:0x3000], *ASSIGNED_ALIKE[0x3000::16]]
EVERY_CLASS = PATTERNS["qwen35"]  # letters, marks, digits and blanks, of which all others are made
BESIDE = b"aB1. x"


@pytest.fixture
def few_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all the text of a test is compared, or the name alone counts: llama.cpp takes a millisecond for each probe."""
    monkeypatch.setattr("orchestrator.engine.vocab.vocabulary.PROBES", 20)


def with_pre(folder: Path, pre: str) -> Path:
    """A vocabulary-only file under a pre-tokenizer's name, whose ids show where a text was cut: every byte merges with
    each of BESIDE on both its sides, and with nothing further."""
    path, own = folder / f"{pre}.gguf", gguf_text("any-name")
    plain = folder / "plain.gguf"
    if not plain.exists():
        write_plain(plain)
    held = plain.read_bytes()
    assert held.count(own) == 1
    path.write_bytes(held.replace(own, gguf_text(pre)))  # nothing lies behind the header that would have to be aligned
    return path


def gguf_text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def write_plain(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    describe_shape(writer)
    pairs = dict.fromkeys(pair for near in BESIDE for byte in range(256) for pair in ((near, byte), (byte, near)))
    merges = [(BYTE_TO_SIGN[left], BYTE_TO_SIGN[right]) for left, right in pairs]
    texts = (*BYTE_TO_SIGN.values(), *(left + right for left, right in merges), END)
    Tokens(texts, tuple(" ".join(merge) for merge in merges)).describe(writer)
    writer.kv_data[0]["tokenizer.ggml.pre"].value = "any-name"
    finish(writer)


def describe_shape(writer: gguf.GGUFWriter) -> None:
    for add in (
        writer.add_context_length,
        writer.add_embedding_length,
        writer.add_block_count,
        writer.add_head_count,
        writer.add_feed_forward_length,
    ):
        add(8)
    writer.add_layer_norm_rms_eps(1e-5)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.usefixtures("few_probes")
@pytest.mark.parametrize("pattern", sorted(set(PATTERNS.values())))
def test_every_pattern_agrees_with_llama_cpp_on_every_character(folder: Path, pattern: str) -> None:
    """Each character between letters, beside spaces, digits and signs, over the first two planes of Unicode 15; of those
    behind U+3000 every sixteenth where another pattern has them all."""
    pre = next(name for name, text in PATTERNS.items() if text == pattern)
    ours, theirs = vocabulary(with_pre(folder, pre))
    assert ours.fast
    signs = ASSIGNED_ALIKE if pattern == EVERY_CLASS else SOME
    lines = [f"a{sign}B {sign}{sign}1{sign}.{sign} x\n" for sign in signs]
    for at in range(0, len(lines), 1024):  # llama.cpp is slower with longer texts
        text = "".join(lines[at : at + 1024])
        assert ours.content(text) == theirs.encode(text, special=False), hex(ord(signs[at]))


@pytest.mark.usefixtures("few_probes")
@pytest.mark.parametrize("pre", sorted(PATTERNS))
def test_every_name_that_has_a_pattern_is_fast(folder: Path, pre: str) -> None:
    assert Vocabulary(vocabulary_model(with_pre(folder, pre))).fast


@pytest.mark.parametrize("pattern", sorted(set(PATTERNS.values())))
def test_every_pattern_is_fast_after_all_its_probes(folder: Path, pattern: str) -> None:
    pre = next(name for name, text in PATTERNS.items() if text == pattern)
    assert Vocabulary(vocabulary_model(with_pre(folder, pre))).fast


def test_a_lone_surrogate_becomes_the_replacement_character(quoter_model: Path) -> None:
    ours, _ = vocabulary(quoter_model)
    assert ours.text(ours.content("a\udcffb")).decode() == "a\ufffdb"


def test_fingerprints_tell_vocabularies_apart_and_nothing_else(folder: Path, quoter_model: Path) -> None:
    quoter = Vocabulary(vocabulary_model(quoter_model)).fingerprint
    assert vocabulary(quoter_model)[0].fingerprint == quoter
    assert Vocabulary(vocabulary_model(with_pre(folder, "qwen2"))).fingerprint != quoter


def test_threads_get_the_same_ids(quoter_model: Path) -> None:
    ours, _ = vocabulary(quoter_model)
    wanted = ours.content(CODE)
    with ThreadPoolExecutor(4) as pool:
        assert all(ids == wanted for ids in pool.map(ours.content, [CODE] * 8))


@given(st.text("<|a>"), st.lists(st.text("<|a>", min_size=2, max_size=4), min_size=1, max_size=4))
def test_a_cut_text_is_whole_again_when_joined_and_no_part_holds_a_reserved_text(
    text: str, reserved: list[str]
) -> None:
    parts = cut(text, TextFinder(reserved))
    assert "".join(parts) == text
    assert not any(word in part for part in parts for word in reserved)


def test_a_vocabulary_may_have_several_tokens_for_a_byte(folder: Path) -> None:
    """SentencePiece writes a space as a sign of three bytes; without a token for it each is a token of its own."""
    path = folder / "bytes.gguf"
    write_bytes_alone(path)
    ours, theirs = vocabulary(path)
    spaces = theirs.encode(" " * 400, special=False)
    assert len(spaces) == 3 * 400
    assert ours.content(" " * 400) == spaces


def write_bytes_alone(path: Path) -> None:
    """A vocabulary-only file of SentencePiece's kind, whose tokens are the bytes."""
    writer = gguf.GGUFWriter(path, "llama")
    describe_shape(writer)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))])
    writer.add_token_scores([0.0] * 259)
    kinds = gguf.TokenType
    writer.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256])
    finish(writer)
