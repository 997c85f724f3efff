"""Models of random weights in the shapes of real ones: heads, windows and vocabulary. Layers are few, matrices Q8_0.

What they say means nothing, and they practically never end by themselves. Tests and benchmarks share them. A file is
written once (seconds) and kept with what else is built once. Vocabularies are those that llama.cpp's sources carry.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from llama_sources import LOCK, build_cache, locked_version, sources

from governor.gguf import Gguf, read_gguf

QUANTISED = gguf.GGMLQuantizationType.Q8_0
BLOCK = np.dtype([("scale", "<f2"), ("values", "i1", 32)])
SPREAD = 5461  # the variance of a byte
CONTEXT = 32_768
Describe = Callable[[gguf.GGUFWriter, Gguf], None]
Data = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Shape:
    """`vocabulary` is one of llama.cpp's `models/ggml-vocab-*.gguf`; `window` is 0 where all layers see everything."""

    architecture: str
    vocabulary: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    feed_forward: int
    window: int = 0


# Seven heads a KV head as in Qwen2.5 0.5B and 7B, 151,936 words of byte-level BPE. KV: 4 KiB a token, as `builtin:noise-s`.
QWEN = Shape("qwen3", "qwen2", layers=4, width=896, heads=14, kv_heads=2, head=128, feed_forward=4864)
# Gemma 3 270M's, 262,144 words of SentencePiece; five of six layers see the window alone.
GEMMA = Shape("gemma3", "gemma-4", layers=6, width=640, heads=4, kv_heads=1, head=256, feed_forward=2048, window=512)


def shaped(shape: Shape, folder: Path | None = None) -> Path:
    """The file of such a model, written if it is not there."""
    digest = hashlib.sha256(repr(shape).encode() + Path(__file__).read_bytes()).hexdigest()[:12]
    path = (folder or build_cache() / "models") / f"shaped-{shape.vocabulary}-{digest}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")  # who writes it at the same time writes the same
        write(shape, part)
        part.replace(path)
    return path


def write(shape: Shape, path: Path) -> None:
    vocabulary = read_gguf(vocabulary_path(shape.vocabulary))
    words = len(vocabulary.array("tokenizer.ggml.tokens"))
    writer = gguf.GGUFWriter(path, shape.architecture)
    describe(shape, writer)
    (sentence_pieces if vocabulary.text("tokenizer.ggml.model") == "gemma4" else byte_pairs)(writer, vocabulary)
    order = list(tensors(shape, words))
    for name, size in order:
        if len(size) == 1:
            writer.add_tensor_info(name, size, np.dtype(np.float32), 4 * size[0])
        else:
            blocks = (size[0], size[1] // 32 * BLOCK.itemsize)
            writer.add_tensor_info(name, blocks, np.dtype(np.uint8), blocks[0] * blocks[1], QUANTISED)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, size in order:
        writer.write_tensor_data(np.ones(size, np.float32) if len(size) == 1 else drawn(name, size))
    writer.close()


def vocabulary_path(name: str) -> Path:
    return sources(locked_version(LOCK)) / "vendor" / "llama.cpp" / "models" / f"ggml-vocab-{name}.gguf"


def describe(shape: Shape, writer: gguf.GGUFWriter) -> None:
    writer.add_name(f"random weights shaped as {shape.architecture}")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    if shape.window:
        writer.add_sliding_window(shape.window)


def byte_pairs(writer: gguf.GGUFWriter, given: Gguf) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(given.text("tokenizer.ggml.pre"))
    writer.add_token_merges(list(map(str, given.array("tokenizer.ggml.merges"))))
    add_tokens(writer, given)


def sentence_pieces(writer: gguf.GGUFWriter, given: Gguf) -> None:
    """As Gemma 3 has them: pieces joined by their scores, here the order of the merges; no space before a text."""
    merges = given.array("tokenizer.ggml.merges")
    order = {str(merge).replace(" ", ""): at for at, merge in reversed(list(enumerate(merges)))}
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_scores(
        [-float(order.get(str(text), len(merges))) for text in given.array("tokenizer.ggml.tokens")]
    )
    writer.add_add_space_prefix(False)
    add_tokens(writer, given)


def add_tokens(writer: gguf.GGUFWriter, given: Gguf) -> None:
    writer.add_token_list(list(map(str, given.array("tokenizer.ggml.tokens"))))
    writer.add_token_types(list(map(int, given.array("tokenizer.ggml.token_type"))))
    for key in ("bos", "eos"):
        if (token := given.number(f"tokenizer.ggml.{key}_token_id")) is not None:
            writer.add_uint32(f"tokenizer.ggml.{key}_token_id", token)
    writer.add_add_bos_token(False)


def tensors(shape: Shape, words: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and sizes (rows, columns) in file order. A row alone is a norm's."""
    width, feed, queries, keys = shape.width, shape.feed_forward, shape.heads * shape.head, shape.kv_heads * shape.head
    yield "token_embd.weight", (words, width)
    for layer in range(shape.layers):
        name = partial("blk.{}.{}.weight".format, layer)
        for norm in ("attn_norm", "ffn_norm"):
            yield name(norm), (width,)
        for norm in ("attn_q_norm", "attn_k_norm"):
            yield name(norm), (shape.head,)
        if shape.architecture == "gemma3":
            for norm in ("post_attention_norm", "post_ffw_norm"):
                yield name(norm), (width,)
        yield name("attn_q"), (queries, width)
        yield name("attn_k"), (keys, width)
        yield name("attn_v"), (keys, width)
        yield name("attn_output"), (width, queries)
        yield name("ffn_gate"), (feed, width)
        yield name("ffn_up"), (feed, width)
        yield name("ffn_down"), (width, feed)
    yield "output_norm.weight", (width,)
    yield "output.weight", (words, width)  # not the embedding again: it would say the last token once more


def drawn(name: str, size: tuple[int, ...]) -> Data:
    """Uniform bytes, of variance 1 / columns; from a seed that is the tensor's name."""
    rows, columns = size
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
    raw = np.random.PCG64(seed).random_raw(-(-rows * columns // 8))
    blocks = np.empty((rows, columns // 32), BLOCK)
    blocks["scale"] = (columns * SPREAD) ** -0.5
    blocks["values"] = raw.view("i1")[: rows * columns].reshape(rows, columns // 32, 32)
    return blocks.view(np.uint8)
