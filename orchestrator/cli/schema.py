"""`lore schema`: what programs may rely on, as JSON schemas, and the routes as an OpenAPI document. Needs no daemon."""

from difflib import get_close_matches
from typing import Annotated, Any

import typer

from orchestrator.cli.client import Failure
from orchestrator.cli.terminal import result
from orchestrator.wire.faults import NOT_FOUND
from orchestrator.wire.places import VERSION

OPENAPI = "openapi"
Of = Annotated[
    list[str] | None,
    typer.Argument(metavar="[COMMAND...]", help="a command, such as ask or codex list; openapi: all routes"),
]


def schema(of: Of = None) -> None:
    """Prints the JSON schema of what a command prints with --json; without a command lists them."""
    import json

    wanted = " ".join(of or ()).removeprefix("lore ")
    result(json.dumps(schema_of(wanted), indent=2) if wanted else "\n".join([OPENAPI, *names()]))


def schema_of(wanted: str) -> dict[str, Any]:
    """Raises Failure for a command that prints no JSON."""
    if wanted == OPENAPI:
        from orchestrator.api.app import routes
        from orchestrator.wire.openapi import document

        return document(routes, VERSION)
    from orchestrator.wire.printed import json_schema

    if wanted not in names():
        near = get_close_matches(wanted, names(), n=1) or [one for one in names() if one.startswith(f"{wanted} ")]
        hint = f"lore schema {near[0]}" if near else "lore schema lists them"
        raise Failure(NOT_FOUND, f"no command lore {wanted} prints JSON", hint)
    return json_schema(wanted)


def names() -> list[str]:
    from orchestrator.wire.printed import PRINTED

    return list(PRINTED)
