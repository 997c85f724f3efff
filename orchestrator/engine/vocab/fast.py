"""tiktoken with the model's own ranks: several times llama.cpp's speed, where it is proven to give the same ids."""

import itertools
from array import array
from collections.abc import Callable

import numpy as np
import tiktoken

from orchestrator.engine.builtin.alphabet import to_bytes
from orchestrator.engine.vocab.native import Table, TokenKind

Encode = Callable[[str], "array[int]"]
PROBES = 2000  # tokens, spread over the vocabulary, whose texts are tried one by one
# Stands for a byte that no token of the vocabulary is. Above every id, below tiktoken's own end mark.
NO_TOKEN = 0xFFFF_0000


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
