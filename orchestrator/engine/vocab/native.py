"""What a loaded model says about its tokens, read once, and llama.cpp's own tokenizer, called on one text.

The tokenizer may be called from several threads: it only reads the vocabulary.
"""

import ctypes
import hashlib
from array import array
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


# A piece that SentencePiece puts its leading space before, in place of our text's; control characters merge with nothing.
STARTERS = ("\x1f", "\x01", "\n")


class NativeTokenizer:
    """`encode` gives ids that stand for exactly this text in the middle of others: no space is put before it."""

    def __init__(self, model: Any, table: Table) -> None:
        self._vocab = lib.llama_model_get_vocab(model)
        self._tokens = len(table.texts)
        self._starters = [] if table.is_byte_bpe else self._find_starters()
        self._pieces: dict[int, bytes] = {}

    def encode(self, text: str, *, special: bool) -> "array[int]":
        """Ids of a text; with `special` the texts of control tokens become control tokens."""
        for starter, known in self._starters:
            ids = self._tokenize(starter + text, special)
            if ids[: len(known)] == known:
                return ids[len(known) :]
        return self._tokenize(text, special)

    def piece(self, token: int) -> bytes:
        """What a token stands for; nothing for a control token, and for an id that no token has."""
        known = self._pieces.get(token)
        if known is None:
            if not 0 <= token < self._tokens:
                return b""  # llama.cpp would end the process
            known = self._pieces[token] = self._read_piece(token)
        return known

    def _tokenize(self, text: str, special: bool) -> "array[int]":
        return tokenized(self._vocab, text.encode("utf-8", "replace"), around=False, special=special)

    def _read_piece(self, token: int) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = lib.llama_token_to_piece(self._vocab, token, buffer, size, 0, False)
            if length >= 0:
                return buffer.raw[:length]
            size = -length

    def _find_starters(self) -> "list[tuple[str, array[int]]]":
        """Those whose ids stay the same whatever follows; none for a vocabulary that has no way to write them."""
        alone = [(starter, self._tokenize(starter, special=False)) for starter in STARTERS]
        return [
            (starter, ids) for starter, ids in alone if ids and self._tokenize(starter + "a", False)[: len(ids)] == ids
        ]


def tokenized(vocabulary: Any, text: bytes, *, around: bool, special: bool) -> "array[int]":
    """Ids of a text, as llama.cpp gives them; `around`: with those that the model wants at its beginning and its end."""
    room = len(text) + 8  # one token a byte, and a leading space; a vocabulary that needs more says how many
    while True:
        ids = array("I", bytes(4 * room))
        buffer = (lib.llama_token * room).from_buffer(ids)
        count = lib.llama_tokenize(vocabulary, text, len(text), buffer, room, around, special)
        del buffer  # it holds the array's size fixed
        if count >= 0:
            del ids[count:]
            return ids
        room = -count
