"""The page of the routes: what each takes and gives, field by field, from the wire's own shapes; and every error code.

A shape that others refer to stands once, under its name.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

HEAD = """\
# HTTP

Over the daemon's Unix socket, and over TCP with a token where `serve.tcp` is set. Bodies are JSON. Errors are
`{"error": {"type", "code", "message", "hint"}}` with a status of [the table](#errors); in a stream that has begun, the
error is its last event. Keys are only ever added: ignore those that you do not know.

Streams are server-sent events: `data: {…}`, an empty line. Comments (`: {…}`) between them tell what is waited for.
"""
WIDE = 2**31 - 1  # a bound as wide as a number can be tells nobody anything


def page() -> Iterator[str]:
    yield HEAD
    yield "| route | what it does |"
    yield "|---|---|"
    for one in routes():
        name = f"{one.method} {one.path}"
        yield f"| [`{name}`](#{anchor(name)}) | {cell(one.help)} |"
    shapes: dict[str, Any] = {}
    for one in routes():
        yield from route(one, shapes)
    yield from ("", "# Shapes")
    for name in sorted(shapes):
        yield from ("", f"## {name}", "", first_line(shapes[name]), "", *table(shapes[name]))
    yield from ("", "# Errors", "", *errors())


def routes() -> list[Any]:
    """Every route, as it is declared, by its path."""
    from orchestrator.api.app import routes as declared

    return sorted(declared, key=lambda one: one.path)


def route(one: Any, shapes: dict[str, Any]) -> Iterator[str]:
    from orchestrator.api.http import OF_BODIES

    yield from ("", f"## {one.method} {one.path}", "", one.help)
    if one.body is not None:
        yield from ("", "Takes:", "", *table(schema_of(one.body, shapes, "validation")))
    if one.reply is not None:
        yield from ("", "Gives:", "", *table(schema_of(one.reply, shapes, "serialization")))
    for event in one.events:
        found = schema_of(event, shapes, "serialization")
        yield from ("", f"Event {found['title']}: {first_line(found)}", "", *table(found))
    codes = sorted({*one.faults, *(OF_BODIES if one.body else ())}, key=by_status)
    if codes:
        yield from ("", f"Refuses with {', '.join(f'`{code}`' for code in codes)}.")


def schema_of(model: Any, shapes: dict[str, Any], mode: str) -> dict[str, Any]:
    """The model's own schema; those that it refers to are put among the shapes."""
    found: dict[str, Any] = model.model_json_schema(mode=mode)
    shapes |= found.pop("$defs", {})
    return found


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
    yield "an unknown path with `unknown_route` (404), another method with `wrong_method` (405). A request's head of"
    yield "more than 64 KiB (of 128 KiB at the latest, where it is sent right behind another request) is refused with"
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
