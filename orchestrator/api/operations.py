"""Routes of conversations, local models and the daemon's own state."""

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from orchestrator.api.gate import while_serving
from orchestrator.api.problems import Reply
from orchestrator.api.requests import parsed, permitted, service_of
from orchestrator.api.streams import closing, lines, started, while_connected
from orchestrator.errors import InvalidRequest
from orchestrator.reports.cache import metrics
from orchestrator.service import LoadEvent, ModelEvent, Principal
from orchestrator.wire.models import ChangedEvent, ModelChange, ModelReply, ModelRows
from orchestrator.wire.places import is_url
from orchestrator.wire.replies import (
    Alive,
    CodexReply,
    CodicesReply,
    Dropped,
    Ready,
    Renamed,
    SessionReply,
    SessionRows,
)
from orchestrator.wire.requests import LoadBody, ModelBody, RenameBody, SearchBody
from orchestrator.wire.shapes import ReplyShape

PROMETHEUS = "text/plain; version=0.0.4"


async def sessions(request: Request) -> Response:
    """The asking user's conversations."""
    known = await service_of(request).sessions(permitted(request, "query"))
    return Reply(SessionRows(sessions=tuple(known)))


async def session(request: Request) -> Response:
    """One conversation with its turns."""
    principal = permitted(request, "query")
    found = await service_of(request).session(principal, request.path_params["name"])
    return Reply(SessionReply(session=found))


async def rename_session(request: Request) -> Response:
    """Gives a conversation another name."""
    principal = permitted(request, "query")
    body = await parsed(request, RenameBody)
    await service_of(request).rename_session(principal, request.path_params["name"], body.name)
    return Reply(Renamed(renamed=request.path_params["name"], name=body.name))


async def drop_session(request: Request) -> Response:
    """Forgets a conversation."""
    await service_of(request).drop_session(permitted(request, "query"), request.path_params["name"])
    return Reply(Dropped(dropped=request.path_params["name"]))


async def local_models(request: Request) -> Response:
    """Models at hand, and whether they fit."""
    known = await service_of(request).models(permitted(request, "query", "codex:read"))
    return Reply(ModelRows(models=tuple(known)))


async def local_model(request: Request) -> Response:
    """One model: what it is, what it costs, whether it fits, and whether the settings suit it."""
    principal = permitted(request, "query", "codex:read")
    return Reply(ModelReply(model=await service_of(request).model(principal, request.path_params["name"])))


async def use_model(request: Request) -> Response:
    """Changes the running daemon to another model; answers when that is loaded, or says why the old one goes on."""
    principal = permitted(request, "admin")
    body = await parsed(request, ModelBody)
    events = while_serving(service_of(request).use_model(principal, body.model), request.app.state.stopping)
    if body.stream:
        return await started(request.receive, lines(events))
    return Reply(await changed(events))


async def changed(events: AsyncIterator[ModelEvent]) -> ModelChange:
    """What came of a change, as soon as that is known."""
    async with closing(events):
        async for event in events:
            if isinstance(event, ChangedEvent):
                return ModelChange(**dict(event))
    raise AssertionError("a change ends with what it changed, or raises")


async def cache(request: Request) -> Response:
    """What the caches held, gave back and saved since the engine started."""
    return Reply(await service_of(request).cache(permitted(request)))


async def events(request: Request) -> Response:
    """Levels, engine, pools, evictions and prefill as they change, as server-sent events; never ends by itself."""
    changes = while_serving(following(request, permitted(request)), request.app.state.stopping, silently=True)
    return await started(request.receive, lines(changes))


async def following(request: Request, principal: Principal) -> AsyncIterator[ReplyShape]:
    """The events of whatever stands behind the routes, also of what takes its place."""
    service = None
    while service is not service_of(request):
        service = service_of(request)
        async with closing(service.events(principal)) as events:
            async for event in events:
                yield event
        await request.app.state.gate.opened()


async def prometheus(request: Request) -> Response:
    """The same figures in Prometheus' text format."""
    principal, service = permitted(request), service_of(request)
    ready, _ = await service.ready()
    page = metrics(await service.status(principal), await service.cache(principal), ready=ready)
    return PlainTextResponse(page, media_type=PROMETHEUS)


async def status(request: Request) -> Response:
    """One page about now."""
    return Reply(await service_of(request).status(permitted(request)))


async def healthz(_: Request) -> Response:
    """200 while the daemon runs."""
    return Reply(Alive(ok=True))


async def readyz(request: Request) -> Response:
    """200 when an answer can be given, else 503 with what it waits for."""
    ready, detail = await service_of(request).ready()
    return Reply(Ready(ready=ready, detail=detail), 200 if ready else 503)


async def load(request: Request) -> Response:
    """Loads directories, files or a git URL; progress as server-sent events."""
    principal = permitted(request, "codex:write")
    body = await parsed(request, LoadBody)
    for path in (body.path, *body.more):
        if not path.startswith("/") and not is_url(path):
            raise InvalidRequest(f"path: {path} is not absolute", "the daemon does not know your working directory")
    events = service_of(request).load(principal, body)
    return await started(request.receive, lines(served(request, events)))


async def reload_codex(request: Request) -> Response:
    """Loads a codex anew; progress as server-sent events."""
    principal = permitted(request, "codex:write")
    events = service_of(request).reload(principal, request.path_params["name"])
    return await started(request.receive, lines(served(request, events)))


def served(request: Request, events: AsyncIterator[LoadEvent]) -> AsyncIterator[LoadEvent]:
    return while_serving(events, request.app.state.stopping)


async def cancel_load(request: Request) -> Response:
    """Stops a load in any of its phases, and takes back what it did; after a load it stops the computing of the floor."""
    principal = permitted(request, "codex:write")
    return Reply(await service_of(request).cancel_load(principal, request.path_params["name"]))


async def codices(request: Request) -> Response:
    """What is loaded."""
    codices = await service_of(request).codices(permitted(request, "codex:read", "query"))
    return Reply(CodicesReply(codices=tuple(codices)))


async def codex(request: Request) -> Response:
    """One codex."""
    principal = permitted(request, "codex:read", "query")
    return Reply(CodexReply(codex=await service_of(request).codex(principal, request.path_params["name"])))


async def drop_codex(request: Request) -> Response:
    """Forgets a codex; memories of it stay."""
    principal = permitted(request, "codex:write")
    await service_of(request).drop(principal, request.path_params["name"])
    return Reply(Dropped(dropped=request.path_params["name"]))


async def search(request: Request) -> Response:
    """The archive alone: places that match, with the parts of their scores; `notices`: what it may not have seen."""
    principal = permitted(request, "search")
    body = await parsed(request, SearchBody)
    work = service_of(request).search(principal, body.query, body.codex, body.n, body.graph, body.cwd)
    return Reply(await while_connected(request.receive, work))
