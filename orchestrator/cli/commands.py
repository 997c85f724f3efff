"""Every command under its name. Their functions are imported; what they need is not, until they run."""

from typing import Annotated

import typer

from orchestrator.cli import codex, config, model, service, session, status
from orchestrator.cli.ask import ask
from orchestrator.cli.codex import load
from orchestrator.cli.doctor import doctor
from orchestrator.cli.plan import plan
from orchestrator.cli.search import search
from orchestrator.cli.service import serve

# No rich: drawing help with it takes longer than everything else together.
PLAIN = {"rich_markup_mode": None, "pretty_exceptions_enable": False, "no_args_is_help": True}

app = typer.Typer(name="lore", add_completion=True, **PLAIN)  # type: ignore[arg-type]
for command in (serve, load, ask, plan, search, status.status, doctor):
    app.command()(command)
GROUPS = {
    "codex": codex.app,
    "session": session.app,
    "model": model.app,
    "stats": status.stats_app,
    "config": config.app,
    "service": service.app,
    "token": config.token_app,
}
for name, group in GROUPS.items():
    app.add_typer(group, name=name)


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
