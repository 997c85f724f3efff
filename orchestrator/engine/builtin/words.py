"""The built-in model that embeds: a text's vector is the weighted mean of a code for each of its tokens. Nothing is learnt.

Two texts are near when they share uncommon words, or pieces of words. It knows no synonyms and no order, so it stands in
for an embedding model in tests and demonstrations, and is never chosen where nobody named it.

    one token's row: 240 content ─ weight × code of its word          architecture `bert`, one layer of zeros, pooling mean.
                      16 ballast ─ +r −r +r −r …                      Each LayerNorm then finds mean 0 and variance 1 and
                                                                      changes nothing; the last one drops the ballast.

A code is a sum of hashes: of the word itself, without case and the signs around it, and of its three-letter
pieces, so that `Request`, ` request` and `_requests` are near each other. The weight grows with the rank of the merge that
made the token: merges were found in the order of their frequency, so a late one is a rare one.
"""

import hashlib
import string
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import gguf
import numpy as np

from orchestrator.engine.builtin.alphabet import to_bytes
from orchestrator.engine.builtin.shape import Tensor, Tokens, Weights, write_tensors

WIDTH, CONTENT = 256, 240  # one hash of SHA-256 gives the signs of a code
WINDOW = 2048
FEED = 32
PIECE = 3  # letters
PIECES_COUNT = 0.7  # of what the whole word counts
SIGN, LETTER = 0.03, 0.1  # weights of tokens without letters and digits, and of single ones
HALF_RANK = 1000  # the merge whose token counts half; `self` and `return` stand before the 70th
EPSILON = 1e-12
AROUND = string.punctuation + string.whitespace


def write(path: Path, vocabulary: Tokens) -> None:
    """Raises OSError."""
    write_tensors(path, "bert", partial(describe, vocabulary), list(tensors(vocabulary)))


def describe(vocabulary: Tokens, writer: gguf.GGUFWriter) -> None:
    writer.add_name("Lorekeep words (self-test: near is what shares words)")
    writer.add_organization("Lorekeep")
    writer.add_license("mit")
    writer.add_context_length(WINDOW)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(1)
    writer.add_layer_norm_eps(EPSILON)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_vocab_size(len(vocabulary.texts))
    writer.add_token_type_count(1)
    vocabulary.describe(writer)


def tensors(vocabulary: Tokens) -> Iterator[Tensor]:
    """All tensors in file order."""
    yield "token_embd.weight", (len(vocabulary.texts), WIDTH), partial(embeddings, vocabulary)
    yield zeros("position_embd.weight", WINDOW, WIDTH)
    yield from norm("token_embd_norm", np.ones)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        yield zeros(f"blk.0.{name}.weight", WIDTH, WIDTH)
    yield from norm("blk.0.attn_output_norm", np.ones)
    yield zeros("blk.0.ffn_up.weight", FEED, WIDTH)
    yield zeros("blk.0.ffn_down.weight", WIDTH, FEED)
    yield from norm("blk.0.layer_output_norm", without_ballast)


def zeros(name: str, *shape: int) -> Tensor:
    return name, shape, partial(np.zeros, shape)


def norm(name: str, weight: Callable[[int], Weights]) -> Iterator[Tensor]:
    yield f"{name}.weight", (WIDTH,), partial(weight, WIDTH)
    yield zeros(f"{name}.bias", WIDTH)


def without_ballast(width: int) -> Weights:
    return np.where(np.arange(width) < CONTENT, 1.0, 0.0)


def embeddings(vocabulary: Tokens) -> Weights:
    """Rows of mean 0 and variance 1, so that LayerNorm keeps their weights."""
    rows = np.zeros((len(vocabulary.texts), WIDTH))
    for number, text in enumerate(vocabulary.texts[:-1]):
        signs_and_word = to_bytes(text).decode("latin-1").lower()
        word = signs_and_word.strip(AROUND) or signs_and_word
        rows[number, :CONTENT] = weight(number, word) * code(word)
    ballast = np.sqrt((WIDTH - (rows**2).sum(axis=1, keepdims=True)) / (WIDTH - CONTENT))
    rows[:, CONTENT:] = ballast * np.tile([1.0, -1.0], (WIDTH - CONTENT) // 2)
    return rows


def weight(number: int, word: str) -> float:
    letters = sum(map(str.isalnum, word))
    if letters < 2:
        return LETTER if letters else SIGN
    rank = number - 256  # the single bytes stand first
    return rank / (rank + HALF_RANK)


@cache
def code(word: str) -> Weights:
    """Mean 0, square 240."""
    spelled = f"^{word}$"
    pieces = [spelled[at : at + PIECE] for at in range(len(spelled) - PIECE + 1)]
    total = signs("=" + word)
    if pieces:
        total = total + PIECES_COUNT / np.sqrt(len(pieces)) * sum(map(signs, pieces))
    total = total - total.mean()
    scaled: Weights = total * np.sqrt(CONTENT / (total**2).sum())
    return scaled


def signs(text: str) -> Weights:
    bits = np.unpackbits(np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8))
    return 1.0 - 2.0 * bits[:CONTENT]
