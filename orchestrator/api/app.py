"""The application: the routes, and what each request passes on its way.

Authentication   who asks: the peer of a Unix socket, the token of a TCP connection; writes one line of the log
Gate             holds requests while nobody can answer them, and counts those inside: for changing the model
QuestionQueue    a bound on the questions that wait
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api import chat, http, names, operations, records, responses, texts
from orchestrator.api.http import PRINCIPAL_KEY, ClientGoneError, Unauthorized, closing, problem, while_running
from orchestrator.api.names import REFUSE
from orchestrator.api.sigils import STATE_KEY, Peer, Sigils
from orchestrator.errors import Full, LoreError, NotPermitted
from orchestrator.reports.turns import TurnMeter
from orchestrator.service import Principal
from orchestrator.wire.answers import Waiting
from orchestrator.wire.places import HEADER

if TYPE_CHECKING:
    from orchestrator.program import Program

DEFAULT_QUEUE = 256  # asks that may wait
DEFAULT_MAX_BODY = 32 * 1024 * 1024
EVENTS = "/v1/events"
FREE = frozenset({"/health", "/healthz", "/readyz", "/v1/model", EVENTS})  # neither held nor counted by the gate
QUESTIONS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/plan",
    "/v1/codices",
    "/v1/search",
    "/v1/symbols",
    "/v1/read",
    "/v1/pause",
)
COMPUTED = ("gist", "floor", "prompt")  # phases in which the engine has accepted an ask

T = TypeVar("T")
log = logging.getLogger("lorekeep.api")

# Those that a module declares, in its order. `names` is the last: it takes any path below /v1/models.
MODULES = (chat, responses, texts, operations, records, names)
routes = [one for module in MODULES for one in vars(module).values() if isinstance(one, http.ApiRoute)]


def create_app(
    service: "Program",
    sigils: Sigils,
    *,
    version: str,
    max_body: int = DEFAULT_MAX_BODY,
    hosts: frozenset[str] = frozenset(),
    queue: int = DEFAULT_QUEUE,
    unknown_model: str = REFUSE,
    move_volatile: bool = False,
    stopping: asyncio.Event | None = None,
) -> Starlette:
    """`hosts`: Host headers allowed over TCP; empty serves Unix sockets alone. `unknown_model`, `move_volatile`: as the
    settings have it.
    `stopping` is set when the daemon ends."""
    gate, turns = Gate(), TurnMeter()
    stopping = stopping or asyncio.Event()
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Authentication, sigils=sigils, hosts=hosts, release=version, gate=gate, turns=turns)],
        exception_handlers={
            LoreError: http.on_lore_error,
            HTTPException: http.on_http_error,
            ClientGoneError: on_client_gone,
            OSError: http.on_os_error,
            Exception: http.on_our_fault,
        },
    )
    app.router.redirect_slashes = False  # a body would have to be sent twice, and a name may end with one
    app.state.service = service
    app.state.gate = gate
    app.state.turns = turns
    app.state.queue = QuestionQueue(queue, stopping, turns)
    app.state.going_on = set()  # sessions, by their user's number and name, in which a response is being made
    app.state.stopping = stopping
    app.state.unknown_model = unknown_model
    app.state.move_volatile = move_volatile
    app.state.max_body = max_body
    return app


async def on_client_gone(_: Request, __: Exception) -> Response:
    """Written to a closed connection, which drops it; 499 is what logs call such a request."""
    return Response(status_code=499)


class Gate:
    """open ──▶ closed to questions (running ones end) ──▶ closed to all ──▶ open; one writer closes and opens it."""

    def __init__(self) -> None:
        self._questions, self._all, self._empty = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._inside = 0
        self.entered = 0  # requests that ever came in
        self._empty.set()
        self.open()

    def open(self) -> None:
        self._questions.set()
        self._all.set()

    def close_to_questions(self) -> None:
        self._questions.clear()

    def close(self) -> None:
        self._questions.clear()
        self._all.clear()

    async def opened(self) -> None:
        """Waits until it is open to all."""
        await self._all.wait()

    @property
    def inside(self) -> int:
        """Requests that have come in and not left."""
        return self._inside

    async def empty(self, seconds: float) -> bool:
        """Waits until nobody is inside, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        return self._inside == 0

    @asynccontextmanager
    async def inside_for(self, path: str, *, asks: bool) -> AsyncIterator[None]:
        """Waits until such a request may come in; it is inside until the block ends."""
        await self._all.wait()
        if asks and path.startswith(QUESTIONS):
            await self._questions.wait()
        self._inside += 1
        self.entered += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if self._inside == 0:
                self._empty.set()


