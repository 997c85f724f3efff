"""From bytes to checked values: bodies within their limit, the principal, the scope."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from orchestrator.api.problems import TooLarge
from orchestrator.errors import InvalidRequest, NotPermitted
from orchestrator.service import Principal, Service

Model = TypeVar("Model", bound=BaseModel)
PRINCIPAL_KEY = "lore.principal"


HALF = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


MARKS = re.compile(
    r"(str|int|float|bool|tuple|list|dict|function-|constrained-|nullable).*[\[\-(]"
    r"|constrained-\w+$|str$|int$|float$|bool$"
)


SHOULD = {
    "string_type": "should be text",
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "finite_number": "should be a finite number",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "tuple_type": "should be a list",
    "list_type": "should be a list",
    "dict_type": "should be an object",
    "model_type": "should be an object",
    "missing": "is missing",
    "string_too_short": "is empty",
    "greater_than_equal": "should be {ge} or more",
    "greater_than": "should be more than {gt}",
    "less_than_equal": "should be {le} or less",
    "less_than": "should be less than {lt}",
    "literal_error": "should be {expected}",
}


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
        raise InvalidRequest(complaint(error, body), "correct the field, or leave it out") from error


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


def complaint(error: ValidationError, body: bytes) -> str:
    """The first fault in words."""
    first = telling(error.errors(include_url=False, include_input=False))
    if first["type"] == "json_invalid":
        return unreadable(first["ctx"]["error"], body)
    place = place_of(first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown field {place}"
    return f"{place or 'body'}: {wording(first['type'], first['msg'], first.get('ctx') or {})}"


def telling(faults: Sequence[Any]) -> Any:
    """The first; where several types were tried at its place, the one that came furthest: it is the one that was meant."""
    place = place_of(faults[0]["loc"])
    tried = [one for one in faults if place_of(one["loc"]) == place or place_of(one["loc"]).startswith(f"{place}.")]
    return max(tried, key=lambda one: (not one["type"].endswith("_type"), len(place_of(one["loc"]).split("."))))


def wording(kind: str, message: str, context: Mapping[str, Any]) -> str:
    if kind == "too_short":
        least = context["min_length"]
        return "is empty" if least == 1 else f"should have at least {least}, and has {context['actual_length']}"
    if kind == "too_long":
        return f"too many: {context['actual_length'] or 'more'} of at most {context['max_length']}"
    if kind in SHOULD:
        return SHOULD[kind].format(**context)
    return message.removeprefix("Value error, ").removeprefix("Input ")


def unreadable(why: str, body: bytes) -> str:
    """What the reader of JSON stopped at. Some of that is JSON, which we do not take: it is called what it is."""
    where = why.partition(" at line")[2]
    at = f" at line{where}" if where else ""
    if "recursion limit" in why:
        return f"nested too deeply{at}"
    if "surrogate" in why or ("hex escape" in why and HALF.search(body)):
        return f"a lone surrogate, half a character that is no text{at}"
    if "unicode code point" in why:
        return f"not UTF-8{at}"
    return f"not JSON: {why}"


def place_of(location: tuple[int | str, ...]) -> str:
    """`messages.0.content`, without the names of the types that were tried there."""
    return ".".join(str(part) for part in location if isinstance(part, int) or not MARKS.match(part))
