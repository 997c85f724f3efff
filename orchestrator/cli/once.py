"""What is told once in a terminal: a mark in the user's runtime folder, under the number of the terminal's session.

The folder is gone when the user logs out. Where none is, or no terminal watches, everything is told every time.
"""

import os
import sys

from orchestrator.cli.terminal import is_terminal
from orchestrator.wire.sockets import runtime_folder


def first_time(text: str) -> bool:
    """Whether this was not told in this terminal yet; from now on it was."""
    if not is_terminal(sys.stderr):
        return True
    mark = runtime_folder(os.environ) / f"told-{os.getsid(0)}"
    try:
        known = mark.read_text().splitlines() if mark.exists() else []
        if text in known:
            return False
        mark.write_text("\n".join([*known, text]) + "\n")
    except (OSError, UnicodeError):
        return True
    return True