class Authentication:
    """ASGI middleware of all requests. `hosts` are the Host headers allowed over TCP."""

    def __init__(
        self, app: ASGIApp, sigils: Sigils, hosts: frozenset[str], release: str, gate: Gate, turns: TurnMeter
    ) -> None:
        self.app = app
        self.sigils = sigils
        self.hosts = hosts
        self.release = release
        self.gate = gate
        self.turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        status = 0

        async def stamped(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = self.release
            await send(message)

        try:
            principal = self.recognised(scope)
        except LoreError as error:
            self.turns.refused(error.code)
            await problem(error)(scope, receive, stamped)
            self.turns.responded(status)
            return
        scope.setdefault("state", {})[PRINCIPAL_KEY] = principal
        try:
            if scope["path"] in FREE:
                await self.app(scope, receive, stamped)
            else:
                async with self.gate.inside_for(scope["path"], asks=scope["method"] == "POST"):
                    await self.app(scope, receive, stamped)
        finally:
            self.record(scope, principal, status, time.monotonic() - began)

    def recognised(self, scope: Scope) -> Principal:
        """Raises Unauthorized or NotPermitted."""
        peer: Peer | None = scope.get("state", {}).get(STATE_KEY)
        if peer is not None:
            return self.sigils.principal(peer)
        headers = Headers(scope=scope)
        named = headers.getlist("host")
        if len(named) != 1 or named[0] not in self.hosts:  # of two, a proxy before us may go by the other
            raise NotPermitted("this Host header is not served", "use the address given to --tcp")
        kind, _, token = headers.get("authorization", "").partition(" ")
        found = self.sigils.bearer(token.strip()) if kind.lower() == "bearer" else None
        if found is None:
            raise Unauthorized(
                "no valid token", "send `Authorization: Bearer TOKEN`; `lore token new --sigil owner` makes one"
            )
        return found

    def record(self, scope: Scope, principal: Principal, status: int, seconds: float) -> None:
        """Neither queries nor bodies: they hold what people ask."""
        self.turns.responded(status)
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


class QuestionQueue:
    """`most` asks may wait; `stopping` is set when the daemon ends. `turns` counts them."""

    def __init__(self, most: int, stopping: asyncio.Event, turns: TurnMeter) -> None:
        self.waiting = 0
        self._turns = turns
        self._most = most
        self._stopping = stopping

    async def through(self, events: AsyncIterator[T]) -> AsyncIterator[T]:
        """The events of an ask. Raises Full before the first one, NotReady when the daemon stops before it has begun.

        Closing this closes `events`.
        """
        with self._turns.turn() as metered:
            async with closing(events):
                if self.waiting >= self._most:
                    raise Full(f"{self.waiting} questions wait already", "ask again later, or raise serve.queue")
                begun = False
                async with closing(self._turn(events)) as turn:
                    async for event in turn:
                        begun = not isinstance(event, Waiting)
                        metered.saw(event)
                        yield event
                if begun:
                    async for event in events:
                        metered.saw(event)
                        yield event

    async def _turn(self, events: AsyncIterator[T]) -> AsyncIterator[T]:
        """Events until the answer begins, which is the last of them."""
        waits = True
        self.waiting += 1
        try:
            while (event := await while_running(self._stopping, anext(events, None))) is not None:
                if waits and not (isinstance(event, Waiting) and event.phase not in COMPUTED):
                    waits = False
                    self.waiting -= 1
                yield event
                if not isinstance(event, Waiting):
                    return
        finally:
            self.waiting -= waits
