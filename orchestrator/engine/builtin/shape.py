"""Writing GGUF files, and the shape of a model of architecture `llama`: what its header says, and which tensors follow."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from orchestrator.engine.builtin.tokens import Tokens

Weights = npt.NDArray[Any]
Tensor = tuple[str, tuple[int, ...], Callable[[], Weights]]  # name, shape (rows, columns), what makes it

N_CTX_TRAIN = 131072


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
