"""`lore model`: models at hand."""

from typing import Annotated, Any

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given
from orchestrator.cli.connect import daemon, part
from orchestrator.cli.faults import Failure
from orchestrator.cli.figures import plural, size, table
from orchestrator.cli.terminal import clear_progress, note, progress, result, result_json
from orchestrator.wire import faults

app = typer.Typer(no_args_is_help=True, help="Models at hand, and whether they fit.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="the model: its name, its file's name or a path")]
OptionalName = Annotated[
    str | None, typer.Argument(metavar="NAME", help="its name, its file's name or a path; default: the one that runs")
]
Source = Annotated[str, typer.Argument(metavar="hf:OWNER/REPO/FILE", help="a GGUF file on a model hub")]
Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="change this file instead of your own")]


@app.command("list")
def list_(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Lists them with what they need and whether they fit this machine, by their headers alone."""
    report = daemon(socket).call("GET", "/v1/models/local")
    if as_json:
        result_json(report)
    else:
        result(table(("model", "", "size", "fits"), [row(model) for model in report["models"]]))


def row(model: dict[str, Any]) -> tuple[str, ...]:
    return model["id"], "loaded" if model.get("loaded") else "", size(model.get("bytes") or 0), model.get("words", "")


@app.command()
def show(name: OptionalName = None, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows what a model is, what it costs, where its prompts' blocks go, and whether the settings suit it."""
    asked = name or daemon(socket).call("GET", "/v1/status")["model"]["name"]
    found = daemon(socket).call("GET", f"/v1/models/local/{part(asked)}")
    if as_json:
        result_json(found)
        return
    from orchestrator.cli.model_page import page

    result(page(found["model"]))


@app.command()
def use(name: Name, config: Config = None, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Writes a model into your configuration, and says which floors become cold. Takes effect when the daemon starts."""
    chosen = local.use_model(name, config)
    cold = cold_floors(chosen["path"], socket) if chosen["changed"] else []
    if as_json:
        result_json({"model": chosen, "cold": cold})
        return
    if not chosen["changed"]:
        note(f"{chosen['file']} has model.path = {chosen['path']} already")
        return
    note(f"{chosen['file']}: model.path = {chosen['path']}")
    if chosen["overridden"]:
        note(f"{chosen['overridden']} is set and wins over the file")
    for floor in cold:
        note(f"cold: the floor of {floor['name']}, {plural(floor['tokens'], 'token')} to compute again")
    note("restart the daemon: systemctl --user restart lorekeep, or end lore serve and start it again")


def cold_floors(path: str, socket: str | None) -> list[dict[str, Any]]:
    """What stands in the running daemon with another model, in its tokens; nothing where none runs."""
    try:
        report = daemon(socket).call("GET", "/v1/status")
    except Failure as failure:
        if failure.status != faults.UNREACHABLE:
            raise
        return []
    if path in (report["model"]["name"], report["model"].get("path")):
        return []
    codices = [codex for codex in report["codices"] if codex.get("tier_tokens")]
    return [{"name": codex["name"], "tokens": codex["tier_tokens"]} for codex in codices]


@app.command()
def get(source: Source, as_json: given.Json = False) -> None:
    """Downloads a model into the models folder; goes on where an earlier download broke off, and checks its sum."""
    from orchestrator.cli.download import fetch
    from orchestrator.cli.hub import located

    place = located(source)
    target = local.models_folder() / place.file
    try:
        got = fetch(place.url, target, lambda done, total: progress(f"{place.name}  {size(done)} of {size(total)}"))
    finally:
        clear_progress()
    if as_json:
        result_json({"path": str(target), "bytes": got.bytes, "sha256": got.sha256, "checked": got.checked})
        return
    checked = "its sum is what the hub says" if got.checked else "the hub told no sum to check"
    note(f"{target}: {size(got.bytes)}, {checked}")
    note(f"use it: lore model use {target.stem}")
