"""tiktoken with the model's own ranks: several times llama.cpp's speed, where it is proven to give the same ids."""

from array import array
from collections.abc import Callable

import numpy as np
import tiktoken

from orchestrator.engine.builtin.alphabet import to_bytes
from orchestrator.engine.vocab.patterns import PATTERNS
from orchestrator.engine.vocab.sample import sample
from orchestrator.engine.vocab.table import Table, TokenKind

Encode = Callable[[str], "array[int]"]
PROBES = 2000  # tokens, spread over the vocabulary, whose texts are tried one by one


# Stands for a byte that no token of the vocabulary is. Above every id, below tiktoken's own end mark.
NO_TOKEN = 0xFFFF_0000


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
