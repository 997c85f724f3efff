"""From bytes to checked values: bodies within their limit, the principal, the scope."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from orchestrator.api.complaints import complaint
from orchestrator.api.problems import TooLarge
from orchestrator.errors import InvalidRequest, NotPermitted
from orchestrator.service import Principal, Service

Model = TypeVar("Model", bound=BaseModel)
PRINCIPAL_KEY = "lore.principal"


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def permitted(request: Request, *scopes: str) -> Principal:
    """The principal, if it has one of these scopes; without scopes named: any at all."""
    principal: Principal = request.scope["state"][PRINCIPAL_KEY]
    allowed = any(principal.may(scope) for scope in scopes) if scopes else bool(principal.scopes)
    if not allowed:
        wanted = " or ".join(scopes) or "any scope"
        raise NotPermitted(
            f"{request.method} {request.url.path} needs {wanted}; uid {principal.uid} has sigil {principal.sigil}",
            "the daemon's owner can grant it under [sigils] in the configuration",
        )
    return principal


async def parsed(request: Request, model: type[Model]) -> Model:
    """The body as `model`. Raises InvalidRequest with the field's name, or TooLarge."""
    body = await read(request, request.app.state.max_body)
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise InvalidRequest(complaint(error, body), "docs/reference/http.md says what each route takes") from error


async def read(request: Request, limit: int) -> bytes:
    """The whole body, never more than `limit` bytes of it."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise too_large(limit)
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise too_large(limit)
            parts.append(part)
    except ClientDisconnect as error:
        raise InvalidRequest("the body ended early") from error
    return b"".join(parts)


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes", "send less, or raise serve.max_body")
