"""`lore serve`: the daemon in the foreground."""

import os
import sys
from typing import Annotated

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given

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
