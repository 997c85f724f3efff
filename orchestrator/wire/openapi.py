"""The routes as one OpenAPI 3.1 document: generators of clients, fuzzers and our own reference read it.

Pure: from declared routes to a value. What is in the document stands at the routes and in the shapes; nothing is added here
but the form. Keys beginning with `x-` say what OpenAPI has no word for: scopes, and the codes of refusals.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from orchestrator.wire.base import ReplyShape
from orchestrator.wire.faults import fault_code
from orchestrator.wire.replies import ErrorReply

COMPONENTS = "#/components/schemas/"
ABOUT = """\
Over the daemon's Unix socket, and over TCP with a token where `serve.tcp` is set. Errors have one shape. Keys are only \
ever added: ignore those that you do not know. A key `lore` in a request holds what OpenAI's protocol has no word for."""
BEARER = "over TCP only: `lore token new --sigil owner` makes one. Over the Unix socket the kernel says who asks"
NO_PATH = "`unknown_route`: a name that holds a slash leads to another path"
NO_METHOD = "`wrong_method`: the same, and that path takes another method"
AGAIN_AFTER = "seconds until asking again may help"

Schema = type[BaseModel]
Node = dict[str, Any]  # a piece of JSON


class QueryParameter(NamedTuple):
    """What may stand behind the `?` of a route: a text, or with `most` a whole number. Left out, it is `usual`."""

    name: str
    meaning: str
    usual: int = 0
    least: int = 0
    most: int | None = None
    needed: bool = False


class DeclaredRoute(Protocol):
    """What a route says of itself. `scopes`: one is needed; () any; None: everybody may. `also`: other statuses of the same
    reply. `media`: of a reply that has no shape and is no stream. `refusals`: all codes; `faults`: of this route alone."""

    method: str
    path: str
    operation: str
    help: str
    scopes: tuple[str, ...] | None
    body: Schema | None
    reply: Schema | None
    media: str
    events: tuple[type[ReplyShape], ...]
    query: tuple[QueryParameter, ...]
    also: tuple[int, ...]
    faults: tuple[str, ...]
    refusals: tuple[str, ...]


def document(routes: Sequence[DeclaredRoute], version: str) -> Node:
    """The whole document. Its paths are in the order of their names, so that two versions can be compared."""
    reference, shapes = referred(routes)
    paths: dict[str, Node] = {}
    for one in sorted(routes, key=lambda one: one.path):
        paths.setdefault(path_of(one), {})[one.method.lower()] = operation(one, reference)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lorekeep", "version": version, "description": ABOUT, "license": {"name": "MIT"}},
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "schemas": shapes,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": BEARER}},
        },
    }


def referred(routes: Sequence[DeclaredRoute]) -> tuple[Mapping[Any, Node], Node]:
    """Of each shape, with the mode in which it is taken or given, how it is referred to; and all shapes by their names."""
    taken = [(one.body, "validation") for one in routes if one.body is not None]
    given = [(one, "serialization") for route in routes for one in (route.reply, *route.events) if one is not None]
    wanted: list[Any] = list(dict.fromkeys([*taken, *given, (ErrorReply, "serialization")]))
    reference, whole = models_json_schema(wanted, ref_template=COMPONENTS + "{model}")
    return reference, dict(sorted(whole["$defs"].items()))


def path_of(one: DeclaredRoute) -> str:
    return one.path.replace(":path}", "}")


def operation(one: DeclaredRoute, reference: Mapping[Any, Node]) -> Node:
    found: Node = {"operationId": one.operation, "summary": one.help, "responses": responses(one, reference)}
    if parameters := [*path_parameters(one), *map(query_parameter, one.query)]:
        found["parameters"] = parameters
    if one.body is not None:
        needed = any(field.is_required() for field in one.body.model_fields.values())
        found["requestBody"] = {"required": needed, "content": as_json(reference[one.body, "validation"])}
    if one.scopes:
        found["x-scopes"] = list(one.scopes)
    if one.faults:
        found["x-faults"] = list(one.faults)
    return found


def path_parameters(one: DeclaredRoute) -> Iterator[Node]:
    if "{name" in one.path:
        schema = {"type": "string", "minLength": 1}
        yield {"name": "name", "in": "path", "required": True, "schema": schema, "description": "of what is meant"}


def query_parameter(one: QueryParameter) -> Node:
    number = {"type": "integer", "default": one.usual, "minimum": one.least, "maximum": one.most}
    schema = {"type": "string"} if one.most is None else number
    return {"name": one.name, "in": "query", "required": one.needed, "schema": schema, "description": one.meaning}


def responses(one: DeclaredRoute, reference: Mapping[Any, Node]) -> Node:
    content: Node = as_json(reference[one.reply, "serialization"]) if one.reply is not None else {}
    error = as_json(reference[ErrorReply, "serialization"])
    if one.events:
        content["text/event-stream"] = {"schema": event_schema(one.events, reference)}
    given = {"description": "done", "content": content or {one.media: {"schema": {}}}}
    found = {"200": given} | {str(status): given for status in one.also}
    for status, codes in by_status(one.refusals):
        refused: Node = {"description": "; ".join(f"`{code}`: {fault_code(code).meaning}" for code in codes)}
        if any(fault_code(code).retry_after_s for code in codes):
            refused["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": AGAIN_AFTER}}
        found.setdefault(str(status), refused | {"content": error})
    if "{name" in one.path:
        found.setdefault("404", {"description": NO_PATH, "content": error})
        found["405"] = {"description": NO_METHOD, "content": error}
    return dict(sorted(found.items()))


def event_schema(events: Sequence[type[ReplyShape]], reference: Mapping[Any, Node]) -> Node:
    """Of each server-sent event, as OpenAPI 3.2 has it: JSON in a text, but for what ends a stream. An error may
    be the last one."""
    shapes = [reference[each, "serialization"] for each in (*events, ErrorReply)]
    data: Node = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"anyOf": shapes}}
    if ends := {each.ends for each in events} - {""}:
        data = {"anyOf": [data, {"enum": sorted(ends)}]}
    return {"type": "object", "required": ["data"], "properties": {"event": {"type": "string"}, "data": data}}


def as_json(schema: Node) -> Node:
    return {"application/json": {"schema": schema}}


def by_status(codes: Iterable[str]) -> list[tuple[int, list[str]]]:
    found: dict[int, list[str]] = {}
    for code in sorted(codes):
        found.setdefault(fault_code(code).status, []).append(code)
    return sorted(found.items())
