"""Routes of codices: load and reload with progress, list, show, drop, cancel; and the search of their archive."""

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from orchestrator.api.line import while_serving
from orchestrator.api.replies import Reply
from orchestrator.api.requests import parsed, permitted, service_of
from orchestrator.api.streams import lines, started, while_connected
from orchestrator.errors import InvalidRequest
from orchestrator.service import LoadEvent, LoadRequest
from orchestrator.wire.places import is_url
from orchestrator.wire.requests import LoadBody, SearchBody


async def load(request: Request) -> Response:
    """Loads directories, files or a git URL; progress as server-sent events."""
    principal = permitted(request, "codex:write")
    body = await parsed(request, LoadBody)
    for path in (body.path, *body.more):
        if not path.startswith("/") and not is_url(path):
            raise InvalidRequest(f"path: {path} is not absolute", "the daemon does not know your working directory")
    wanted = LoadRequest(
        principal=principal,
        path=body.path,
        name=body.name,
        more=body.more,
        revision=body.revision,
        secrets=body.secrets,
        replace=body.replace,
        watch=body.watch,
        include=body.include,
        exclude=body.exclude,
        tier=body.tier,
        dry_run=body.dry_run,
        wait=body.wait,
    )
    return await started(request.receive, lines(served(request, service_of(request).load(wanted))))


async def reload(request: Request) -> Response:
    """Loads a codex anew; progress as server-sent events."""
    principal = permitted(request, "codex:write")
    events = service_of(request).reload(principal, request.path_params["name"])
    return await started(request.receive, lines(served(request, events)))


def served(request: Request, events: AsyncIterator[LoadEvent]) -> AsyncIterator[LoadEvent]:
    return while_serving(events, request.app.state.stopping)


async def cancel(request: Request) -> Response:
    """Stops a load in any of its phases, and takes back what it did; after a load it stops the computing of the floor."""
    principal = permitted(request, "codex:write")
    return Reply(dict(await service_of(request).cancel_load(principal, request.path_params["name"])))


async def listed(request: Request) -> Response:
    """What is loaded."""
    codices = await service_of(request).codices(permitted(request, "codex:read", "query"))
    return Reply({"codices": [dict(codex) for codex in codices]})


async def shown(request: Request) -> Response:
    """One codex."""
    principal = permitted(request, "codex:read", "query")
    return Reply({"codex": dict(await service_of(request).codex(principal, request.path_params["name"]))})


async def drop(request: Request) -> Response:
    """Forgets a codex; memories of it stay."""
    principal = permitted(request, "codex:write")
    await service_of(request).drop(principal, request.path_params["name"])
    return Reply({"dropped": request.path_params["name"]})


async def search(request: Request) -> Response:
    """The archive alone: places that match, with the parts of their scores; `notices`: what it may not have seen."""
    principal = permitted(request, "search")
    body = await parsed(request, SearchBody)
    work = service_of(request).search(principal, body.query, body.codex, body.n, body.graph, body.cwd)
    return Reply(dict(await while_connected(request.receive, work)))
