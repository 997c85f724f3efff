"""The vocabulary of a loaded model: what crosses between text and ids.

Content is never control. It is cut inside every reserved text, tokenised with special tokens off, and the ids are checked
afterwards. Only `template` makes control tokens. It knows no blocks, caches nothing but the pieces of single tokens,
and may be used from one thread while another one decodes.

Ids come from llama.cpp's own tokenizer, or, several times as fast, from tiktoken with the model's own ranks where it is
proven to give the same: on all of Unicode 15. Letters that are new in Unicode 16 are signs to llama.cpp.
"""

import ctypes
import hashlib
import itertools
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntFlag
from itertools import pairwise
from typing import Any

import llama_cpp as lib
import numpy as np
import tiktoken

from orchestrator.engine.builtin.alphabet import to_bytes
from orchestrator.engine.messages import well_formed

HEAD = 3  # characters that texts are first looked for by; `<|` alone is frequent in code
# A piece that SentencePiece puts its leading space before, in place of our text's; control characters merge with nothing.
STARTERS = ("\x1f", "\x01", "\n")
PROBES = 2000  # tokens, spread over the vocabulary, whose texts are tried one by one
# Stands for a byte that no token of the vocabulary is. Above every id, below tiktoken's own end mark.
NO_TOKEN = 0xFFFF_0000
Encode = Callable[[str], "array[int]"]


class Vocabulary:
    """Made from a `llama_model` pointer, which must outlive it; `vocab_only` models will do.

    `fingerprint`: what cached ids depend on, nothing else. `fast`: whether tiktoken was proven to agree on this vocabulary.
    """

    def __init__(self, model: Any) -> None:
        table = read_table(model)
        self._native = NativeTokenizer(model, table)
        self._forbidden = np.zeros(len(table.texts), bool)
        self._forbidden[table.of(TokenKind.CONTROL)] = True
        reserved = set(reserved_texts(table))
        self._reserved = TextFinder(reserved)
        self._defined = TextFinder({table.texts[n] for n in table.of(TokenKind.USER_DEFINED)} - reserved)
        self._fast = fast_encoder(table, self._slow)
        self.fast = self._fast is not None
        self.fingerprint = self._fingerprint(table)

    def content(self, text: str) -> "array[int]":
        """Ids of a text that nobody vouches for. No id is a control token's; `text` of them gives the text back."""
        text = well_formed(text)
        parts = cut(text, self._reserved)
        ids = self._ordinary(parts[0]) if parts else array("I")
        for part in parts[1:]:
            ids.extend(self._ordinary(part))
        return ids

    def template(self, text: str) -> "array[int]":
        """Ids of the template's own text: texts of control tokens become control tokens."""
        return self._native.encode(well_formed(text), special=True)

    def text(self, ids: Sequence[int]) -> bytes:
        """What ids stand for, control tokens as nothing. Bytes, because a token may end inside a character."""
        return b"".join(map(self._native.piece, ids))

    def _ordinary(self, text: str) -> "array[int]":
        """Ids of a text without reserved texts in it."""
        fast = self._fast is not None and not self._defined.within(text)
        ids = self._fast(text) if fast and self._fast is not None else self._slow(text)
        return ids if not self._has_control(ids) else self._halved(text)

    def _halved(self, text: str) -> "array[int]":
        """A vocabulary whose merges make a control token out of plain text gets it in smaller parts.

        One whose word for an unknown character is a control token (BERT's) loses that character.
        """
        if len(text) == 1:
            return array("I")
        middle = len(text) // 2
        return self._ordinary(text[:middle]) + self._ordinary(text[middle:])

    def _slow(self, text: str) -> "array[int]":
        return self._native.encode(text, special=False)

    def _has_control(self, ids: "array[int]") -> bool:
        return bool(self._forbidden[np.frombuffer(ids, np.uint32)].any()) if ids else False

    def _fingerprint(self, table: "Table") -> str:
        """Tokens, kinds and names; the ids of a sample stand for the merges, which llama.cpp does not hand out."""
        digest = table.digest()
        digest.update(self.content(sample()).tobytes())
        return digest.hexdigest()


# -- reserved texts


