"""The application: every route, and what each request passes on its way."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from orchestrator.api import chat, codices, operations, problems
from orchestrator.api.door import Door
from orchestrator.api.sigils import Sigils
from orchestrator.api.streams import ClientGoneError
from orchestrator.errors import LoreError
from orchestrator.service import Service

DEFAULT_MAX_BODY = 32 * 1024 * 1024

ROUTES = [
    Route("/v1/chat/completions", chat.completions, methods=["POST"]),
    Route("/v1/models", chat.models, methods=["GET"]),
    Route("/v1/models/local", operations.local_models, methods=["GET"]),
    Route("/v1/models/{name:path}", chat.model, methods=["GET"]),
    Route("/v1/plan", chat.plan, methods=["POST"]),
    Route("/v1/codices", codices.load, methods=["POST"]),
    Route("/v1/codices", codices.listed, methods=["GET"]),
    Route("/v1/codices/{name}", codices.shown, methods=["GET"]),
    Route("/v1/codices/{name}", codices.drop, methods=["DELETE"]),
    Route("/v1/codices/{name}/reload", codices.reload, methods=["POST"]),
    Route("/v1/codices/{name}/cancel", codices.cancel, methods=["POST"]),
    Route("/v1/search", codices.search, methods=["POST"]),
    Route("/v1/sessions", operations.sessions, methods=["GET"]),
    Route("/v1/sessions/{name}", operations.session, methods=["GET"]),
    Route("/v1/sessions/{name}", operations.rename_session, methods=["PATCH"]),
    Route("/v1/sessions/{name}", operations.drop_session, methods=["DELETE"]),
    Route("/v1/status", operations.status, methods=["GET"]),
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
) -> Starlette:
    """`hosts`: Host headers allowed over TCP; empty serves Unix sockets alone."""
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(Door, sigils=sigils, hosts=hosts, version=version)],
        exception_handlers={
            LoreError: problems.on_lore_error,
            HTTPException: problems.on_http_error,
            ClientGoneError: on_client_gone,
            Exception: problems.on_our_fault,
        },
    )
    app.state.service = service
    app.state.version = version
    app.state.max_body = max_body
    return app


async def on_client_gone(_: Request, __: Exception) -> Response:
    """Written to a closed connection, which drops it; 499 is what logs call such a request."""
    return Response(status_code=499)
