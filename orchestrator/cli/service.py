"""`lore service`: the daemon as systemd's service."""

from typing import Annotated

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given
from orchestrator.cli.terminal import note, result, result_json

app = typer.Typer(no_args_is_help=True, help="The daemon as a service of systemd.")
User = Annotated[bool, typer.Option("--user/--system", help="your own service, or the machine's")]


@app.command()
def install(user: User = True, as_json: given.Json = False) -> None:
    """Writes the units and starts the socket: the first question starts the daemon."""
    complaints = local.unit_action("install", user=user)
    files = local.unit_files(user=user)
    if as_json:
        result_json({"files": files, "todo": complaints})
        return
    for file in files:
        note(f"wrote {file}")
    for complaint in complaints:
        note(complaint)
    if user:
        note("to keep it running after you log out: loginctl enable-linger")


@app.command()
def uninstall(user: User = True, as_json: given.Json = False) -> None:
    """Stops the service and removes the units. Data stays."""
    complaints = local.unit_action("uninstall", user=user)
    if as_json:
        result_json({"files": local.unit_files(user=user), "todo": complaints})
        return
    for complaint in complaints:
        note(complaint)
    note("removed")


@app.command()
def status(user: User = True, as_json: given.Json = False) -> None:
    """Says what systemd makes of the units."""
    states = local.unit_action("state", user=user)
    if as_json:
        result_json({"units": states})
    else:
        result("\n".join(f"{name}  {state}" for name, state in states.items()))
