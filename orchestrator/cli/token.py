"""`lore token`: keys for clients over TCP."""

from typing import Annotated

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given
from orchestrator.cli.terminal import note, result, result_json

app = typer.Typer(no_args_is_help=True, help="Keys for clients over TCP.")
Sigil = Annotated[str, typer.Option("--sigil", metavar="SIGIL", help="what it permits: a sigil's name, or owner")]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="what to call it in the configuration")]


@app.command()
def new(sigil: Sigil, name: Name = "client", as_json: given.Json = False) -> None:
    """Makes a token, shows it once, and prints the TOML with its hash for you to put into the configuration."""
    import hashlib
    import secrets

    local.known_sigil(sigil)
    token = secrets.token_urlsafe(32)
    digest = hashlib.sha256(token.encode()).hexdigest()
    table = f'[tokens.{name}]\nsha256 = "{digest}"\nsigil = "{sigil}"'
    if as_json:
        result_json({"token": token, "name": name, "sigil": sigil, "sha256": digest})
        return
    result(token)
    note("it is shown this once. Put this into the configuration (`lore config path`) and restart the daemon:")
    note(table)
