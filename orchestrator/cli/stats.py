"""`lore stats`: what the caches did since the engine started."""

import typer

from orchestrator.cli import options as given
from orchestrator.cli.connect import daemon
from orchestrator.cli.terminal import result, result_json

app = typer.Typer(no_args_is_help=True, help="What was reused, and what it saved.")


@app.callback()
def top() -> None:
    """Keeps `cache` a command of its own while it is the only one."""


@app.command()
def cache(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows hit rates and bytes of each tier, evictions, restores, drafts, and the time that reuse saved."""
    report = daemon(socket).call("GET", "/v1/stats/cache")
    if as_json:
        result_json(report)
        return
    from orchestrator.cli.cache_page import page

    result(page(report))
