"""The application: the routes, and what each request passes on its way."""

import asyncio

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from orchestrator.api import problems
from orchestrator.api.door import Door
from orchestrator.api.gate import Gate, Gated
from orchestrator.api.line import Line
from orchestrator.api.routes import routes
from orchestrator.api.sigils import Sigils
from orchestrator.api.streams import ClientGoneError
from orchestrator.errors import LoreError
from orchestrator.service import Service

DEFAULT_QUEUE = 256  # asks that may wait
DEFAULT_MAX_BODY = 32 * 1024 * 1024


def create_app(
    service: Service,
    sigils: Sigils,
    *,
    version: str,
    max_body: int = DEFAULT_MAX_BODY,
    hosts: frozenset[str] = frozenset(),
    queue: int = DEFAULT_QUEUE,
    stopping: asyncio.Event | None = None,
) -> Starlette:
    """`hosts`: Host headers allowed over TCP; empty serves Unix sockets alone. `stopping` is set when the daemon ends."""
    gate = Gate()
    stopping = stopping or asyncio.Event()
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Door, sigils=sigils, hosts=hosts, release=version), Middleware(Gated, gate=gate)],
        exception_handlers={
            LoreError: problems.on_lore_error,
            HTTPException: problems.on_http_error,
            ClientGoneError: on_client_gone,
            Exception: problems.on_our_fault,
        },
    )
    app.router.redirect_slashes = False  # a body would have to be sent twice, and a name may end with one
    app.state.service = service
    app.state.gate = gate
    app.state.line = Line(queue, stopping)
    app.state.stopping = stopping
    app.state.version = version
    app.state.max_body = max_body
    return app


async def on_client_gone(_: Request, __: Exception) -> Response:
    """Written to a closed connection, which drops it; 499 is what logs call such a request."""
    return Response(status_code=499)
