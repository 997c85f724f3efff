"""Who is at the other end of a connection, by the kernel's word."""

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CREDENTIALS = struct.Struct("3i")
SO_PEERGROUPS = 59  # asm-generic/socket.h; Python's socket module does not name it
GROUPS_BUFFER = 1024  # bytes; socket.getsockopt refuses larger buffers
STATE_KEY = "lore.peer"


@dataclass(frozen=True)
class Peer:
    """Credentials at the time of connect(). The pid may have been given to another process since: for display only."""

    pid: int
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def peer_of(connection: socket.socket) -> Peer | None:
    """None for connections that carry no credentials (TCP)."""
    if connection.family != socket.AF_UNIX:
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, gid = CREDENTIALS.unpack(raw)
    return Peer(pid, uid, gid, groups_of(connection))


def groups_of(connection: socket.socket) -> tuple[int, ...]:
    """Supplementary groups; none where the kernel does not tell, or has more than fit: no group, no scope."""
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, GROUPS_BUFFER)
    except OSError:
        return ()
    return struct.unpack(f"{len(raw) // 4}I", raw)


class PeerProtocol(HttpToolsProtocol):
    """uvicorn's protocol that also puts the peer into `scope["state"]`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wrapped = transport.get_extra_info("socket")  # asyncio's TransportSocket: the same methods, not the same class
        state: dict[str, Any] = {**self.app_state, STATE_KEY: peer_of(wrapped)}
        self.app_state = state
        super().connection_made(transport)  # type: ignore[arg-type]
