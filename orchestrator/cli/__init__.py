"""The command line: speaks HTTP to the daemon and imports no engine, so that `lore --help` is instant.

Standard library and typer at import; everything else when a command runs.
"""

import os
import sys
from types import TracebackType

from orchestrator.cli.client import Failure
from orchestrator.cli.commands import app

__all__ = ["app", "main"]


def main() -> None:
    """The entry point `lore`. Ctrl-C ends with 130, which typer sees to."""
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
