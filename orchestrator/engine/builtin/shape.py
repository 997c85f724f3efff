"""GGUF files of the built-in models: their vocabulary, models of architecture `llama`, and two such of random weights.

The random ones are for measuring, where only the amount of arithmetic matters. What they say means nothing, and they
practically never end by themselves: end of text has a row of zeros.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from orchestrator.engine.builtin.alphabet import BYTE_TO_SIGN, to_bytes

Weights = npt.NDArray[Any]
Tensor = tuple[str, tuple[int, ...], Callable[[], Weights]]  # name, shape (rows, columns), what makes it
N_CTX_TRAIN = 131072
END = "<|endoftext|>"
# Every message but the last ends its line, so that a quote out of an earlier turn ends where that turn ended; the last one
# stays open, to be continued.
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% if not loop.last %}\n{% endif %}{% endfor %}"
MERGES = Path(__file__).with_name("merges.txt")


@dataclass(frozen=True)
class Tokens:
    """The vocabulary that all built-in models share: 256 bytes, 3,839 merges, one end of text.

    The merges lie beside this file; `scripts/train_builtin_bpe.py` says how they were made. A token is either made of line
    ends only or has none in it.
    """

    texts: tuple[str, ...]  # by id, in the byte alphabet; the last one is the end of text
    merges: tuple[str, ...]

    @property
    def end(self) -> int:
        return len(self.texts) - 1

    def line_ends(self) -> list[int]:
        """Ids of the tokens that are nothing but line ends."""
        return [n for n, text in enumerate(self.texts[:-1]) if not to_bytes(text).strip(b"\r\n")]

    def describe(self, writer: gguf.GGUFWriter) -> None:
        """Writes the tokenizer's part of a GGUF header."""
        types = [gguf.TokenType.NORMAL] * self.end + [gguf.TokenType.CONTROL]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("llama-bpe")
        writer.add_token_list(list(self.texts))
        writer.add_token_types(types)
        writer.add_token_merges(list(self.merges))
        writer.add_bos_token_id(self.end)
        writer.add_eos_token_id(self.end)
        writer.add_add_bos_token(False)
        writer.add_chat_template(TEMPLATE)


@cache
def tokens() -> Tokens:
    merges = tuple(MERGES.read_text(encoding="utf-8").splitlines())
    single = [BYTE_TO_SIGN[byte] for byte in range(256)]
    return Tokens((*single, *(merge.replace(" ", "") for merge in merges), END), merges)


@dataclass(frozen=True)
class BuiltinShape:
    """Sizes of a model; `rope_base` and widths in llama.cpp's own terms."""

    title: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    feed_forward: int
    rope_base: float
    epsilon: float

    def kv_bytes_per_token(self, element: float = 2.0) -> float:
        """KV bytes of one token, `element` bytes a value (f16: 2)."""
        return self.layers * self.kv_heads * 2 * self.head * element

    def describe(self, writer: gguf.GGUFWriter) -> None:
        """Writes the architecture's part of a GGUF header."""
        writer.add_name(self.title)
        writer.add_organization("Lorekeep")
        writer.add_license("mit")
        writer.add_context_length(N_CTX_TRAIN)
        writer.add_embedding_length(self.width)
        writer.add_block_count(self.layers)
        writer.add_feed_forward_length(self.feed_forward)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.kv_heads)
        writer.add_key_length(self.head)
        writer.add_value_length(self.head)
        writer.add_rope_dimension_count(self.head)
        writer.add_rope_freq_base(self.rope_base)
        writer.add_layer_norm_rms_eps(self.epsilon)
        writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)


def write(path: Path, shape: BuiltinShape, vocabulary: Tokens, tensors: Iterable[Tensor]) -> None:
    """Writes a model of architecture `llama`. Raises OSError."""

    def describe(writer: gguf.GGUFWriter) -> None:
        shape.describe(writer)
        writer.add_vocab_size(len(vocabulary.texts))
        vocabulary.describe(writer)

    write_tensors(path, "llama", describe, list(tensors))


def write_tensors(
    path: Path, architecture: str, describe: Callable[[gguf.GGUFWriter], None], order: Sequence[Tensor]
) -> None:
    """Writes a GGUF file, one tensor in memory at a time. Same arguments, same bytes. Raises OSError."""
    writer = gguf.GGUFWriter(path, architecture)
    try:
        describe(writer)
        for name, size, _ in order:
            kind: Any = np.dtype(dtype_of(size))
            writer.add_tensor_info(name, size, kind, int(np.prod(size)) * kind.itemsize)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name, size, make in order:
            data = make()
            assert data.shape == size, f"{name} has shape {data.shape}, announced was {size}"
            writer.write_tensor_data(data.astype(dtype_of(size)))
    finally:
        writer.close()


def dtype_of(size: tuple[int, ...]) -> type[np.float16] | type[np.float32]:
    """Matrices are f16, vectors (norms, rope factors) f32: what llama.cpp expects."""
    return np.float16 if len(size) > 1 else np.float32


# -- random weights

# The file size and the KV bytes of the model that the cache protocol's figures were taken with.
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
