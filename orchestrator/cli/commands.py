"""Every command by its name, and how a command ends.

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
from orchestrator.cli.terminal import discard, to_stderr
from orchestrator.wire import faults
from orchestrator.wire.places import VERSION

COMMANDS = {  # name: the function or the group, in its module
    "up": "up.up",
    "serve": "service.serve",
    "load": "codex.load",
    "ask": "ask.ask",
    "chat": "chat.chat",
    "plan": "plan.plan",
    "search": "search.search",
    "mcp": "mcp.mcp",
    "status": "status.status",
    "dash": "dash.dash",
    "top": "top.top",
    "doctor": "doctor.doctor",
    "codex": "codex.app",
    "session": "session.app",
    "memory": "memory.app",
    "trace": "trace.app",
    "feedback": "trace.feedback",
    "identity": "identity.app",
    "model": "model.app",
    "purge": "purge.purge",
    "pause": "pause.pause",
    "resume": "pause.resume",
    "stats": "stats.app",
    "config": "config.app",
    "service": "service.app",
    "token": "config.token_app",
    "schema": "schema.schema",
}
# Words of other programs, and what does it here. Words that are spelled nearly as ours are typer's to find.
INSTEAD = {
    **dict.fromkeys(("add", "load"), "lore load PATH for a codex, lore model use NAME for a model"),
    **dict.fromkeys(
        ("delete", "drop", "remove", "unload"), "lore codex drop, lore session drop, lore model drop, lore purge"
    ),
    **dict.fromkeys(("download", "pull"), "lore model get hf:OWNER/REPO/FILE.gguf"),
    **dict.fromkeys(("run", "start"), "lore serve; as a service: lore service install"),
    **dict.fromkeys(("remember", "recall"), "lore memory add TEXT, lore memory search QUERY"),
    "help": "lore --help; lore COMMAND --help",
    "list": "lore codex list, lore session list, lore model list, lore config show",
    "reload": "lore codex reload NAME",
    "restart": "systemctl --user restart lorekeep; or end lore serve and start it again",
    "set": "write it into a file of lore config path; lore config check reads it",
    "show": "lore codex show, lore session show NAME, lore model show",
    "stop": "Ctrl-C ends lore serve, systemctl --user stop lorekeep the service, lore load --cancel NAME a load",
    "use": "lore model use NAME",
    "version": "lore --version",
}
LEFT = 128 + 13  # as a shell shows SIGPIPE
# No rich: drawing help with it takes longer than everything else together.
PLAIN: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False, "no_args_is_help": True}


class Group(TyperGroup):
    """Points from a word that is no command of it to what does that, and lists what each of its commands does, uncut."""

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, (one.help or "").split("\n\n")[0]) for name, one in commands if one])

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        if args[0] in INSTEAD and self.get_command(ctx, args[0]) is None:
            raise Failure(faults.USAGE, f"no such command: {ctx.command_path} {args[0]}", INSTEAD[args[0]])
        return super().resolve_command(ctx, args)


class Commands(Group):
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
        holder.add_typer(found, name=name, cls=Group)
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


def run() -> None:
    """The command that was typed. Leaves by SystemExit, and for a mistake of ours by the mistake."""
    # A stream that was closed before the start is None.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - until the end
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Names that are not UTF-8 are shown escaped, never as a traceback.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    output = sys.stdout
    try:
        app()
    except Failure as failure:
        failure.show()
        sys.exit(failure.status)
    except OSError as error:  # where it is not the output's, a command makes a Failure of it
        if error.errno is None:  # no file's: a mistake of ours
            raise
        discard(output)
        Failure(faults.FAILED, f"{error.filename or 'the output cannot be written'}: {error.strerror}").show()
        sys.exit(faults.FAILED)
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        # Who reads us may leave: typer ends with 1 then, and we as `cat` does.
        discard(output)
        sys.exit(LEFT)
    finally:
        if not os.environ.get("LORE_DEBUG"):
            sys.excepthook = one_line  # after app(), which sets its own


def one_line(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    """For mistakes of ours: a person sees one line, and how to see more."""
    to_stderr(f"lore: a mistake in lore itself: {kind.__name__}: {error}\n      LORE_DEBUG=1 shows where\n")
