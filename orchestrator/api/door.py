"""What every request passes: who asks, and for TCP the token and the Host header. Writes the log line."""

import logging
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.peers import STATE_KEY, Peer
from orchestrator.api.problems import Unauthorized, problem
from orchestrator.api.requests import PRINCIPAL_KEY
from orchestrator.api.sigils import Sigils
from orchestrator.errors import LoreError, NotPermitted
from orchestrator.service import Principal
from orchestrator.wire import version

log = logging.getLogger("lorekeep.api")


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
