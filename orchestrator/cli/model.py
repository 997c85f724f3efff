"""`lore model`: models at hand."""

from typing import Annotated, Any

import typer

from orchestrator.cli import options as given
from orchestrator.cli.connect import daemon
from orchestrator.cli.faults import Failure
from orchestrator.cli.figures import count, outline, size, table
from orchestrator.cli.terminal import result, result_json
from orchestrator.wire import faults

app = typer.Typer(no_args_is_help=True, help="Models at hand, and whether they fit.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="the model")]


@app.command("list")
def list_(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Lists them with what they need."""
    report = daemon(socket).call("GET", "/v1/models/local")
    result_json(report) if as_json else result(table(("model", "", "size", "fits"), [row(m) for m in report["models"]]))


def row(model: dict[str, Any]) -> tuple[str, ...]:
    fits = {True: "yes", False: "no"}.get(model.get("fits"), "unknown")  # type: ignore[arg-type]
    context = f", context {count(model['context'])}" if model.get("context") else ""
    return model["id"], "loaded" if model.get("loaded") else "", size(model.get("bytes") or 0), fits + context


@app.command()
def show(name: Name, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows one model."""
    known = daemon(socket).call("GET", "/v1/models/local")["models"]
    found = next((model for model in known if model["id"] == name), None)
    if found is None:
        raise Failure(faults.NOT_FOUND, f"no model {name}", f"there are: {', '.join(model['id'] for model in known)}")
    result_json({"model": found}) if as_json else result(outline(found))
