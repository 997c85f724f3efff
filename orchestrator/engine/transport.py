"""How messages travel between the daemon and the engine's child: in pickled batches behind a length, over a socket pair.

Pickle is safe here and nowhere else: both ends are ours, started together, and no third process has the descriptor.
"""

import pickle
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

HEADER = struct.Struct("<Q")  # the length of a batch


def pack(messages: Sequence[Any]) -> bytes:
    body = pickle.dumps(tuple(messages), protocol=pickle.HIGHEST_PROTOCOL)
    return HEADER.pack(len(body)) + body


def unpack(body: bytes) -> tuple[Any, ...]:
    messages: tuple[Any, ...] = pickle.loads(body)  # noqa: S301 - see the module's docstring
    return messages


class Wire:
    """The child's blocking end. Any thread may send; one reads."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, messages: Sequence[Any]) -> None:
        """Does nothing once the other end is gone: who reads notices that, and a child still has checkpoints to write."""
        with self._sending, suppress(BrokenPipeError, ConnectionResetError):
            self._connection.sendall(pack(messages))

    def receive(self) -> Iterator[Any]:
        """Messages one by one until the other end closes, or is killed."""
        with self._connection.makefile("rb") as stream:
            while len(header := read(stream, HEADER.size)) == HEADER.size:
                (size,) = HEADER.unpack(header)
                body = read(stream, size)
                if len(body) < size:
                    return
                yield from unpack(body)


def read(stream: BinaryIO, size: int) -> bytes:
    """So many bytes, or fewer at the end. An end that was killed with messages unread resets the connection."""
    try:
        return stream.read(size)
    except ConnectionResetError:
        return b""
