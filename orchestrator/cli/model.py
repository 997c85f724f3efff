"""`lore model`: models at hand."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given
from orchestrator.cli.connect import daemon
from orchestrator.cli.faults import Failure
from orchestrator.cli.figures import plural, size, table
from orchestrator.cli.load import step
from orchestrator.cli.terminal import clear_progress, note, progress, result, result_json
from orchestrator.wire import faults
from orchestrator.wire.places import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.cli.client import Event
    from orchestrator.cli.download import Got
    from orchestrator.cli.hub import HubFile

app = typer.Typer(no_args_is_help=True, help="Models at hand, and whether they fit.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="the model: its name, its file's name or a path")]
OptionalName = Annotated[
    str | None, typer.Argument(metavar="NAME", help="its name, its file's name or a path; default: the one that runs")
]
Source = Annotated[str, typer.Argument(metavar="hf:OWNER/REPO/FILE", help="a GGUF file on a model hub")]
Later = Annotated[
    bool, typer.Option("--later", help="change the configuration alone; a daemon that runs keeps its model")
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="do not ask")]
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
    asked = named(name) if name else daemon(socket).call("GET", "/v1/status")["model"]["name"]
    found = daemon(socket).call("GET", f"/v1/models/local/{quote(asked, safe='')}")
    if as_json:
        result_json(found)
        return
    from orchestrator.cli.model_page import page

    result(page(found["model"]))


def named(asked: str) -> str:
    """A model's name, or the path of a GGUF file in full. Raises Failure for a path to anything else."""
    path = path_of(asked)
    if "/" not in asked and not (path.suffix == ".gguf" and path.is_file()):
        return asked
    if not path.is_file():
        raise Failure(faults.USAGE, f"there is no model file {path}", "`lore model list` shows what there is")
    if fault := local.gguf_fault(path):
        raise Failure(faults.USAGE, f"this is no model: {fault}", "`lore model list` shows the models at hand")
    return str(path.resolve())


@app.command()
def use(
    name: Name, config: Config = None, later: Later = False, as_json: given.Json = False, socket: given.Socket = None
) -> None:
    """Takes a model into use: the running daemon changes to it, and your configuration names it. Says what becomes cold."""
    path = local.model_setting(name)
    switched = Switched("later", cold_floors(path, socket)) if later or config else switch(path, socket)
    chosen = local.use_model(path, config)
    if as_json:
        result_json({"model": chosen, "daemon": switched.daemon, "cold": switched.cold})
        return
    already = "" if chosen["changed"] else " already"
    note(f"{chosen['file']}: model.path = {chosen['path']}{already}")
    if chosen["overridden"]:
        note(f"{chosen['overridden']} is set and wins over the file when a daemon starts")
    for floor in switched.cold:
        note(f"cold: the floor of {floor['name']}, {plural(floor['tokens'], 'token')} to compute unless it was before")
    note(WORDS[switched.daemon].format(path=path))


@dataclass(frozen=True)
class Switched:
    """`daemon` is a word of WORDS; `cold` the floors that stood with the model before."""

    daemon: str
    cold: list[dict[str, Any]]


WORDS = {
    "changed": "the daemon runs it now; what was computed with the other model stays on disk",
    "same": "the daemon runs it",
    "none": "no daemon runs: lore serve starts with it",
    "later": "restart the daemon to use it: systemctl --user restart lorekeep, or end lore serve and start it again",
    "kept": "the running daemon keeps its model: changing it needs the scope admin",
}


def switch(path: str, socket: str | None) -> Switched:
    """Has the running daemon change its model, which takes as long as loading does. Raises Failure with nothing changed."""
    try:
        done = changed(daemon(socket).stream("/v1/model", {"model": path, "stream": True}, method="PUT"))
    except Failure as failure:
        if failure.status not in (faults.UNREACHABLE, faults.NOT_PERMITTED):
            raise
        return Switched("none" if failure.status == faults.UNREACHABLE else "kept", [])
    finally:
        clear_progress()
    return Switched("changed" if done["changed"] else "same", done["cold"])


