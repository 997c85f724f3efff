"""The header of a GGUF model: metadata and the table of tensors, of all its shards. Weights are never read.

    file = magic version n_tensors n_metadata | metadata ... | tensor table ... | padding | tensor data
    version 2 and 3, little endian; numbers, strings, and arrays of them that are not nested

Long arrays (a vocabulary has hundreds of thousands of strings) are skipped, and read on request. Source: gguf.cpp and
llama-model-loader.cpp of llama.cpp 0c1e5709. Their refusals are repeated here, because an abort of llama.cpp would cost a
child process. Knows nothing of the meaning of metadata.
"""

import os
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAGIC = b"GGUF"
MOST_METADATA = 100_000  # real files have tens; beyond it the count is damage
MOST_TENSORS = 1_000_000
LONGEST_NAME = 65_535  # of a metadata key, by the format's description
LONGEST_TENSOR_NAME = 63  # GGML_MAX_NAME with its final zero
KEPT_ARRAY = 4_096  # elements; per-layer figures have at most 512
DEFAULT_ALIGNMENT = 32
MOST_KEPT_STRING = 16 * 1024 * 1024  # chat templates are the longest; 100 KB is already rare
CHUNK = 1024 * 1024

Scalar = int | float | bool | str
# u8 i8 u16 i16 u32 i32 f32 bool string array u64 i64 f64
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING = 8
ARRAY = 9


class GgufError(Exception):
    """The file is not a usable GGUF. `offset`: the byte of the fault; None when the file could not be opened."""

    def __init__(self, path: Path, offset: int | None, what: str) -> None:
        where = "" if offset is None else f" at byte {offset:,}"
        super().__init__(f"{path}: {what}{where}")
        self.path = path
        self.offset = offset
        self.what = what


@dataclass(frozen=True)
class ArrayAt:
    """A long array that stayed in the file: `kind` of its elements, `count` of them, from byte `offset` on."""

    kind: int
    count: int
    offset: int


Value = Scalar | tuple[Scalar, ...] | ArrayAt


@dataclass(frozen=True)
class TensorType:
    """A number format of ggml: a block of `values` values takes `size` bytes. A row is a whole number of blocks."""

    number: int
    name: str
    values: int
    size: int


# `type_traits` in ggml.c and the block structs in ggml-common.h.
_TABLE = (
    (0, "f32", 1, 4),
    (1, "f16", 1, 2),
    (2, "q4_0", 32, 18),
    (3, "q4_1", 32, 20),
    (6, "q5_0", 32, 22),
    (7, "q5_1", 32, 24),
    (8, "q8_0", 32, 34),
    (9, "q8_1", 32, 36),
    (10, "q2_k", 256, 84),
    (11, "q3_k", 256, 110),
    (12, "q4_k", 256, 144),
    (13, "q5_k", 256, 176),
    (14, "q6_k", 256, 210),
    (15, "q8_k", 256, 292),
    (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74),
    (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50),
    (20, "iq4_nl", 32, 18),
    (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82),
    (23, "iq4_xs", 256, 136),
    (24, "i8", 1, 1),
    (25, "i16", 1, 2),
    (26, "i32", 1, 4),
    (27, "i64", 1, 8),
    (28, "f64", 1, 8),
    (29, "iq1_m", 256, 56),
    (30, "bf16", 1, 2),
    (34, "tq1_0", 256, 54),
    (35, "tq2_0", 256, 66),
    (39, "mxfp4", 32, 17),
    (40, "nvfp4", 64, 36),
    (41, "q1_0", 128, 18),
    (42, "q2_0", 64, 18),
)
BY_NUMBER = {row[0]: TensorType(*row) for row in _TABLE}
BY_NAME = {kind.name: kind for kind in BY_NUMBER.values()}

