"""The real application on a real Unix socket, in a thread of its own, in front of the small service."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from support.small_service import SmallService

from orchestrator.api.app import create_app
from orchestrator.api.server import OwnServer, serve
from orchestrator.api.sigils import Sigils
from orchestrator.api.sockets import listen, listen_tcp, tcp_hosts
from orchestrator.settings import Settings
from orchestrator.wire.places import VERSION


@dataclass
class Served:
    socket: Path
    service: SmallService
    loop: asyncio.AbstractEventLoop
    app: Starlette
    tcp: str = ""

    def renew(self) -> "Served":
        """The same server with a new service behind it."""
        self.service = self.app.state.service = SmallService()
        return self

    def wait_for(self, event: asyncio.Event, timeout_s: float = 60.0) -> None:
        asyncio.run_coroutine_threadsafe(event.wait(), self.loop).result(timeout_s)


@contextmanager
def served(
    folder: Path,
    *,
    owner: int | None = None,
    settings: Settings | None = None,
    max_body: int = 64 * 1024,
    version: str | None = None,
    tcp: bool = False,
) -> Iterator[Served]:
    """Runs until the block ends. `owner` is the uid that may do everything; default: this process's."""
    sigils = Sigils.of(settings or Settings(), os.getuid() if owner is None else owner)
    listeners = [listen(folder / "lore.sock")]
    address = ""
    if tcp:
        listeners.append(listen_tcp("127.0.0.1:0"))
        address = f"127.0.0.1:{listeners[1].socket.getsockname()[1]}"
    loop = asyncio.new_event_loop()
    service = SmallService(version=version or VERSION)
    stop = asyncio.Event()
    unknown = (settings or Settings()).clients.unknown_model
    app = create_app(
        service,
        sigils,
        version=service.version,
        max_body=max_body,
        hosts=tcp_hosts(address),
        unknown_model=unknown,
    )
    server = OwnServer(app, listeners, stop, grace_s=1.0)
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(server)))
    thread.start()
    try:
        yield Served(folder / "lore.sock", service, loop, app, address)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