class TextFinder:
    """Where any of many texts begins in another one. Built once; looking costs little where nothing is found."""

    def __init__(self, texts: Iterable[str]) -> None:
        by_head: dict[str, list[str]] = {}
        for text in texts:
            by_head.setdefault(text[:HEAD], []).append(text)
        self._by_head = {head: tuple(found) for head, found in by_head.items()}

    def starts(self, text: str) -> list[int]:
        """Sorted; overlapping ones too."""
        found: set[int] = set()
        for head, texts in self._by_head.items():
            at = text.find(head)
            while at >= 0:
                if text.startswith(texts, at):
                    found.add(at)
                at = text.find(head, at + 1)
        return sorted(found)

    def within(self, text: str) -> bool:
        return any(head in text for head in self._by_head) and bool(self.starts(text))


def reserved_texts(table: "Table") -> list[str]:
    """Texts that content must never become whole.

    Those of control tokens; of unknown, unused and byte tokens, which would come back as another text; and of user-defined
    ones that the template uses or that look like `<…>` or `[…]`. Switching special tokens off is not enough: llama.cpp
    skips CONTROL and UNKNOWN then, but always matches USER_DEFINED, and SentencePiece merges may walk to any token whose
    text stands there.
    """
    never = int(TokenKind.CONTROL | TokenKind.UNKNOWN | TokenKind.UNUSED | TokenKind.BYTE)
    defined = int(TokenKind.USER_DEFINED)
    return [
        text
        for text, kinds in zip(table.texts, table.kinds, strict=True)
        if len(text) > 1 and (kinds & never or (kinds & defined and speaks_to_the_template(text, table)))
    ]


def speaks_to_the_template(text: str, table: "Table") -> bool:
    return looks_reserved(text) or bool(text.strip() and text in table.template)


def looks_reserved(text: str) -> bool:
    return len(text) > 2 and (text[0] + text[-1]) in ("<>", "[]")


def cut(text: str, finder: TextFinder) -> list[str]:
    """The parts of a text, cut behind the first character of every reserved text in it. Joined they are the text."""
    edges = [0, *(start + 1 for start in finder.starts(text)), len(text)]
    return [text[left:right] for left, right in pairwise(edges) if left < right]


# -- llama.cpp's tokenizer and what it says of its tokens


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
        wanted = int(kind)  # a flag's own `&` takes ten times as long, for each token of a vocabulary
        return [n for n, kinds in enumerate(self.kinds) if kinds & wanted]

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


# -- tiktoken, where it gives the same ids

# How llama.cpp cuts text into pieces before merging, as one pattern for tiktoken, for the pre-tokenizers where that is
# possible. A pattern is only a claim: `agree` proves it on the vocabulary at hand. Where llama.cpp applies two patterns one
# after the other, the second sees the ends of what the first left: white space before a digit is therefore at an end.
# Source: `llm_tokenizer_bpe` in llama.cpp's src/llama-vocab.cpp.
_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT2_DIGITS = r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?=\p{N})|\s+(?!\S)|\s+"

_LLAMA = rf"{_CONTRACTION}|{_WORDS}|\p{{N}}{{1,3}}|{_SIGNS}"
_QWEN = rf"{_CONTRACTION}|{_WORDS}|\p{{N}}|{_SIGNS}"
_QWEN_MARKS = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# "No small letter" and "no capital" mean the ASCII ones there: é may stand in both.
_CASED = r"[^\r\n\p{L}\p{N}]?(?:[\p{L}--[a-z]]*[\p{L}--[A-Z]]+%s|[\p{L}--[a-z]]+[\p{L}--[A-Z]]*%s)"
_CASED_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT4O = rf"{_CASED % (_CONTRACTION + '?', _CONTRACTION + '?')}|\p{{N}}{{1,3}}|{_CASED_SIGNS}"
_TEKKEN = rf"{_CASED % ('', '')}|\p{{N}}|{_CASED_SIGNS}"

