"""`lore service`: the daemon as systemd's service."""

from typing import Annotated

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given
from orchestrator.cli.faults import Failure
from orchestrator.cli.terminal import note, result, result_json
from orchestrator.wire import faults

app = typer.Typer(no_args_is_help=True, help="The daemon as a service of systemd.")
User = Annotated[bool, typer.Option("--user/--system", help="your own service, or the machine's")]


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
