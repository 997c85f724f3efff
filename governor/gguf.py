"""The header of a GGUF model: metadata and the table of tensors, of all its shards. Weights are never read.

    file = magic version n_tensors n_metadata | metadata ... | tensor table ... | padding | tensor data
    version 2 and 3, little endian; numbers, strings, and arrays of them that are not nested

Long arrays (a vocabulary has hundreds of thousands of strings) are walked over, not kept, and read again on request.
Source: gguf.cpp and llama-model-loader.cpp of llama.cpp 0c1e5709, whose refusals are made here too: what passes here and
is then aborted on by llama.cpp would cost a child process. Knows nothing of what the metadata means.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from governor.errors import GgufError
from governor.gguf_source import ARRAY, SCALARS, GgufReader, Scalar
from governor.tensor_types import BY_NUMBER, TensorType

MAGIC = b"GGUF"
MOST_METADATA = 100_000  # real files have tens; beyond it the count is damage
MOST_TENSORS = 1_000_000
LONGEST_NAME = 65_535  # of a metadata key, by the format's description
LONGEST_TENSOR_NAME = 63  # GGML_MAX_NAME with its final zero
KEPT_ARRAY = 4_096  # elements; per-layer figures have at most 512
DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True)
class ArrayAt:
    """A long array that stayed in the file: `kind` of its elements, `count` of them, from byte `offset` on."""

    kind: int
    count: int
    offset: int


Value = Scalar | tuple[Scalar, ...] | ArrayAt


@dataclass(frozen=True)
class TensorInfo:
    """`shape` fastest dimension first; `offset` counts from the beginning of that file's tensor data."""

    name: str
    shape: tuple[int, ...]
    kind: TensorType
    offset: int
    size: int
    shard: int = 0


@dataclass(frozen=True)
class Gguf:
    """A model's header. `paths` are its shards in order, `size` their bytes together."""

    paths: tuple[Path, ...]
    metadata: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...]
    size: int

    @property
    def path(self) -> Path:
        return self.paths[0]

    def text(self, key: str, default: str = "") -> str:
        value = self.metadata.get(key, default)
        return value if isinstance(value, str) else default

    def number(self, key: str) -> int | None:
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def array(self, key: str) -> tuple[Scalar, ...]:
        """An array whole, from the file where it is long. KeyError without the key; GgufError when it is no array."""
        value = self.metadata[key]
        if isinstance(value, tuple):
            return value
        if not isinstance(value, ArrayAt):
            raise GgufError(self.path, None, f"{key} is a single value, not an array")
        with GgufReader.opened(self.path) as source:
            source.seek(value.offset)
            return source.elements(value.kind, value.count)


def read_gguf(path: Path) -> Gguf:
    """The header of the model at `path` with all its shards.

    GgufError with file, byte and reason for anything that is no complete GGUF of version 2 or 3: an empty or foreign
    file, damage, a header cut off, data shorter than its tensor table says, a missing or foreign shard.
    """
    first = _read_file(path, 0)
    count = first.number("split.count") or 0
    if count < 2:
        return first
    if first.number("split.no") != 0:
        raise GgufError(
            path, None, f"is not the first of {count} shards; give the one named {_shard(path, 0, count).name}"
        )
    rest = [_read_file(_shard(path, no, count), no) for no in range(1, count)]
    for no, shard in enumerate(rest, 1):
        if shard.number("split.no") != no or shard.number("split.count") != count:
            raise GgufError(
                shard.path, None, f"is not shard {no + 1} of {count} of {path.name}; download the model again"
            )
    return _joined(first, rest)


def _read_file(path: Path, shard: int) -> Gguf:
    with GgufReader.opened(path) as source:
        n_tensors, n_metadata = _read_counts(source)
        metadata = _read_metadata(source, n_metadata)
        tensors = _read_tensors(source, n_tensors, shard)
        _check_data(source, tensors, _alignment(source, metadata))
        return Gguf((path,), metadata, tensors, source.size)


