"""Bounded reading from a file that may be damaged: nothing is taken beyond its end, every fault names its byte.

Knows GGUF's element types, not its structure. Buffered reads, not a memory map: a file that shrinks while it is mapped
kills the process (SIGBUS).
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from governor.errors import GgufError

Scalar = int | float | bool | str

# u8 i8 u16 i16 u32 i32 f32 bool string array u64 i64 f64
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING = 8
ARRAY = 9
MOST_KEPT_STRING = 16 * 1024 * 1024  # chat templates are the longest; 100 KB is already rare
CHUNK = 1024 * 1024


class GgufReader:
    """`at` is the byte that is read next."""

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