def changed(events: "Iterator[Event]") -> dict[str, Any]:
    """What came of a change, shown until every codex is raised. Ctrl-C ends the watching, not the change."""
    done: dict[str, Any] | None = None
    try:
        for event in events:
            if not event.aside and event.data["event"] == "changed":
                done = event.data
            elif not event.aside:
                progress(step(event.data))
    except KeyboardInterrupt:
        if done is None:
            note(
                "\nthe daemon goes on changing its model, `lore status` shows it; your configuration names the one before"
            )
            raise
    if done is None:
        raise Failure(faults.FAILED, "the daemon broke off the change", "`lore status` shows its model")
    return done


def cold_floors(path: str, socket: str | None) -> list[dict[str, Any]]:
    """What stands in the running daemon with another model, in its tokens; nothing where none runs."""
    report = status(socket)
    if report is None or path in (report["model"]["name"], report["model"].get("path")):
        return []
    codices = [codex for codex in report["codices"] if codex.get("tier_tokens")]
    return [{"name": codex["name"], "tokens": codex["tier_tokens"]} for codex in codices]


def status(socket: str | None) -> dict[str, Any] | None:
    """The running daemon's; None where none runs."""
    try:
        report: dict[str, Any] = daemon(socket).call("GET", "/v1/status")
    except Failure as failure:
        if failure.status != faults.UNREACHABLE:
            raise
        return None
    return report


@app.command()
def drop(name: Name, yes: Yes = False, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Removes a downloaded model from the models folder, after asking; never one in use, never another file."""
    report = status(socket)
    if report is None and (other := local.other_daemon()):
        raise Failure(
            faults.FAILED, f"the daemon with pid {other[0]} may be using it", f"name its socket: --socket {other[1]}"
        )
    found = local.doomed_model(name, report["model"].get("path") if report else None)
    words = ", ".join(str(path) for path in found.paths)
    if not yes:
        insist_on_terminal(words)
        typer.confirm(f"remove {words} ({size(found.bytes)})?", abort=True, err=True)
    local.remove_model(found)
    if as_json:
        result_json({"dropped": found.id, "paths": [str(path) for path in found.paths], "bytes": found.bytes})
    else:
        note(f"removed {words}, {size(found.bytes)}")


def insist_on_terminal(words: str) -> None:
    """Nobody can be asked through a pipe."""
    if not sys.stdin.isatty():
        raise Failure(faults.USAGE, f"this would remove {words}", "say --yes to remove it without being asked")


@app.command()
def get(source: Source, as_json: given.Json = False) -> None:
    """Downloads a model, all its parts, into the models folder; goes on where an earlier download broke off; checks it."""
    from orchestrator.cli.hub import parts

    places = parts(source)
    targets = [local.models_folder() / place.file for place in places]
    missing = [one for one in zip(places, targets, strict=True) if len(places) == 1 or not one[1].exists()]
    got = [fetched(place, target) for place, target in missing]
    if fault := local.gguf_fault(targets[0]):
        again = f"lore model drop {targets[0].stem}, then the same command again"
        raise Failure(faults.FAILED, f"what came is no whole model: {fault}", again)
    checked = bool(got) and all(one.checked for one in got)
    held = sum(target.stat().st_size for target in targets)
    if as_json:
        told = {"path": str(targets[0]), "bytes": held, "checked": checked, "files": [str(one) for one in targets]}
        result_json(told | {"sha256": got[0].sha256 if got else None})
        return
    sums = "its sum is what the hub says" if checked else "the hub told no sum to check"
    note(f"{targets[0]}: {size(held)}{f' in {len(targets)} files' if len(targets) > 1 else ''}, {sums}")
    note(f"use it: lore model use {targets[0].stem}")


def fetched(place: "HubFile", target: Path) -> "Got":
    from orchestrator.cli.download import fetch

    try:
        return fetch(
            place.url,
            target,
            lambda done, total: progress(f"{place.name}  {size(done)} of {size(total)}"),
            place.token,
        )
    finally:
        clear_progress()
