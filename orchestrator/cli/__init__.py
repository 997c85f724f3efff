"""The command line: speaks HTTP to the daemon and loads no engine, so that `lore --help` is instant.

Standard library and typer at import; the module of a command when that is asked for; everything else when it runs.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from orchestrator.cli.client import Failure
from orchestrator.wire.places import VERSION

COMMANDS = {  # name: the function or the group, in its module
    "serve": "service.serve",
    "load": "codex.load",
    "ask": "ask.ask",
    "plan": "plan.plan",
    "search": "search.search",
    "status": "status.status",
    "doctor": "doctor.doctor",
    "codex": "codex.app",
    "session": "session.app",
    "model": "model.app",
    "stats": "status.stats_app",
    "config": "config.app",
    "service": "service.app",
    "token": "config.token_app",
}
# No rich: drawing help with it takes longer than everything else together.
PLAIN: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False, "no_args_is_help": True}


class Commands(TyperGroup):
    """Imports the module of the command that is asked for."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        # For a name that is none all are imported: typer looks for those that are near.
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            self.add_command(imported(name))
        return super().get_command(ctx, cmd_name)


def imported(name: str) -> Any:
    """The command or group of this name, as typer runs it."""
    module, _, what = COMMANDS[name].partition(".")
    found = getattr(import_module(f"orchestrator.cli.{module}"), what)
    holder = typer.Typer(**PLAIN)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    return typer.main.get_group(holder).commands[name]


app = typer.Typer(name="lore", cls=Commands, add_completion=True, **PLAIN)


def version(asked: bool) -> None:
    if asked:
        typer.echo(f"lore {VERSION}")
        raise typer.Exit


@app.callback()
def top(
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=version, help="print the version and end")
    ] = False,
) -> None:
    """Keeps a codebase in the model's cache and answers from it."""


def main() -> None:
    """The entry point `lore`. Ctrl-C ends with 130, which typer sees to."""
    # A stream that was closed before the start is None.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - until the end
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Names that are not UTF-8 are shown escaped, never as a traceback.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app()
    except Failure as failure:
        failure.show()
        sys.exit(failure.status)
    finally:
        if not os.environ.get("LORE_DEBUG"):
            sys.excepthook = one_line  # after app(), which sets its own


def one_line(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    """For mistakes of ours: a person sees one line, and how to see more."""
    sys.stderr.write(f"lore: a mistake in lore itself: {kind.__name__}: {error}\n      LORE_DEBUG=1 shows where\n")
