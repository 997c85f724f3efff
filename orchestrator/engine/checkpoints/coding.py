"""The bytes of a checkpoint's file: with a checksum, or under a key. Knows no files and no segments.

    version 1   head │ header                       │ state      │ crc32 of all before
    version 2   head │ key's id, nonce, header, tag │ state, tag │              AES-256-GCM

Of version 2 all but the head (sizes), the id and the nonce is encrypted: token ids are text, and stand in the header. Each
tag covers all that stands before it, so no part of one file can be put into another.
"""

import errno
import hmac
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

CRC_BYTES = 4
ID_BYTES = 8
# Beside them one byte says whether header or state is meant. Chance gives a nonce twice, which would tell something of both
# texts, in one of a billion folders of a billion files.
NONCE_BYTES = 11
TAG_BYTES = 16
MOST_BYTES = 2**31 - 1 - TAG_BYTES  # that the cipher takes at once
# Encrypted at once in the writing thread: the library keeps Python's lock meanwhile, and the loop waits for it; a ms.
PIECE_BYTES = 1 << 20
_HEADER, _STATE = b"\0", b"\1"


class DamagedCheckpoint(Exception):
    """Not a checkpoint, not of this version, or not as it was written."""


class OtherCoding(DamagedCheckpoint):
    """Whole as far as it can be told, but encrypted with another key, or not as it has to be."""


@dataclass(frozen=True)
class Content:
    """What a file holds, as it stands there and unchecked."""

    head: bytes
    header: bytes
    state: bytes
    tail: bytes


class Coding(Protocol):
    """How a file's parts are written. A header has `header_more` bytes more than it was given, a state `state_more`, and
    `tail` bytes end the file. `root` names a model's root, from which the names of all its segments follow."""

    version: int
    header_more: int
    state_more: int
    tail: int

    def root(self, name: str) -> str: ...

    def encoded(self, head: bytes, header: bytes, state: bytes) -> Iterator[bytes]:
        """The file, in pieces. Raises OSError for what is too large."""

    def header(self, path: Path, head: bytes, header: bytes) -> bytes:
        """As it was given. Raises DamagedCheckpoint and OtherCoding; not for what only the whole file shows."""

    def state(self, path: Path, content: Content) -> bytes:
        """As it was given, once every byte is as it was written. Raises DamagedCheckpoint."""


class Checksummed:
    """Anybody can read and make it: the sum finds what a disk does."""

    version, header_more, state_more, tail = 1, 0, 0, CRC_BYTES

    def root(self, name: str) -> str:
        return name

    def encoded(self, head: bytes, header: bytes, state: bytes) -> Iterator[bytes]:
        yield from (head, header, state, _sum(head, header, state))

    def header(self, path: Path, head: bytes, header: bytes) -> bytes:
        del path, head
        return header

    def state(self, path: Path, content: Content) -> bytes:
        if content.tail != _sum(content.head, content.header, content.state):
            raise DamagedCheckpoint(f"{path} has a wrong checksum")
        return content.state


class Sealed:
    """Who does not have the key (32 bytes) can neither read nor make it, nor tell from its name what it holds."""

    version, header_more, state_more, tail = 2, ID_BYTES + NONCE_BYTES + TAG_BYTES, TAG_BYTES, 0

    def __init__(self, key: bytes) -> None:
        from cryptography.exceptions import InvalidTag  # where nothing is encrypted nothing of it is loaded
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.ciphers.algorithms import AES
        from cryptography.hazmat.primitives.ciphers.modes import GCM

        content = hmac.digest(key, b"content", "sha256")
        self._cipher = AESGCM(content)
        self._in_pieces: Callable[[bytes], Any] = lambda nonce: Cipher(AES(content), GCM(nonce)).encryptor()
        self._names = hmac.digest(key, b"names", "sha256")
        self._id = hmac.digest(key, b"id", "sha256")[:ID_BYTES]
        self._refused = InvalidTag

    def root(self, name: str) -> str:
        return hmac.new(self._names, name.encode(), "sha256").hexdigest()

    def encoded(self, head: bytes, header: bytes, state: bytes) -> Iterator[bytes]:
        if len(state) > MOST_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        nonce = os.urandom(NONCE_BYTES)
        begun = self._id + nonce
        sealed = begun + self._cipher.encrypt(nonce + _HEADER, header, head + begun)
        yield from (head, sealed)
        encryptor, whole = self._in_pieces(nonce + _STATE), memoryview(state)
        encryptor.authenticate_additional_data(head + sealed)
        for start in range(0, len(state), PIECE_BYTES):
            yield encryptor.update(whole[start : start + PIECE_BYTES])
        encryptor.finalize()  # gives nothing more: this cipher has no blocks to fill
        yield encryptor.tag

    def header(self, path: Path, head: bytes, header: bytes) -> bytes:
        begun, sealed = header[: ID_BYTES + NONCE_BYTES], header[ID_BYTES + NONCE_BYTES :]
        if begun[:ID_BYTES] != self._id:
            raise OtherCoding(f"{path} is encrypted with another key")
        return self._opened(path, begun[ID_BYTES:] + _HEADER, sealed, head + begun)

    def state(self, path: Path, content: Content) -> bytes:
        nonce = content.header[ID_BYTES : ID_BYTES + NONCE_BYTES] + _STATE
        return self._opened(path, nonce, content.state, content.head + content.header)

    def _opened(self, path: Path, nonce: bytes, sealed: bytes, before: bytes) -> bytes:
        try:
            return self._cipher.decrypt(nonce, sealed, before)
        except self._refused:
            raise DamagedCheckpoint(f"{path} is not as it was encrypted") from None


PLAIN: Coding = Checksummed()


def coding_of(key: bytes) -> Coding:
    """`key`: empty where nothing is encrypted."""
    return Sealed(key) if key else PLAIN


def _sum(head: bytes, header: bytes, state: bytes) -> bytes:
    return zlib.crc32(state, zlib.crc32(header, zlib.crc32(head))).to_bytes(CRC_BYTES, "little")
