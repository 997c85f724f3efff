"""The application: the routes, and what each request passes on its way."""

import asyncio
import logging
import time

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api import chat, operations, problems
from orchestrator.api.gate import Gate, Gated, Line
from orchestrator.api.problems import Unauthorized, problem
from orchestrator.api.requests import PRINCIPAL_KEY
from orchestrator.api.sigils import STATE_KEY, Peer, Sigils
from orchestrator.api.streams import ClientGoneError
from orchestrator.errors import LoreError, NotPermitted
from orchestrator.service import Principal, Service
from orchestrator.wire import version

DEFAULT_QUEUE = 256  # asks that may wait
DEFAULT_MAX_BODY = 32 * 1024 * 1024


log = logging.getLogger("lorekeep.api")


routes = [
    Route("/v1/chat/completions", chat.completions, methods=["POST"]),
    Route("/v1/embeddings", chat.embeddings, methods=["POST"]),
    Route("/v1/models", chat.models, methods=["GET"]),
    Route("/v1/models/local", operations.local_models, methods=["GET"]),
    Route("/v1/models/local/{name:path}", operations.local_model, methods=["GET"]),
    Route("/v1/model", operations.use_model, methods=["PUT"]),
    Route("/v1/models/{name:path}", chat.model, methods=["GET"]),
    Route("/v1/plan", chat.plan, methods=["POST"]),
    Route("/v1/codices", operations.load, methods=["POST"]),
    Route("/v1/codices", operations.codices, methods=["GET"]),
    Route("/v1/codices/{name}", operations.codex, methods=["GET"]),
    Route("/v1/codices/{name}", operations.drop_codex, methods=["DELETE"]),
    Route("/v1/codices/{name}/reload", operations.reload_codex, methods=["POST"]),
    Route("/v1/codices/{name}/cancel", operations.cancel_load, methods=["POST"]),
    Route("/v1/search", operations.search, methods=["POST"]),
    Route("/v1/sessions", operations.sessions, methods=["GET"]),
    Route("/v1/sessions/{name}", operations.session, methods=["GET"]),
    Route("/v1/sessions/{name}", operations.rename_session, methods=["PATCH"]),
    Route("/v1/sessions/{name}", operations.drop_session, methods=["DELETE"]),
    Route("/v1/status", operations.status, methods=["GET"]),
    Route("/v1/stats/cache", operations.cache, methods=["GET"]),
    Route("/v1/events", operations.events, methods=["GET"]),
    Route("/metrics", operations.prometheus, methods=["GET"]),
    Route("/healthz", operations.healthz, methods=["GET"]),
    Route("/readyz", operations.readyz, methods=["GET"]),
]


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
    app.state.max_body = max_body
    return app


async def on_client_gone(_: Request, __: Exception) -> Response:
    """Written to a closed connection, which drops it; 499 is what logs call such a request."""
    return Response(status_code=499)


class Door:
    """ASGI middleware. `hosts` are the Host headers allowed over TCP."""

    def __init__(self, app: ASGIApp, sigils: Sigils, hosts: frozenset[str], release: str) -> None:
        self.app = app
        self.sigils = sigils
        self.hosts = hosts
        self.release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.monotonic()
        status = 0

        async def stamped(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[version.HEADER] = self.release
            await send(message)

        try:
            principal = self.recognised(scope)
        except LoreError as error:
            await problem(error)(scope, receive, stamped)
            return
        scope.setdefault("state", {})[PRINCIPAL_KEY] = principal
        try:
            await self.app(scope, receive, stamped)
        finally:
            self.record(scope, principal, status, time.monotonic() - began)

    def recognised(self, scope: Scope) -> Principal:
        """Raises Unauthorized or NotPermitted."""
        peer: Peer | None = scope.get("state", {}).get(STATE_KEY)
        if peer is not None:
            return self.sigils.principal(peer)
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self.hosts:
            raise NotPermitted("this Host header is not served", "use the address given to --tcp")
        kind, _, token = headers.get("authorization", "").partition(" ")
        found = self.sigils.bearer(token.strip()) if kind.lower() == "bearer" else None
        if found is None:
            raise Unauthorized("no valid token", "send `Authorization: Bearer TOKEN`; `lore token new` makes one")
        return found

    def record(self, scope: Scope, principal: Principal, status: int, seconds: float) -> None:
        """Neither queries nor bodies: they hold what people ask."""
        level = logging.DEBUG if scope["method"] == "GET" else logging.INFO
        log.log(
            level,
            "request",
            extra={
                "fields": {
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status or "closed",
                    "uid": principal.uid,
                    "ms": round(seconds * 1000, 1),
                }
            },
        )
