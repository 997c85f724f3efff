"""`lore model`: models at hand, downloaded, removed, and the one that is used."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given
from orchestrator.cli.ask import working_directory
from orchestrator.cli.client import Daemon, Event, Failure
from orchestrator.cli.terminal import (
    Report,
    clear_progress,
    count,
    done,
    facts,
    kv_loss,
    listed,
    note,
    output,
    plural,
    progress,
    result_json,
    size,
    step,
    table,
)
from orchestrator.wire import faults
from orchestrator.wire.places import path_of

if TYPE_CHECKING:
    from orchestrator.cli.download import Got, HubFile

app = typer.Typer(no_args_is_help=True, help="Models at hand, and whether they fit.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="the model: its name, its file's name or a path")]
OptionalName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", help="its name, its file's name or a path; default: the one that runs, or that is configured"
    ),
]
Measure = Annotated[
    bool, given.option("--measure", "first measure what KV type q8_0, or the one in use, changes of its predictions")
]
Codex = Annotated[str | None, given.option("-c, --codex NAME", f"with --measure: {given.WHICH}")]
Source = Annotated[str, typer.Argument(metavar="hf:OWNER/REPO/FILE", help="a GGUF file on a model hub")]
Later = Annotated[bool, given.option("--later", "change the configuration alone; a daemon that runs keeps its model")]
Yes = Annotated[bool, given.option("-y, --yes", "do not ask")]
Config = Annotated[str | None, given.option("--config FILE", "change this file instead of your own")]
WORDS = {
    "changed": "the daemon runs it now; what was computed with the other model stays on disk",
    "same": "the daemon runs it",
    "none": "no daemon runs: lore serve starts with it",
    "later": "restart the daemon to use it: systemctl --user restart lorekeep, or end lore serve and start it again",
    "kept": "the running daemon keeps its model: changing it needs the scope admin",
}


@app.command("list")
def list_(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Lists them with what they need and whether they fit this machine, by their headers alone."""
    if daemon := running(socket):
        report = daemon.call("GET", "/v1/models/local")
    else:
        from orchestrator.reports.models import models_here

        found = models_here(local.settings().settings, local.paths())
        report = {"models": [one.model_dump(mode="json") for one in found]}
    output(report, models_page, as_json=as_json)


def models_page(report: Report) -> str:
    return table(("model", "", "size", "fits"), [row(model) for model in report["models"]])


def row(model: Report) -> tuple[str, ...]:
    return model["id"], "loaded" if model.get("loaded") else "", size(model.get("bytes") or 0), model.get("words", "")


