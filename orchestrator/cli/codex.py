"""`lore codex`: what is loaded."""

from typing import Annotated, Any

import typer

from orchestrator.cli import options as given
from orchestrator.cli.connect import daemon, part
from orchestrator.cli.figures import table
from orchestrator.cli.footer import code_state
from orchestrator.cli.load import Watch
from orchestrator.cli.load import show as loaded
from orchestrator.cli.status_page import faulty, files, roots, state
from orchestrator.cli.terminal import note, result, result_json

app = typer.Typer(no_args_is_help=True, help="What is loaded.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="the codex")]


@app.command("list")
def list_(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Lists the codices."""
    report = daemon(socket).call("GET", "/v1/codices")
    if as_json:
        result_json(report)
    elif report["codices"]:
        rows = [(codex["name"], tier(codex), files(codex), roots(codex)) for codex in report["codices"]]
        result(table(("name", "tier", "files", "root"), rows))
    else:
        note("none is loaded; lore load PATH")


def tier(codex: dict[str, Any]) -> str:
    """The one that stands, or why none does: `none` is a tier too."""
    return codex.get("tier") or codex.get("fresh") or "not raised yet"


@app.command()
def show(name: Name, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows one codex."""
    report = daemon(socket).call("GET", f"/v1/codices/{part(name)}")
    if as_json:
        result_json(report)
    else:
        codex = report["codex"]
        words = state(codex)
        rows = (
            ("taken in", taken_in(codex)),
            ("because", codex.get("generation_reason")),
            ("identity", identity(codex)),
            ("state", words),
        )
        loaded(codex, [f"  {label:10}{text}" for label, text in rows if text])
        if codex.get("fresh_notice"):
            note(codex["fresh_notice"])
        if faulty(codex.get("embedding")):
            note(codex["embedding"]["fault"])


def identity(codex: dict[str, Any]) -> str:
    """`lorekeep 1a2b3c4d5e6f, 6f5e4d3c2b1a is being prepared`."""
    found = codex.get("identity") or {}
    if not found:
        return ""
    coming = f", {found['preparing']} is being prepared" if found["preparing"] else ""
    fault = f"; {found['fault']}" if found["fault"] else ""
    return f"{found['name']} {found['version']}{coming}{fault}"


def taken_in(codex: dict[str, Any]) -> str:
    """`generation 3, main@1a2b3c4 + 1 changed, 1 removed file`."""
    since = {"amendments": codex.get("changed_files", ()), "removed": codex.get("removed_files", ())}
    revision = code_state({**codex, **since})
    return f"generation {codex['generation']}" + (f", {revision}" if revision else "")


@app.command()
def reload(name: Name, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Loads a codex anew from its directory."""
    Watch(socket, as_json).until_loaded(daemon(socket).stream(f"/v1/codices/{part(name)}/reload"))


@app.command()
def drop(name: Name, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Forgets a codex. The directory is not touched."""
    report = daemon(socket).call("DELETE", f"/v1/codices/{part(name)}")
    result_json(report) if as_json else note(f"dropped {name}")
