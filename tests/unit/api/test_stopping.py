"""A server that is told to stop: who is accepted still, and on which connections somebody may ask."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from support.small_service import SmallService
from support.waiting import SOON

from orchestrator.api.app import create_app
from orchestrator.api.server import OwnServer, serve
from orchestrator.api.sigils import Sigils
from orchestrator.api.sockets import Listener
from orchestrator.settings import Settings
from orchestrator.wire.places import VERSION

pytestmark = pytest.mark.anyio
EVENTS = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass
class OnSystemdsSocket:
    """A server on a socket that outlives it. `ended` ends with it."""

    held: socket.socket
    server: OwnServer
    ended: "asyncio.Task[None]"

    def client(self, sent: bytes = b"") -> socket.socket:
        """Connected, with so much sent, before the server's loop turns again."""
        made = socket.socket(socket.AF_UNIX)
        made.connect(self.held.getsockname())
        made.sendall(sent)
        return made

    async def until_asking(self, number: int) -> None:
        with anyio.fail_after(SOON):
            while self.server.asking != number:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[OnSystemdsSocket]:
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(folder / "lore.sock"))
        held.listen(16)
        held.settimeout(0)
        stop = asyncio.Event()
        app = create_app(SmallService(), Sigils.of(Settings(), os.getuid()), version=VERSION, stopping=stop)
        server = OwnServer(app, [Listener(held.dup(), folder / "lore.sock")], stop, grace_s=1.0)
        ended = asyncio.create_task(serve(server))
        while not server.started:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        yield OnSystemdsSocket(held, server, ended)
        stop.set()
        await ended


async def test_who_connects_to_systemds_socket_once_it_stops_waits_there_for_the_next_daemon(folder: Path):
    async with running(folder) as here:
        with here.client(EVENTS):
            here.server.stop.set()
            await here.ended
            next_one, _ = here.held.accept()
            with next_one:
                assert next_one.recv(4096) == EVENTS


async def test_a_connection_counts_until_it_is_closed_or_follows_events(folder: Path):
    async with running(folder) as here:
        assert here.server.asking == 0
        with here.client(), here.client() as follower:
            await here.until_asking(2)
            follower.sendall(EVENTS)
            await here.until_asking(1)
        await here.until_asking(0)