# What llama.cpp's own command line accepts for a cache (common/arg.cpp, kv_cache_types), smallest last.
KV_TYPES = tuple(BY_NAME[name] for name in ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"))


@dataclass(frozen=True)
class TensorInfo:
    """`shape` fastest dimension first; `offset` counts from the beginning of that file's tensor data."""

    name: str
    shape: tuple[int, ...]
    kind: TensorType
    offset: int
    size: int


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
    first = _read_file(path)
    count = first.number("split.count") or 0
    if count < 2:
        return first
    if first.number("split.no") != 0:
        raise GgufError(
            path, None, f"is not the first of {count} shards; give the one named {_shard(path, 0, count).name}"
        )
    rest = [_read_file(_shard(path, no, count)) for no in range(1, count)]
    for no, shard in enumerate(rest, 1):
        if shard.number("split.no") != no or shard.number("split.count") != count:
            raise GgufError(
                shard.path, None, f"is not shard {no + 1} of {count} of {path.name}; download the model again"
            )
    return _joined(first, rest)


class GgufReader:
    """Reads never go beyond the end of the file, and every fault names its byte. `at` is the byte that is read next.

    Buffered reads, not a memory map: a file that shrinks while it is mapped kills the process (SIGBUS).
    """

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path = path
        self.size = size
        self.at = 0
        self._file = file

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> "Iterator[GgufReader]":
        """GgufError when there is no such file, it is none, or reading it fails."""
        try:
            with path.open("rb") as file:
                yield cls(path, file, os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise GgufError(path, None, f"cannot be read: {error.strerror or error}") from error

    def fault(self, what: str, at: int | None = None) -> GgufError:
        return GgufError(self.path, self.at if at is None else at, what)

    def seek(self, at: int) -> None:
        self._file.seek(at)
        self.at = at

    def take(self, count: int) -> bytes:
        self._need(count)
        data = self._file.read(count)
        if len(data) < count:
            raise self.fault("shrank while it was read; wait until the download is complete")
        self.at += count
        return data

    def number(self, code: str) -> int:
        value: int = struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]
        return value

    def text(self, longest: int) -> str:
        began = self.at
        length = self.number("Q")
        if length > longest:
            raise self.fault(f"is damaged: a string of {length:,} bytes", began)
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise self.fault("is damaged: a name or text is not UTF-8", began) from error

    def element(self, kind: int) -> Scalar:
        """One value. Bytes of a text that are no UTF-8 are kept as surrogates: vocabularies have such."""
        if kind == STRING:
            return self._string()
        value: Scalar = struct.unpack("<" + self._code(kind), self.take(self._width(kind)))[0]
        return value

    def elements(self, kind: int, count: int) -> tuple[Scalar, ...]:
        if kind == STRING:
            self._need(8 * count)
            return tuple(self._string() for _ in range(count))
        return struct.unpack(f"<{count}{self._code(kind)}", self.take(count * self._width(kind)))

    def skip_elements(self, kind: int, count: int) -> None:
        if kind != STRING:
            self._need(count * self._width(kind))
            self.seek(self.at + count * self._width(kind))
            return
        self._need(8 * count)
        self._skip_strings(count)

    def _skip_strings(self, count: int) -> None:
        """In large blocks: a read per string would take a second for a vocabulary of 250,000."""
        block, inside = b"", 0
        for _ in range(count):
            if inside + 8 > len(block):
                self.seek(self.at + inside)
                block, inside = self._file.read(CHUNK), 0
                if len(block) < 8:
                    raise self.fault("is cut off inside an array of strings")
            (length,) = struct.unpack_from("<Q", block, inside)
            inside += 8 + length
            if self.at + inside > self.size:
                raise self.fault(f"is cut off or damaged: a string of {length:,} bytes", self.at + inside - length - 8)
        self.seek(self.at + inside)

    def _string(self) -> str:
        began = self.at
        length = self.number("Q")
        if length > MOST_KEPT_STRING:
            raise self.fault(f"is damaged: a string of {length:,} bytes", began)
        return self.take(length).decode(errors="surrogateescape")

    def _code(self, kind: int) -> str:
        if kind not in SCALARS:
            raise self.fault(f"is damaged: metadata type {kind}")
        return SCALARS[kind]

    def _width(self, kind: int) -> int:
        return struct.calcsize("<" + self._code(kind))

    def _need(self, count: int) -> None:
        if count > self.size - self.at:
            raise self.fault(f"is cut off: {count:,} bytes expected, {self.size - self.at:,} are left")


def _read_file(path: Path) -> Gguf:
    with GgufReader.opened(path) as source:
        n_tensors, n_metadata = _read_counts(source)
        metadata = _read_metadata(source, n_metadata)
        tensors = _read_tensors(source, n_tensors)
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
        raise source.fault(
            "is a big-endian GGUF, to be converted for this machine: the bytes of its version are reversed", 4
        )
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
            raise source.fault(f"is damaged: metadata key {key!r} occurs twice", began)
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


def _read_tensors(source: GgufReader, count: int) -> tuple[TensorInfo, ...]:
    tensors = tuple(_read_tensor(source) for _ in range(count))
    if len({tensor.name for tensor in tensors}) < count:
        raise source.fault("is damaged: a tensor name occurs twice")
    return tensors


def _read_tensor(source: GgufReader) -> TensorInfo:
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
    size = shape[0] // kind.values * kind.size
    for rows in shape[1:]:
        size *= rows
    return TensorInfo(name, shape, kind, offset, size)


def _alignment(source: GgufReader, metadata: Mapping[str, Value]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise source.fault(f"is damaged: general.alignment is {alignment}, no power of two")
    return alignment


def _check_data(source: GgufReader, tensors: tuple[TensorInfo, ...], alignment: int) -> None:
    """Detects a download that broke off, whose header is complete. Raises GgufError."""
    if not tensors:
        return
    begin = -(-source.at // alignment) * alignment
    last = max(tensors, key=lambda tensor: tensor.offset + tensor.size)
    needed = begin + last.offset + last.size
    if needed > source.size:
        missing = needed - source.size
        raise source.fault(f"is cut off, download it again: tensor {last.name!r} lacks its last {missing:,} bytes")


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
