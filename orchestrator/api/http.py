"""One request over HTTP, whatever its route: who may ask, its body as checked values, its reply, and its faults.

A route is declared at the function that serves it: its scopes, its faults and the events of its stream in the decorator,
its body and its reply in the function's annotations. The reference and its tests read them there.
"""

import asyncio
import errno
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route
from starlette.types import Message, Receive, Scope, Send

from orchestrator.cancellation import unless
from orchestrator.errors import InvalidRequest, LoreError, NotPermitted, NotReady
from orchestrator.service import Principal
from orchestrator.wire.base import ReplyShape
from orchestrator.wire.faults import fault_code
from orchestrator.wire.openapi import QueryParameter
from orchestrator.wire.replies import ErrorReply, Fault
from orchestrator.wire.wording import complaint

if TYPE_CHECKING:
    from orchestrator.program import Program

T = TypeVar("T")
Schema = type[BaseModel]
Handler = Callable[..., Awaitable[ReplyShape | Response]]

EVERY = ("unauthorized", "not_permitted", "failed")  # any route may refuse with these
OF_BODIES = ("invalid_request", "too_large")  # any that takes a body
SILENT_S = 60.0  # in the middle of a body
PRINCIPAL_KEY = "lore.principal"
DONE = b"data: [DONE]\n\n"
STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
TYPE = {  # OpenAI's kind of an error, by its status; of the others that blame the request it is one
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
    503: "unavailable_error",
}


class TooLarge(LoreError):
    """A body above the configured limit."""

    code = "too_large"


class Unauthorized(LoreError):
    """No token, or one that nobody was given. Only over TCP: a Unix socket's peer is known."""

    code = "unauthorized"


class ClientGoneError(Exception):
    """The connection closed before the answer was complete. Nobody is left to read a reply."""


# -- routes


@dataclass(frozen=True)
class ApiCall:
    """A request to a route, by whom."""

    request: Request
    principal: Principal

    @property
    def service(self) -> "Program":
        """What is behind the routes now: another model puts another in its place."""
        found: Program = self.request.app.state.service
        return found

    @property
    def name(self) -> str:
        """The one that the path names."""
        found: str = self.request.path_params["name"]
        return found

    def number(self, asked: QueryParameter) -> int:
        """What stands behind `?`. Raises InvalidRequest. Of more digits than the bound has, Python would make no number."""
        given, most = self.request.query_params.get(asked.name, str(asked.usual)), asked.most or 0
        plain = given.isascii() and given.isdigit() and len(given) <= len(str(most))
        if not plain or not asked.least <= int(given) <= most:
            told = f"{asked.name}: {given[:40]!r} is not between {asked.least:,} and {most:,}"
            raise InvalidRequest(told, f"leave it out for {asked.usual:,}")
        return int(given)

    async def while_connected(self, work: Awaitable[T]) -> T:
        """The work's result; see the function of this name."""
        return await while_connected(self.request.receive, work)

    def while_serving(self, events: AsyncIterator[T], *, silently: bool = False) -> AsyncIterator[T]:
        """The events, until the daemon stops; see the function of this name."""
        return while_serving(events, self.request.app.state.stopping, silently=silently)

    async def stream(self, events: AsyncIterator[ReplyShape], *, silently: bool = False) -> "EventStream":
        """One server-sent event each, until they end or the daemon stops: then with NotReady, or `silently`."""
        return await started(self.request.receive, lines(self.while_serving(events, silently=silently)))


class ApiRoute(Route):
    """`body` and `reply` are None where a route takes or gives none; `faults` are what it refuses beside what all do.
    It is what `wire.openapi.DeclaredRoute` asks for."""

    def __init__(
        self,
        method: str,
        path: str,
        handler: Handler,
        scopes: tuple[str, ...] | None,
        events: tuple[type[ReplyShape], ...],
        faults: tuple[str, ...],
        query: tuple[QueryParameter, ...],
        also: tuple[int, ...],
    ) -> None:
        super().__init__(path, self.answered, methods=[method])
        self.method = method
        self.operation: str = handler.__name__
        self.help = " ".join((handler.__doc__ or "").partition("\n\n")[0].split())
        self.body: Schema | None = handler.__annotations__.get("body")
        self.reply = reply_in(handler.__annotations__["return"])
        self.media: str = getattr(handler.__annotations__["return"], "media_type", None) or "text/plain"
        self.events = events
        self.faults = tuple(dict.fromkeys((*faults, *(("invalid_request",) if query or "{name" in path else ()))))
        self.refusals = tuple({*EVERY, *self.faults, *(OF_BODIES if self.body else ())})
        self.query = query
        self.also = also
        self.scopes = scopes
        self._handler = handler

    async def answered(self, request: Request) -> Response:
        """Raises NotPermitted, TooLarge, InvalidRequest, and what the handler raises."""
        principal = permitted(request, self.scopes)
        given = () if self.body is None else (await parsed(request, self.body),)
        reply = await self._handler(ApiCall(request, principal), *given)
        return reply if isinstance(reply, Response) else Reply(reply)


