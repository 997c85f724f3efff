"""`lore identity`: what the model is told of its part, before all else."""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon, Failure, route_part
from orchestrator.cli.terminal import (
    Report,
    count,
    duration,
    facts,
    listed,
    note,
    output,
    result,
    result_json,
    size,
    table,
)
from orchestrator.wire import faults

app = typer.Typer(no_args_is_help=True, help="Identities: what the model is told of its part.")
OptionalName = Annotated[str | None, typer.Argument(metavar="NAME", help="the identity; default: the default one")]
Yes = Annotated[bool, given.option("-y, --yes", "do not ask")]


@app.command("list")
def list_(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Lists them, and which is the default."""
    output(Daemon(socket).call("GET", "/v1/identities"), identities_page, as_json=as_json)


def identities_page(report: Report) -> str:
    return table(("name", "", "size", "codices", ""), [row(one) for one in report["identities"]])


def row(one: Report) -> tuple[str, ...]:
    default, held = "default" if one["default"] else "", "" if one["bytes"] is None else size(one["bytes"])
    return one["name"], default, held, listed(*one["codices"]), one["fault"]


@app.command()
def show(name: OptionalName = None, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows its text, its tokens, which codices are asked under it, and what a change of it costs."""
    daemon = Daemon(socket)
    output({"identity": fetched(daemon, name or default_of(daemon))}, identity_page, as_json=as_json, as_it_is=True)


def identity_page(report: Report) -> str:
    one = report["identity"]
    return f"{facts(identity_facts(one))}\n\n{one['text'].rstrip()}"


def identity_facts(one: Report) -> Iterator[tuple[str, str]]:
    yield "identity", f"{one['name']}{', the default' if one['default'] else ''}"
    yield "file", one["file"] or "none: it ships with the program"
    yield "tokens", "not known while no model runs" if one["tokens"] is None else count(one["tokens"])
    yield "codices", listed(*one["codices"]) or "none is asked under it now"
    for head, cost in zip(("a change", *[""] * len(one["cost"])), one["cost"], strict=False):
        yield head, f"computes {cost_words(cost)}"


def cost_words(cost: Report) -> str:
    """`the floor of vaults anew: 61,234 tokens, 12 s`"""
    tokens = "" if cost["tokens"] is None else f"{count(cost['tokens'])} tokens"
    known = listed(tokens, "" if cost["seconds"] is None else duration(cost["seconds"]))
    return f"the floor of {cost['name']} anew{f': {known}' if known else ''}"


@app.command()
def edit(name: OptionalName = None, yes: Yes = False, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Opens it, or a new one, in $VISUAL or $EDITOR, says what the change costs, and saves it after asking."""
    daemon = Daemon(socket)
    wanted = name or default_of(daemon)
    route = f"/v1/identities/{route_part(wanted, 'identity')}"
    text = edited(text_of(daemon, wanted), wanted)
    change = daemon.call("PUT", route, {"text": text, "dry_run": True})
    if change["changed"]:
        tell(change)
        agree(f"save identity {wanted}?", yes=yes)
        change = Daemon(socket).call("PUT", route, {"text": text})
    if as_json:
        result_json(change)
    else:
        note(f"saved {change['identity']['file']}" if change["saved"] else f"identity {wanted} says this already")


Config = Annotated[str | None, given.option("--config FILE", "change this file instead of your own")]
WORDS = {
    "changed": "new conversations begin with it now, and others follow at their next question",
    "same": "the daemon asks under it already",
    "none": "no daemon runs: lore serve starts with it",
    "later": "restart the daemon to use it: systemctl --user restart lorekeep, or end lore serve and start it again",
    "kept": "the running daemon keeps its default: changing it needs the scope admin",
}


@app.command()
def use(
    name: Annotated[str, typer.Argument(metavar="NAME", help="the identity")],
    config: Config = None,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Makes it the identity of questions that name none, and says what is computed for that."""
    from orchestrator.settings.sources import refuse_unknown_identity, use_identity

    daemon, change = ("later", None) if config else made_default(name, socket)
    with local.translated():
        if change is None:
            refuse_unknown_identity(name, local.paths().identities)
        chosen = use_identity(name, os.environ, Path(config) if config else None)
    cost = change["identity"]["cost"] if change else []
    if as_json:
        result_json({"identity": chosen, "daemon": daemon, "cost": cost})
        return
    note(f"{chosen['file']}: identity.default = {name}{'' if chosen['changed'] else ' already'}")
    if chosen["overridden"]:
        note(f"{chosen['overridden']} is set and wins over the file when a daemon starts")
    for one in cost:
        note(f"it computes {cost_words(one)}")
    note(WORDS[daemon])


def made_default(name: str, socket: str | None) -> tuple[str, Report | None]:
    """A word of WORDS, and what the running daemon says of the change; None where it was not asked. Raises Failure."""
    try:
        change = Daemon(socket).call("PUT", "/v1/identities", {"name": name})
    except Failure as failure:
        if failure.status not in (faults.UNREACHABLE, faults.NOT_PERMITTED):
            raise
        return "none" if failure.status == faults.UNREACHABLE else "kept", None
    return "changed" if change["changed"] else "same", change


@app.command()
def condense(
    name: OptionalName = None, yes: Yes = False, as_json: given.Json = False, socket: given.Socket = None
) -> None:
    """Has the loaded model shorten it, with every rule to the letter; shows what changes, and saves it after asking."""
    daemon = Daemon(socket)
    wanted = name or default_of(daemon)
    route = f"/v1/identities/{route_part(wanted, 'identity')}"
    short = daemon.call("POST", f"{route}/condense", {})
    change = daemon.call("PUT", route, {"text": short["short"], "dry_run": True})
    if not as_json:
        result(difference(short["identity"]["text"], short["short"], wanted), end="")
    if change["changed"]:
        note(written_by(short))
        tell(change)
        agree(f"save identity {wanted}?", yes=yes)
        change = Daemon(socket).call("PUT", route, {"text": short["short"], "keep": True})
    if as_json:
        result_json(change | {"by": short["by"], "why": short["why"]})
    elif change["saved"]:
        note(f"saved {change['identity']['file']}; the text before is in {change['identity']['file']}.before")
    else:
        note(f"nothing of identity {wanted} can go: {short['why'] or 'it is short already'}")


def difference(text: str, short: str, name: str) -> str:
    """As a unified diff; empty where they are the same."""
    before, after = text.splitlines(keepends=True), short.splitlines(keepends=True)
    return "".join(unified_diff(before, after, f"{name}.md", f"{name}.md, condensed"))


def written_by(short: Report) -> str:
    """Who wrote it, and why, where that was not the model."""
    if short["by"] == "model":
        return "the model wrote it; every rule is there to the letter"
    return f"it is an extract, every rule to the letter: {short['why']}"


def tell(change: Report) -> None:
    """What a change costs, before anybody agrees to it."""
    one = change["identity"]
    if one["tokens"] is not None:
        was = "" if change["before"] is None else f"{count(change['before'])} tokens before, "
        note(f"identity {one['name']}: {was}{count(one['tokens'])} tokens now")
    for cost in one["cost"]:
        note(f"it computes {cost_words(cost)}; the one before answers until then")


def agree(question: str, *, yes: bool) -> None:
    """Raises Failure where nobody can be asked, typer.Abort for a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(faults.USAGE, f"nothing is saved: nobody can be asked {question!r}", "say --yes")
    typer.confirm(question, abort=True, err=True)


def fetched(daemon: Daemon, name: str) -> Any:
    return daemon.call("GET", f"/v1/identities/{route_part(name, 'identity')}")["identity"]


def default_of(daemon: Daemon) -> str:
    found = daemon.call("GET", "/v1/identities")["identities"]
    return str(next(one["name"] for one in found if one["default"]))


def text_of(daemon: Daemon, name: str) -> str:
    """What is to be edited: a new one, and one that cannot be read, begin empty."""
    try:
        return str(fetched(daemon, name)["text"])
    except Failure as failure:
        if failure.status not in (faults.NOT_FOUND, faults.USAGE):
            raise
        note(f"{failure.message}: it begins empty")
        return ""


# -- the editor


def edited(text: str, name: str) -> str:
    """What a person made of a copy. Raises Failure where there is no editor, it fails, or what it leaves is no text."""
    command = editor()
    with tempfile.TemporaryDirectory(prefix="lore-identity-") as folder:  # of mode 0700
        copy = Path(folder) / f"{name}.md"
        copy.write_text(text, "utf-8")
        try:
            status = subprocess.run([*command, str(copy)], check=False).returncode
        except OSError as error:
            raise Failure(faults.FAILED, f"the editor {command[0]} cannot be started: {error.strerror}", SET) from error
        if status:
            raise Failure(faults.FAILED, f"the editor {command[0]} ended with status {status}; nothing is saved", SET)
        try:
            return copy.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            hint = "an identity is Markdown in UTF-8; nothing is saved"
            raise Failure(faults.USAGE, f"what the editor left cannot be read: {error}", hint) from error


SET = "set VISUAL or EDITOR to a program that waits until the file is closed"


def editor() -> list[str]:
    """As its variable says it, with options. Raises Failure without one."""
    words = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        command = shlex.split(words)
    except ValueError as error:
        raise Failure(faults.USAGE, f"{words!r} is no command: {error}", SET) from error
    if not command:
        raise Failure(faults.USAGE, "no editor is set", SET)
    return command
