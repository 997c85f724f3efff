"""Built-in models of random weights in ordinary shapes: for measuring, where only the amount of arithmetic matters.

They share the quoter's tokenizer. What they say means nothing, and they practically never end by themselves: end of text
has a row of zeros. `s` has the file size and the KV bytes of the model that the cache protocol's figures were taken with.
"""

import hashlib
from collections.abc import Iterator
from functools import partial

import numpy as np

from orchestrator.engine.builtin.shape import BuiltinShape, Tensor, Tokens, Weights

SMALL = BuiltinShape(
    "Lorekeep noise s (random weights)", 8, 768, 12, 2, 64, 3072, 500_000.0, 1e-5
)  # 148 MB, KV 4 KiB a token
MEDIUM = BuiltinShape(
    "Lorekeep noise m (random weights)", 12, 1280, 20, 4, 64, 5120, 500_000.0, 1e-5
)  # 588 MB, KV 12 KiB


def tensors(shape: BuiltinShape, vocabulary: Tokens) -> Iterator[Tensor]:
    """All tensors in file order. Each is drawn from its own name, so none depends on what was drawn before."""
    words, width, feed = len(vocabulary.texts), shape.width, shape.feed_forward
    queries, keys = shape.heads * shape.head, shape.kv_heads * shape.head
    yield random("token_embd.weight", words, width)
    for layer in range(shape.layers):
        name = f"blk.{layer}."
        yield ones(name + "attn_norm.weight", width)
        yield random(name + "attn_q.weight", queries, width)
        yield random(name + "attn_k.weight", keys, width)
        yield random(name + "attn_v.weight", keys, width)
        yield random(name + "attn_output.weight", width, queries)
        yield ones(name + "ffn_norm.weight", width)
        yield random(name + "ffn_gate.weight", feed, width)
        yield random(name + "ffn_up.weight", feed, width)
        yield random(name + "ffn_down.weight", width, feed)
    yield ones("output_norm.weight", width)
    yield "output.weight", (words, width), partial(never_ending, vocabulary.end, words, width)


def random(name: str, rows: int, columns: int) -> Tensor:
    return name, (rows, columns), partial(draw, name, rows, columns)


def ones(name: str, width: int) -> Tensor:
    return name, (width,), partial(np.ones, width)


def never_ending(end: int, rows: int, columns: int) -> Weights:
    matrix = draw("output.weight", rows, columns)
    matrix[end] = 0
    return matrix


def draw(name: str, rows: int, columns: int) -> Weights:
    """Uniform, variance 1 / columns. From raw bits by exact arithmetic: NumPy keeps those stable, its distributions not."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
    count = rows * columns
    raw: Weights = np.random.PCG64(seed).random_raw((count + 3) // 4)
    steps = raw.astype("<u8").view("<u2")[:count].astype(np.float32) - np.float32(32767.5)
    half_width = np.float32(np.sqrt(3 / columns) / 32768)
    return (steps * half_width).astype(np.float16).reshape(rows, columns)