def route(
    method: str,
    path: str,
    *scopes: str,
    anybody: bool = False,
    events: tuple[type[ReplyShape], ...] = (),
    faults: tuple[str, ...] = (),
    query: tuple[QueryParameter, ...] = (),
    also: tuple[int, ...] = (),
) -> Callable[[Handler], ApiRoute]:
    """One of `scopes` is needed; without any named: any at all, or none for `anybody`. `also`: statuses beside 200 that
    come with the same reply."""
    return lambda handler: ApiRoute(method, path, handler, None if anybody else scopes, events, faults, query, also)


def reply_in(annotation: Any) -> Schema | None:
    """The shape among what a handler returns; a response beside it is a stream, or has a status of its own."""
    kinds = get_args(annotation) or (annotation,)
    return next((one for one in kinds if issubclass(one, ReplyShape)), None)


def permitted(request: Request, scopes: tuple[str, ...] | None) -> Principal:
    """The principal, if it has one of these scopes; without scopes named: any at all. Raises NotPermitted."""
    principal: Principal = request.scope["state"][PRINCIPAL_KEY]
    if scopes is not None and not (any(map(principal.may, scopes)) if scopes else principal.scopes):
        wanted = " or ".join(scopes) or "any scope"
        raise NotPermitted(
            f"{request.method} {request.url.path} needs {wanted}; uid {principal.uid} has sigil {principal.sigil}",
            "the daemon's owner can grant it under [sigils] in the configuration",
        )
    return principal


# -- bodies


async def parsed(request: Request, model: Schema) -> BaseModel:
    """The body as `model`. Raises InvalidRequest with the field's name, or TooLarge."""
    body = await read(request, request.app.state.max_body)
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise InvalidRequest(complaint(error, body), "correct the field, or leave it out") from error


async def read(request: Request, limit: int) -> bytes:
    """The whole body, never more than `limit` bytes of it."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in pieces_of(request):
        size += len(part)
        if size > limit:
            raise too_large(limit)
        parts.append(part)
    return b"".join(parts)


async def pieces_of(request: Request) -> AsyncIterator[bytes]:
    """The body, piece by piece. Raises InvalidRequest where the client leaves, or sends no more of it for SILENT_S: half a
    body would keep an idle daemon for ever."""
    more = True
    while more:
        try:
            async with asyncio.timeout(SILENT_S):
                message = await request.receive()
        except TimeoutError as error:
            raise InvalidRequest(f"no more of the body came for {SILENT_S:.0f} s", "send all of it") from error
        if message["type"] == "http.disconnect":
            raise InvalidRequest("the body ended early")
        more = message.get("more_body", False)
        yield message.get("body", b"")


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes", "send less, or raise serve.max_body")


# -- replies and faults


def packed(value: ReplyShape) -> bytes:
    try:
        return value.model_dump_json(ensure_ascii=True).encode("ascii")
    except ValueError:  # a lone surrogate, which a client's JSON may escape, is no UTF-8
        return json.dumps(value.model_dump(mode="json"), separators=(",", ":"), allow_nan=False).encode("ascii")


class Reply(JSONResponse):
    def render(self, content: ReplyShape) -> bytes:
        return packed(content)


def error_reply(code: str, message: str, hint: str = "", status: int | None = None) -> ErrorReply:
    """`status` where it is not the code's own."""
    status = status or fault_code(code).status
    kind = TYPE.get(status, "invalid_request_error" if status < 500 else "server_error")
    return ErrorReply(error=Fault(type=kind, code=code, message=message, hint=hint))


def problem(error: LoreError) -> Response:
    row = fault_code(error.code)
    seconds = row.retry_after_s if error.retry_after is None else error.retry_after
    headers = {} if seconds is None else {"Retry-After": str(math.ceil(seconds))}
    return Reply(error_reply(error.code, error.message, error.hint), row.status, headers=headers)