_FAMILIES = {
    _LLAMA: "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 smaug-bpe dbrx glm4 glm5 chatglm-bpe",
    _GPT2_DIGITS: "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
    _GPT2: "gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum modern-bert",
    _QWEN: "qwen2 deepseek-r1-qwen kormo stablelm2 hunyuan megrez solar-open grok-2",
    _QWEN_MARKS: "qwen35",
    _GPT4O: "gpt-4o llama4 kanana2 talkie minimax-m2",
    _TEKKEN: "tekken",
}
PATTERNS = {name: pattern for pattern, names in _FAMILIES.items() for name in names.split()}


def fast_encoder(table: Table, slow: Encode) -> Encode | None:
    """tiktoken's encoder for this vocabulary, or None where it has no pattern, cannot be built, or differs from `slow`."""
    pattern = PATTERNS.get(table.pre)
    if pattern is None or not table.is_byte_bpe:
        return None
    ranks = read_ranks(table)
    encoding = tiktoken.Encoding(table.pre, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def encode(text: str) -> "array[int]":
        ids = array("I", encoding.encode_ordinary(text))  # `encode_to_numpy` looks for special tokens, a third slower
        if ids and np.frombuffer(ids, np.uint32).max() >= NO_TOKEN:
            return slow(text)
        return ids

    return encode if agree(encode, slow, ranks) else None


def read_ranks(table: Table) -> dict[bytes, int]:
    """Ranks are ids, as in every vocabulary whose merges were numbered as they were learnt.

    Many lack tokens for bytes that UTF-8 never or hardly ever uses; tiktoken panics without all 256, so it gets marks.
    """
    ranks = {bytes([byte]): NO_TOKEN + byte for byte in range(256)}
    for token in table.of(TokenKind.NORMAL):
        try:
            ranks[to_bytes(table.texts[token])] = token
        except KeyError:  # not written in the byte alphabet: no merge leads there
            continue
    return ranks


def agree(fast: Encode, slow: Encode, ranks: dict[bytes, int]) -> bool:
    text = sample()
    step = max(1, len(ranks) // PROBES)
    probes = [data.decode("utf-8", "replace") for data in list(ranks)[::step]]
    return all(fast(part) == slow(part) for part in [text, " ".join(probes), "\n".join(probes), *probes])


_WRITTEN = (
    "import os\nfrom typing import Any\n\n\nclass LRUCache2(dict[str, Any]):\n\tdef __getitem__(self, key: str) -> Any:"
    "\n        return super().__getitem__(key)  # it's O(1), isn't it? they'll say I'd've DON'T CAN'T we'RE\n"
    "for (int i = 0; i < 1234567; ++i) { a[i] += 0x1F & ~b; }  // 3.14159e-10\r\n\r\n   \r\n"
    "<div class=\"x\">&amp;</div> {{ jinja }} {% if x %} $HOME /usr/lib/x86_64 foo.bar?baz=1&q='2'#frag\n"
    "SELECT * FROM t WHERE x != 'it''s';;; ---- ==== #### !!!??? ... :::: ((([[[{{{}}}]]])))\n"
    "The quick brown fox; naïve café façade, Straße, ÆØÅ, İstanbul, ĳsvrij, Ωμέγα, Привет мир, שלום, مرحبا بالعالم\n"
    "日本語のテキスト 中文字符，标点。 한국어 문장 ไทย हिन्दी বাংলা ᏣᎳᎩ\n"
    "½ ² ① Ⅷ ٣ ৪ ％ € £ ¥ → ⇒ ∀x∈ℝ ≤ ≥ ≠ ± × ÷ • … — – “q” ‘s’\n"
    "😀👩‍👩‍👧‍👦🏳️‍🌈👍🏽🇩🇪 e\u0301 a\u0308 \u00a0nbsp\u2003em\u3000ideographic\u200b"
    "zero\ufeffbom \u2028ls\u2029ps\x0bvt\x0cff\x85nel\n"
)
_SPACES = ("", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n", "\n  ", "\t\t ", "  \t", "\r", "\n \n\n   ")
_BESIDE = ("", "a", "Z", "1", "1234", ".", "'s", "'S", "-", "é", "中", "😀", "_", "\u0301", "½", "#")


def sample() -> str:
    """About 6,000 characters: code and prose of many scripts, and every kind of white space beside every kind of sign."""
    runs = "".join(left + space + right for left, right, space in itertools.product(_BESIDE, _BESIDE, _SPACES))
    return _WRITTEN + runs
