"""What a loaded model says about its tokens: texts, kinds, names. Read once; holds no pointer."""

import ctypes
import hashlib
from dataclasses import dataclass
from enum import IntFlag
from typing import Any

import llama_cpp as lib


class TokenKind(IntFlag):
    """llama.cpp's token attributes, as far as they matter here (`llama_token_attr` in llama.h)."""

    UNKNOWN = 1
    UNUSED = 2
    NORMAL = 4
    CONTROL = 8
    USER_DEFINED = 16
    BYTE = 32


@dataclass(frozen=True)
class Table:
    """Token texts are as the vocabulary writes them (byte alphabet or `▁`), not the bytes they stand for."""

    model: str  # tokenizer.ggml.model: gpt2, llama, bert, …
    pre: str  # tokenizer.ggml.pre; empty where the file names none
    texts: tuple[str, ...]
    kinds: tuple[int, ...]
    template: str
    add_bos: bool
    bos: int | None

    @property
    def is_byte_bpe(self) -> bool:
        return self.model == "gpt2"

    def of(self, kind: TokenKind) -> list[int]:
        return [n for n, kinds in enumerate(self.kinds) if kinds & kind]

    def digest(self) -> "hashlib._Hash":
        """Over everything read here. Merges cannot be read through llama.cpp; see Vocabulary.fingerprint."""
        digest = hashlib.sha256(f"{self.model}\0{self.pre}\0{self.add_bos}\0{self.bos}\0".encode())
        digest.update("\0".join(self.texts).encode("utf-8", "surrogateescape"))
        digest.update(",".join(map(str, self.kinds)).encode())
        return digest


def read_table(model: Any) -> Table:
    vocab = lib.llama_model_get_vocab(model)
    count = lib.llama_vocab_n_tokens(vocab)
    template = lib.llama_model_chat_template(model, None)
    bos = lib.llama_vocab_bos(vocab)
    return Table(
        model=metadata(model, "tokenizer.ggml.model"),
        pre=metadata(model, "tokenizer.ggml.pre"),
        texts=tuple(lib.llama_vocab_get_text(vocab, n).decode("utf-8", "surrogateescape") for n in range(count)),
        kinds=tuple(lib.llama_vocab_get_attr(vocab, n) for n in range(count)),
        template=(template or b"").decode("utf-8", "replace"),
        add_bos=bool(lib.llama_vocab_get_add_bos(vocab)),
        bos=bos if bos >= 0 else None,
    )


def metadata(model: Any, key: str) -> str:
    """A text value of the GGUF header, empty if there is none."""
    buffer = ctypes.create_string_buffer(256)
    length = lib.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace") if length >= 0 else ""