async def on_lore_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LoreError)
    request.app.state.turns.refused(error.code)
    return problem(error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Starlette's own refusals: an unknown route, a wrong method."""
    assert isinstance(error, HTTPException)
    code = {404: "unknown_route", 405: "wrong_method"}.get(error.status_code, "invalid_request")
    allowed = methods_of(request) if error.status_code == 405 else ""
    hint = f"this route takes {allowed}" if allowed else hint_of(request)
    request.app.state.turns.refused(code)
    body = error_reply(code, f"{request.method} {request.url.path}: {error.detail}", hint, error.status_code)
    return Reply(body, error.status_code, headers={"Allow": allowed} if allowed else error.headers)


def methods_of(request: Request) -> str:
    """All that the path takes: each of its methods is a route of its own, and Starlette tells those of the first."""
    path = next(one.path for one in request.app.routes if one.matches(request.scope)[0] is not Match.NONE)
    return ", ".join(sorted({method for one in request.app.routes if one.path == path for method in one.methods}))


def hint_of(request: Request) -> str:
    """What is asked most often of a path that is none: OpenAI's routes by an address without /v1, or with two."""
    path = request.url.path
    meant = path.removeprefix("/v1") if path.startswith("/v1/v1/") else f"/v1{path}"
    if any(one.matches({**request.scope, "path": meant})[0] is Match.FULL for one in request.app.routes):
        return f"there is {meant}: a client's address ends in /v1, once"
    return "`lore --help` has every command; GET /v1/status, /v1/codices and /v1/models are routes to begin with"


async def on_os_error(request: Request, error: Exception) -> Response:
    """Where no descriptor is left, nothing can be opened. Whatever else it is, is ours."""
    assert isinstance(error, OSError)
    if error.errno not in (errno.EMFILE, errno.ENFILE):
        raise error
    request.app.state.turns.refused("failed")
    hint = "raise the limit of open files (ulimit -n; LimitNOFILE= of a service), or ask again when fewer ask"
    return Reply(error_reply("failed", f"nothing can be opened: {error.strerror}", hint), 500)


async def on_our_fault(request: Request, __: Exception) -> Response:
    """What nobody foresaw. The server logs the traceback, and closes the connection; the client is told only that."""
    request.app.state.turns.refused("failed")
    headers = {"Connection": "close"}
    return Reply(error_reply("failed", "the daemon made an error", "its log has the details"), 500, headers=headers)


# -- answers that take time: bound to the client that waits for them. When it goes, the work is cancelled at once


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """The work's result. Cancels it and raises ClientGoneError when the client closes first.

    The request's body must have been read before.
    """
    return await unless(disconnected(receive), work, ClientGoneError())


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events. The first was awaited before the status line, so that a refusal still gets its own status."""

    def __init__(self, first: bytes, rest: AsyncIterator[bytes]) -> None:
        super().__init__()
        self.first = first
        self.rest = rest
        self.raw_headers = list(STREAM_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with closing(self.rest):
            with suppress(ClientGoneError):
                await while_connected(receive, self.write(scope, send))

    async def write(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send(part(self.first))
        try:
            async for chunk in self.rest:
                await send(part(chunk))
        except LoreError as error:
            scope["app"].state.turns.refused(error.code)
            await send(part(data(error_reply(error.code, error.message, error.hint))))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def part(chunk: bytes) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": True}


async def started(receive: Receive, chunks: AsyncIterator[bytes]) -> EventStream:
    """Awaits the first chunk. Raises what the work raises before it, so that it becomes a status."""
    try:
        first = await while_connected(receive, anext(chunks, b""))
    except BaseException:
        async with closing(chunks):
            raise
    return EventStream(first, chunks)


async def lines(events: AsyncIterator[ReplyShape]) -> AsyncIterator[bytes]:
    """Progress reports, one server-sent event each."""
    async with closing(events):
        async for event in events:
            yield data(event)


async def written(
    events: AsyncIterator[T], chunks: Callable[[T], Iterable[bytes]], end: bytes = DONE
) -> AsyncIterator[bytes]:
    """The chunks of each event, and the end. Closing this closes `events`, which cancels what they run."""
    async with closing(events):
        async for event in events:
            for chunk in chunks(event):
                yield chunk
    if end:
        yield end


def data(value: ReplyShape) -> bytes:
    return b"data: " + packed(value) + b"\n\n"


def named_data(kind: str, value: ReplyShape) -> bytes:
    """An event whose kind stands beside it too: some clients read no other place."""
    return b"event: " + kind.encode("ascii") + b"\n" + data(value)


def comment(value: ReplyShape) -> bytes:
    """A line that clients of server-sent events ignore by their standard; our command line reads it."""
    return b": " + packed(value) + b"\n\n"


def closing(events: AsyncIterator[Any]) -> Any:
    """Streams of the port are async generators: what runs behind them ends when they are closed."""
    return aclosing(events)


async def while_serving(
    events: AsyncIterator[T], stopping: asyncio.Event, *, silently: bool = False
) -> AsyncIterator[T]:
    """The events; when the daemon stops they end, `silently` or with NotReady."""
    async with closing(events):
        try:
            while (event := await while_running(stopping, anext(events, None))) is not None:
                yield event
        except NotReady:
            if not silently or not stopping.is_set():
                raise


async def while_running(stopping: asyncio.Event, work: Awaitable[T]) -> T:
    """The work's result. Cancels it and raises NotReady when the daemon stops first."""
    return await unless(stopping.wait(), work, NotReady("the daemon is stopping", "ask again when it runs"))
