"""Serves the application on open sockets until it is told to stop. Signals are the daemon's business."""

import asyncio
import contextlib
from collections.abc import Generator, Sequence
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from orchestrator.api.sigils import STATE_KEY, peer_of
from orchestrator.api.sockets import Listener

KEEP_ALIVE_S = 75


class QuietServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def serve(
    app: ASGIApp,
    listeners: Sequence[Listener],
    stop: asyncio.Event,
    *,
    grace_s: float = 10.0,
    started: asyncio.Event | None = None,
) -> None:
    """Returns after `stop` is set and running answers have ended, or `grace_s` later. Closes the listeners."""
    server = QuietServer(config(app, grace_s))
    serving = asyncio.ensure_future(server.serve(sockets=[listener.socket for listener in listeners]))
    if started is not None:
        started.set()  # the sockets listen already; what connects before the loop's first turn waits in their queue
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
    finally:
        stopping.cancel()
        for listener in listeners:
            listener.close()


def config(app: ASGIApp, grace_s: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=PeerProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(grace_s)),
        timeout_keep_alive=KEEP_ALIVE_S,
    )


class PeerProtocol(HttpToolsProtocol):
    """uvicorn's protocol that also puts the peer into `scope["state"]`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wrapped = transport.get_extra_info("socket")  # asyncio's TransportSocket: the same methods, not the same class
        state: dict[str, Any] = {**self.app_state, STATE_KEY: peer_of(wrapped)}
        self.app_state = state
        super().connection_made(transport)  # type: ignore[arg-type]
