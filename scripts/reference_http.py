"""The page of the routes: what each takes and gives, field by field, from the OpenAPI document; and every error code.

A shape that others refer to stands once, under its name.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

Node = dict[str, Any]  # a piece of the document
HEAD = """\
# HTTP

Over the daemon's Unix socket, and over TCP with a token where `serve.tcp` is set. Bodies are JSON. Errors are
`{"error": {"type", "code", "message", "hint"}}` with a status of [the table](#errors); in a stream that has begun, the
error is its last event. Keys are only ever added: ignore those that you do not know. `GET /openapi.json` and
`lore schema openapi` give the same as an OpenAPI document.

Streams are server-sent events: `data: {…}`, an empty line. Comments (`: {…}`) between them tell what is waited for.
"""
WIDE = 2**31 - 1  # a bound as wide as a number can be tells nobody anything


def page() -> Iterator[str]:
    made = openapi()
    shapes = made["components"]["schemas"]
    yield HEAD
    yield "| route | what it does |"
    yield "|---|---|"
    for name, one in operations(made):
        yield f"| [`{name}`](#{anchor(name)}) | {cell(one['summary'])} |"
    for name, one in operations(made):
        yield from ("", f"## {name}", "", one["summary"], *route(one, shapes))
    yield from ("", "# Shapes")
    for name in sorted(inner(shapes, operations(made))):
        yield from ("", f"## {name}", "", first_line(shapes[name]), "", *table(shapes[name]))
    yield from ("", "# Errors", "", *errors())


def openapi() -> Node:
    """What `GET /openapi.json` gives: this page is the same for people."""
    from orchestrator.api.app import routes
    from orchestrator.wire.openapi import document

    return document(routes, "")


def operations(made: Node) -> list[tuple[str, Node]]:
    """Each operation by `METHOD path`."""
    return [(f"{verb.upper()} {path}", one) for path, verbs in made["paths"].items() for verb, one in verbs.items()]


def route(one: Node, shapes: Node) -> Iterator[str]:
    asked = [parameter for parameter in one.get("parameters", ()) if parameter["in"] == "query"]
    if asked:
        yield from ("", "Behind `?`:", "", *table(as_shape(asked)))
    if "requestBody" in one:
        yield from ("", "Takes:", "", *table(shapes[referred(one["requestBody"])]))
    given = one["responses"]["200"]
    if "$ref" in given["content"].get("application/json", {}).get("schema", {}):
        yield from ("", "Gives:", "", *table(shapes[referred(given)]))
    for event in events_of(given["content"]):
        found = shapes[shape_name(event)]
        yield from ("", f"Event {found['title']}: {first_line(found)}", "", *table(found))
    if codes := codes_of(one):
        yield from ("", f"Refuses with {', '.join(f'`{code}`' for code in codes)}.")


def codes_of(one: Node) -> list[str]:
    """Beside those that any route may refuse with."""
    from orchestrator.api.http import OF_BODIES

    return sorted({*one.get("x-faults", ()), *(OF_BODIES if "requestBody" in one else ())}, key=by_status)


def as_shape(parameters: list[Node]) -> Node:
    fields = {one["name"]: one["schema"] | {"description": one["description"]} for one in parameters}
    return {"properties": fields, "required": [one["name"] for one in parameters if one["required"]]}


def referred(body: Node) -> str:
    """The name of the shape that a request's or a response's JSON has."""
    return shape_name(body["content"]["application/json"]["schema"])


def shape_name(node: Node) -> str:
    return str(node["$ref"]).rpartition("/")[2]


def inner(shapes: Node, all_operations: list[tuple[str, Node]]) -> set[str]:
    """Shapes that others refer to; those that a route alone has stand at that route."""
    found: set[str] = set()
    todo: list[Any] = [shapes[name] for _, one in all_operations for name in at_route(one)]
    while todo:
        node = todo.pop()
        parts = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else ()
        todo += parts
        if isinstance(node, dict) and isinstance(node.get("$ref"), str) and shape_name(node) not in found:
            found.add(shape_name(node))
            todo.append(shapes[shape_name(node)])
    return found


def at_route(one: Node) -> Iterator[str]:
    content = one["responses"]["200"]["content"]
    nodes = [one.get("requestBody", {}).get("content", {}), content]
    yield from (
        shape_name(each["application/json"]["schema"])
        for each in nodes
        if "$ref" in each.get("application/json", {}).get("schema", {})
    )
    yield from map(shape_name, events_of(content))


def events_of(content: Node) -> list[Node]:
    """Of a stream; without the error that may end any of them."""
    if "text/event-stream" not in content:
        return []
    data = content["text/event-stream"]["schema"]["properties"]["data"]
    written = data.get("anyOf", [data])[0]  # behind it is what ends a stream
    return [one for one in written["contentSchema"]["anyOf"] if shape_name(one) != "ErrorReply"]


def table(schema: dict[str, Any]) -> Iterator[str]:
    needed = schema.get("required", ())
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in schema.get("properties", {}).items():
        default = "" if name in needed else shown(field.get("default"))
        yield f"| `{name}` | {cell(words(field))} | {default} | {cell(field.get('description', ''))} |"


def shown(default: Any) -> str:
    if default is None:
        return "none"
    if isinstance(default, dict) and default:
        return "its own"
    return f"`{json.dumps(default)}`" if default not in ("", [], {}) or default is False else "empty"


def words(field: dict[str, Any]) -> str:
    """A field's type for people: `list of Message`, `string or none`, `integer 1 to 1000`."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{anchor(name)})"
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(words(one) for one in field["anyOf"]))
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{one}`" for one in field["enum"])
    if field.get("type") == "array":
        return f"list of {words(field.get('items', {}))}"
    if field.get("type") == "null":
        return "none"
    return f"{field.get('type', 'anything')}{bounds(field)}"


def bounds(field: dict[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return "".join(f" {sign} {field[key]:,}" for key, sign in signs.items() if abs(field.get(key, WIDE)) < WIDE)


def errors() -> Iterator[str]:
    from orchestrator.api.http import EVERY, OF_BODIES
    from orchestrator.wire.faults import CODES

    yield f"Any route may refuse with {listed(EVERY)}; one that takes a body with {listed(OF_BODIES)};"
    yield "an unknown path with `unknown_route`, another method with `wrong_method`. A request's head of more than"
    yield "64 KiB (of 128 KiB at the latest, where it is sent right behind another request) is refused with"
    yield "`too_large` (431), one that is not complete within 10 s with `invalid_request` (408), what is no HTTP with"
    yield "`invalid_request` (400); each of these three ends the connection."
    yield ""
    yield "| code | status | `lore` ends with | again after | meaning |"
    yield "|---|---|---|---|---|"
    for code in sorted(CODES, key=by_status):
        row = CODES[code]
        again = f"{row.retry_after_s} s" if row.retry_after_s else ""
        yield f"| `{code}` | {row.status} | {row.exit_status} | {again} | {cell(row.meaning)} |"


def listed(codes: Iterable[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)


def by_status(code: str) -> tuple[int, str]:
    from orchestrator.wire.faults import CODES

    return CODES[code].status, code


def first_line(schema: dict[str, Any]) -> str:
    return str(schema.get("description", "")).partition("\n\n")[0].replace("\n", " ")


def anchor(heading: str) -> str:
    """As renderers of Markdown make it: small letters, spaces to dashes, signs left out."""
    return "".join("-" if one == " " else one for one in heading.lower() if one.isalnum() or one in " -_")


def cell(text: str) -> str:
    return text.replace("|", "\\|")
