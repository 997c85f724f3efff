"""`lore serve` and `lore service`: the daemon in the foreground, and as a service of systemd."""

import os
import sys
from typing import Annotated

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given
from orchestrator.cli.client import Failure
from orchestrator.cli.terminal import note, result, result_json
from orchestrator.wire import faults

app = typer.Typer(no_args_is_help=True, help="The daemon as a service of systemd.")
User = Annotated[bool, typer.Option("--user/--system", help="your own service, or the machine's")]
Tcp = Annotated[
    str | None, typer.Option("--tcp", metavar="HOST:PORT", help="listen there as well, for holders of tokens")
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="a GGUF file, builtin:quoter, builtin:noise-s or builtin:noise-m"),
]


def serve(socket: given.Socket = None, tcp: Tcp = None, config: given.Config = None, model: Model = None) -> None:
    """Runs the daemon until SIGTERM or Ctrl-C."""
    options = {"serve.socket": socket, "serve.tcp": tcp, "model.path": model}
    status = local.serve(config, options)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # All is closed; the interpreter would take half a second to free the libraries' objects one by one.
    os._exit(status)


@app.command()
def install(user: User = True, as_json: given.Json = False) -> None:
    """Writes the units and starts the socket: the first question starts the daemon."""
    complaints = local.unit_action("install", user=user)
    files = local.unit_files(user=user)
    if as_json:
        result_json({"files": files, "todo": complaints})
        raise typer.Exit(faults.FAILED if complaints else faults.OK)
    for file in files:
        note(f"wrote {file}")
    complete(complaints, "the units are written, but not all else worked")
    if user:
        note("to keep it running after you log out: loginctl enable-linger")


@app.command()
def uninstall(user: User = True, as_json: given.Json = False) -> None:
    """Stops the service and removes the units. Data stays."""
    complaints = local.unit_action("uninstall", user=user)
    if as_json:
        result_json({"files": local.unit_files(user=user), "todo": complaints})
        raise typer.Exit(faults.FAILED if complaints else faults.OK)
    complete(complaints, "the units are removed, but systemd could not be told")
    note("removed")


@app.command()
def status(user: User = True, as_json: given.Json = False) -> None:
    """Says what systemd makes of the units."""
    states = local.unit_action("state", user=user)
    if as_json:
        result_json({"units": states})
    else:
        result("\n".join(f"{name}  {state}" for name, state in states.items()))
    if set(states.values()) == {"unknown"}:
        raise Failure(faults.FAILED, "systemd cannot be asked here", "lore serve runs without it")


def complete(complaints: list[str], done: str) -> None:
    """Raises Failure where something is left to do: `done` says what stands."""
    if complaints:
        raise Failure(faults.FAILED, f"{done}: {'; '.join(complaints)}", "lore serve runs without systemd")
