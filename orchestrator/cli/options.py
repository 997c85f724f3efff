"""Options that several commands share, each written once."""

from typing import Annotated

import typer

Socket = Annotated[str | None, typer.Option("--socket", metavar="PATH", help="the daemon's socket")]
Json = Annotated[bool, typer.Option("--json", help="print JSON for programs")]
Config = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="read this file instead of the usual ones")
]
WHICH = "which codex; left out: the one whose folder you are in (the deepest), else the only one"