def _read_counts(source: GgufReader) -> tuple[int, int]:
    if source.size < 24:
        raise source.fault(f"is no GGUF: {source.size} bytes are too few")
    magic = source.take(4)
    if magic != MAGIC:
        raise source.fault(f"is no GGUF: it begins with {magic.hex(' ')}", 0)
    version = source.number("I")
    if version and version & 0xFFFF == 0:
        raise source.fault("is a big-endian GGUF, to be converted for this machine: its version stands turned round", 4)
    if version not in (2, 3):
        raise source.fault(f"has GGUF version {version}; versions 2 and 3 can be read", 4)
    n_tensors, n_metadata = source.number("Q"), source.number("Q")
    if n_tensors > MOST_TENSORS or n_metadata > MOST_METADATA:
        raise source.fault(f"is damaged: it claims {n_tensors:,} tensors and {n_metadata:,} metadata entries", 8)
    return n_tensors, n_metadata


def _read_metadata(source: GgufReader, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(count):
        began = source.at
        key = source.text(LONGEST_NAME)
        if key in metadata:
            raise source.fault(f"is damaged: metadata key {key!r} stands twice", began)
        metadata[key] = _read_value(source, source.number("I"))
    return metadata


def _read_value(source: GgufReader, kind: int) -> Value:
    if kind != ARRAY:
        return source.element(kind)
    kind, count = source.number("I"), source.number("Q")
    if kind == ARRAY:
        raise source.fault("is damaged: an array of arrays")
    if count <= KEPT_ARRAY and kind in SCALARS:
        return source.elements(kind, count)
    began = source.at
    source.skip_elements(kind, count)
    return ArrayAt(kind, count, began)


def _read_tensors(source: GgufReader, count: int, shard: int) -> tuple[TensorInfo, ...]:
    tensors = tuple(_read_tensor(source, shard) for _ in range(count))
    if len({tensor.name for tensor in tensors}) < count:
        raise source.fault("is damaged: a tensor name stands twice")
    return tensors


def _read_tensor(source: GgufReader, shard: int) -> TensorInfo:
    began = source.at
    name = source.text(LONGEST_TENSOR_NAME)
    dimensions = source.number("I")
    if not 1 <= dimensions <= 4:
        raise source.fault(f"is damaged: tensor {name!r} has {dimensions} dimensions", began)
    shape = tuple(source.number("Q") for _ in range(dimensions))
    number, offset = source.number("I"), source.number("Q")
    kind = BY_NUMBER.get(number)
    if kind is None:
        raise source.fault(f"tensor {name!r} has type {number}, which is damage or newer than this version", began)
    if shape[0] % kind.values:
        raise source.fault(f"is damaged: rows of {name!r} are no whole number of {kind.name} blocks", began)
    size = kind.row_bytes(shape[0])
    for rows in shape[1:]:
        size *= rows
    return TensorInfo(name, shape, kind, offset, size, shard)


def _alignment(source: GgufReader, metadata: Mapping[str, Value]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise source.fault(f"is damaged: general.alignment is {alignment}, no power of two")
    return alignment


def _check_data(source: GgufReader, tensors: tuple[TensorInfo, ...], alignment: int) -> None:
    """A download that broke off has its whole header; only this tells."""
    if not tensors:
        return
    begin = -(-source.at // alignment) * alignment
    last = max(tensors, key=lambda tensor: tensor.offset + tensor.size)
    needed = begin + last.offset + last.size
    if needed > source.size:
        missing = needed - source.size
        raise source.fault(f"is cut off: tensor {last.name!r} ends {missing:,} bytes behind the end; download it again")


def _shard(path: Path, no: int, count: int) -> Path:
    """Shards are named NAME-00001-of-00003.gguf (llama_split_path)."""
    stem = re.sub(r"-\d{5}-of-\d{5}\.gguf$", "", path.name)
    return path.with_name(f"{stem}-{no + 1:05d}-of-{count:05d}.gguf")


def _joined(first: Gguf, rest: list[Gguf]) -> Gguf:
    tensors = first.tensors + tuple(tensor for shard in rest for tensor in shard.tensors)
    promised = first.number("split.tensors.count")
    if promised is not None and promised != len(tensors):
        raise GgufError(
            first.path, None, f"promises {promised} tensors, its shards hold {len(tensors)}; download it again"
        )
    paths = first.paths + tuple(shard.path for shard in rest)
    return Gguf(paths, first.metadata, tensors, first.size + sum(shard.size for shard in rest))
