"""Every command under its name. Their functions are imported; what they need is not, until they run."""

from typing import Annotated

import typer

from orchestrator.cli import codex, config, model, service, session, stats, token
from orchestrator.cli.ask import ask
from orchestrator.cli.doctor import doctor
from orchestrator.cli.load import load
from orchestrator.cli.plan import plan
from orchestrator.cli.search import search
from orchestrator.cli.serve import serve
from orchestrator.cli.status import status

# No rich: drawing help with it takes longer than everything else together.
PLAIN = {"rich_markup_mode": None, "pretty_exceptions_enable": False, "no_args_is_help": True}

app = typer.Typer(name="lore", add_completion=True, **PLAIN)  # type: ignore[arg-type]
for command in (serve, load, ask, plan, search, status, doctor):
    app.command()(command)
GROUPS = {
    "codex": codex,
    "session": session,
    "model": model,
    "stats": stats,
    "config": config,
    "service": service,
    "token": token,
}
for name, group in GROUPS.items():
    app.add_typer(group.app, name=name)


def version(asked: bool) -> None:
    if asked:
        from orchestrator.wire.version import VERSION

        typer.echo(f"lore {VERSION}")
        raise typer.Exit


@app.callback()
def top(
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=version, help="print the version and end")
    ] = False,
) -> None:
    """Keeps a codebase in the model's cache and answers from it."""