@app.command()
def show(
    name: OptionalName = None,
    measure: Measure = False,
    codex: Codex = None,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Shows what a model is, what it costs, where its prompts' blocks go, and whether the settings suit it."""
    asked = setting_named(name) if name else ""
    if measure:
        measure_kv(asked, codex, Daemon(socket))
    if daemon := running(socket):
        asked = asked or own_model(daemon.call("GET", "/v1/status"))
        found = daemon.call("GET", f"/v1/models/local/{quote(asked, safe='')}")
    else:
        from orchestrator.reports.models import model_here

        with local.translated():
            found = {"model": model_here(asked, local.settings().settings, local.paths()).model_dump(mode="json")}
    output(found, lambda one: model_page(one["model"]), as_json=as_json)


def own_model(status: Report) -> str:
    """The name of the daemon's model. Raises Failure where servers compute in its place."""
    model = status["model"]
    if status["engine"].get("servers"):
        raise Failure(
            faults.NOT_FOUND,
            f"no model is loaded here: {model['name']} computes in its place",
            "`lore status` shows the server; `lore model show NAME` shows a file",
        )
    return str(model["name"])


def measure_kv(asked: str, codex: str | None, daemon: Daemon) -> None:
    """Has the running daemon measure with its model; Ctrl-C ends that. Raises Failure."""
    model = daemon.call("GET", "/v1/status")["model"]
    if asked not in ("", model["name"], model["path"], Path(model["path"]).stem):
        raise Failure(
            faults.USAGE, f"{model['name']} is loaded, and no other model can be measured", f"lore model use {asked}"
        )
    last: Report = {}
    try:
        for event in daemon.stream("/v1/model/measure", {"codex": codex, "cwd": working_directory()}):
            if not event.aside:
                last = event.data
                if last["event"] == "measuring":
                    progress(
                        f"measuring KV type {last['kind']}  {count(last['done'])} of {count(last['total'])} tokens"
                    )
    finally:
        clear_progress()
    if last.get("event") != "measured":
        raise Failure(faults.FAILED, "the daemon broke off the measurement", "ask again")


def running(socket: str | None) -> Daemon | None:
    """The daemon, which knows what is loaded and what that holds; None where none listens."""
    try:
        return Daemon(socket)
    except Failure as failure:
        if failure.status != faults.UNREACHABLE:
            raise
        return None


def setting_named(asked: str) -> str:
    """A model's name, or the path of a GGUF file in full. Raises Failure for a path to anything else."""
    path = path_of(asked)
    if "/" not in asked and not (path.suffix == ".gguf" and path.is_file()):
        return asked
    if not path.is_file():
        raise Failure(faults.USAGE, f"there is no model file {path}", "`lore model list` shows what there is")
    from orchestrator.model.model_file import damage

    if fault := damage(path):
        raise Failure(faults.USAGE, f"this is no model: {fault}", "`lore model list` shows the models at hand")
    return str(path.resolve())


@app.command()
def use(
    name: Name, config: Config = None, later: Later = False, as_json: given.Json = False, socket: given.Socket = None
) -> None:
    """Takes a model into use: the running daemon changes to it, and your configuration names it. Says what becomes cold."""
    from orchestrator.model.model_file import setting_of, use_model

    with local.translated():
        path = setting_of(name, local.paths().models)
    switched = Switched("later", cold_floors(path, socket)) if later or config else switch(path, socket)
    with local.translated():
        chosen = use_model(path, os.environ, Path(config) if config else None)
    if as_json:
        result_json({"model": chosen, "daemon": switched.daemon, "cold": switched.cold})
        return
    already = "" if chosen["changed"] else " already"
    note(f"{chosen['file']}: model.path = {chosen['path']}{already}")
    if chosen["overridden"]:
        note(f"{chosen['overridden']} is set and wins over the file when a daemon starts")
    for floor in switched.cold:
        note(f"cold: the floor of {floor['name']}, which is built anew for this model unless it was before")
    note(WORDS[switched.daemon])


@dataclass(frozen=True)
class Switched:
    """`daemon` is a word of WORDS; `cold` the floors that were computed with the model before."""

    daemon: str
    cold: list[dict[str, Any]]


def switch(path: str, socket: str | None) -> Switched:
    """Has the running daemon change its model, which takes as long as loading does. Raises Failure with nothing changed."""
    try:
        done = changed(Daemon(socket).stream("/v1/model", {"model": path, "stream": True}, method="PUT"))
    except Failure as failure:
        if failure.status not in (faults.UNREACHABLE, faults.NOT_PERMITTED):
            raise
        return Switched("none" if failure.status == faults.UNREACHABLE else "kept", [])
    finally:
        clear_progress()
    return Switched("changed" if done["changed"] else "same", done["cold"])


def changed(events: Iterator[Event]) -> dict[str, Any]:
    """What came of a change, shown until every codex is built. Ctrl-C ends the watching, not the change."""
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
    """What the running daemon has computed with another model, in its tokens; nothing where none runs."""
    report = status(socket)
    if report is None or path in (report["model"]["name"], report["model"].get("path")):
        return []
    codices = [codex for codex in report["codices"] if codex.get("floor_tokens")]
    return [{"name": codex["name"], "tokens": codex["floor_tokens"]} for codex in codices]


def status(socket: str | None) -> dict[str, Any] | None:
    """The running daemon's; None where none runs."""
    daemon = running(socket)
    return None if daemon is None else daemon.call("GET", "/v1/status")


@app.command()
def drop(name: Name, yes: Yes = False, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Removes a downloaded model from the models folder, after asking; never one in use, never another file."""
    from orchestrator.instance import daemon_of
    from orchestrator.model.model_file import removal_of, remove

    report, paths, settings = status(socket), local.paths(), local.settings().settings
    if report is None and (other := daemon_of(paths)):
        hint = f"name its socket: --socket {other.about}"
        raise Failure(faults.FAILED, f"the daemon with pid {other.pid} may be using it", hint)
    in_use = (report["model"].get("path") if report else None, settings.model.path, settings.embedding.model)
    with local.translated():
        found = removal_of(name, paths.models, [path for path in in_use if path])
    words = listed(*map(str, found.paths))
    if not yes and not sys.stdin.isatty():  # nobody can be asked through a pipe
        raise Failure(faults.USAGE, f"this would remove {words}", "say --yes to remove it without being asked")
    if not yes:
        typer.confirm(f"remove {words} ({size(found.bytes)})?", abort=True, err=True)
    try:
        remove(found, paths.models)
    except OSError as error:
        hint = "check the owner of the file and its folder"
        raise Failure(faults.FAILED, f"{error.filename}: {error.strerror}", hint) from error
    report = {"dropped": found.id, "paths": [str(path) for path in found.paths], "bytes": found.bytes}
    done(report, f"removed {words}, {size(found.bytes)}", as_json=as_json)


@app.command()
def get(source: Source, as_json: given.Json = False) -> None:
    """Downloads a model, all its parts, into the models folder; goes on where an earlier download broke off; checks it."""
    targets, got = downloaded(source)
    checked = bool(got) and all(one.checked for one in got)
    held = sum(target.stat().st_size for target in targets)
    if as_json:
        report = {"path": str(targets[0]), "bytes": held, "checked": checked, "files": [str(one) for one in targets]}
        result_json(report | {"sha256": got[0].sha256 if got else None})
        return
    sums = "its sum is what the hub says" if checked else "the hub told no sum to check"
    note(f"{targets[0]}: {size(held)}{f' in {len(targets)} files' if len(targets) > 1 else ''}, {sums}")
    note(f"use it: lore model use {targets[0].stem}")


def downloaded(source: str, *, again: bool = True) -> tuple[list[Path], list["Got"]]:
    """All files of a model, and what came of those that were fetched now. `again`: a single one that is there is a fault.

    Raises Failure.
    """
    from orchestrator.cli.download import parts
    from orchestrator.model.model_file import damage

    places = parts(source)
    targets = [local.paths().models / place.file for place in places]
    pairs = zip(places, targets, strict=True)
    got = [fetched(*one) for one in pairs if (again and len(places) == 1) or not one[1].exists()]
    if fault := damage(targets[0]):
        hint = f"lore model drop {targets[0].stem}, then the same command again"
        raise Failure(faults.FAILED, f"what came is no whole model: {fault}", hint)
    return targets, got


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


# ---- the page of `lore model show`; pure -----------------------------------------------------------------------------


def model_page(model: Report) -> str:
    rows = [
        ("model", f"{model['id']}{', loaded' if model.get('loaded') else ''}"),
        ("file", model.get("path") or "none"),
        ("use" if "embedding" in model else "fits", model.get("words", "unknown")),
    ]
    if "embedding" in model:
        return facts([*rows, *embedding_facts(model)])
    if "architecture" not in model:
        return facts(rows)
    parts = [facts([*rows, *model_facts(model)]), kv_table(model["kv"]), settings_table(model["settings"])]
    return "\n\n".join(filter(None, parts))


def model_facts(model: Report) -> Iterator[tuple[str, str]]:
    types = listed(*(f"{name} {size(held)}" for name, held in model["weights"]["by_type"].items()))
    layers, vocabulary = f"{count(model['layers'])} layers", f"{count(model['vocabulary'])} tokens of vocabulary"
    yield "is", listed(f"{model['name']}: {model['architecture']}", layers, heads(model), vocabulary)
    yield "trained", f"{count(model['trained_context'])} tokens"
    yield "weights", f"{size(model['weights']['total'])} in {model['quantisation']}: {types}"
    yield "KV", kv_cost(model["kv"])
    if memory := model.get("memory"):
        yield from memory_facts(memory)
        yield "context", f"{count(model['context'])} tokens: {memory['reason']}" if model["context"] else ""
    cut = model["ranges"]
    yield "cut", "in ranges: a conversation's checkpoint is its tail alone" if cut["cut"] else f"no: {cut['why']}"
    template = model["template"]
    yield "template", template["words"]
    yield "", f"because {template['reason']}" if template["reason"] else ""
    if not template["keeps_answers"]:
        yield "", "a closed turn is rendered anew: it is computed once more behind the answer"


def heads(model: Report) -> str:
    if not model["heads"]:
        return "no attention heads"
    shared = model["heads"] != model["kv_heads"]
    return plural(model["heads"], "head") + (f" on {plural(model['kv_heads'], 'KV head')}" if shared else "")


def kv_cost(kv: Report) -> str:
    if kv["bytes_per_token"] is None:
        return "cannot be predicted; the real size is read when it is loaded"
    window = f"sliding layers see {count(kv['window'])} tokens" if kv["window"] else ""
    return listed(f"{count(kv['bytes_per_token'])} B a token", window)


def memory_facts(memory: Report) -> Iterator[tuple[str, str]]:
    layers = f"{memory['gpu_layers']} of {memory['layers']} layers on the GPU" if memory["where"] == "VRAM" else ""
    kv, buffers = f"{size(memory['kv_bytes'])} for KV", f"about {size(memory['buffers'])} of buffers a pool"
    yield "memory", f"{memory['where']}: {listed(kv, buffers, layers)}"
    for gpu in memory.get("gpus", ()):
        held = f"{size(gpu['weights'])} of weights, {size(gpu['kv_bytes'])} of KV"
        yield "", f"{gpu['name']}: {count(gpu['layers'])} layers, {held}; {size(gpu['free'])} free now"


def embedding_facts(model: Report) -> Iterator[tuple[str, str]]:
    embedding, memory = model["embedding"], model.get("memory")
    if "architecture" in model:  # its file is made
        layers, vocabulary = plural(model["layers"], "layer"), f"{count(model['vocabulary'])} tokens of vocabulary"
        yield "is", listed(f"{model['name']}: {model['architecture']}", layers, model["quantisation"], vocabulary)
    yield "vectors", f"{count(embedding['dimensions'])} dimensions"
    yield "window", f"{count(embedding['window'])} tokens of a text"
    yield "size", size(model.get("bytes") or 0)
    if memory:  # once it is loaded, for questions and for the background
        yield (
            "memory",
            f"{size(memory['weights'])} of weights and {size(memory['buffers'])} of buffers beside the model",
        )


def kv_table(kv: Report) -> str:
    rows = [
        (
            name,
            f"{one['bytes_per_token'] / 1024:.1f}",
            count(one["context"]) if one["context"] is not None else "none",
            kv_loss(kv["losses"][name]) if name in kv.get("losses", ()) else "",
        )
        for name, one in kv["types"].items()
    ]
    return table(("KV type", "KiB a token", "context that fits", "measured against f16"), rows)


def settings_table(settings: list[Report]) -> str:
    rows = [
        (one["setting"], one["value"], "yes" if one["suits"] else "NO", one["costs"], one["note"]) for one in settings
    ]
    return table(("setting", "value", "suits", "costs", ""), rows)
