"""Where the daemon's socket lies, for both ends. Loads little: every start of the command line pays for it."""

import os
from collections.abc import Mapping
from pathlib import Path

from orchestrator.wire.places import path_of

SYSTEM_SOCKET = Path("/run/lorekeep/lore.sock")
ENVIRONMENT = "LORE_SOCKET"


def runtime_folder(environ: Mapping[str, str]) -> Path:
    """The user's runtime folder, also where a login shell has not set the variable (cron, ssh with a command)."""
    base = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return Path(base) / "lorekeep"


def user_socket(environ: Mapping[str, str]) -> Path:
    return runtime_folder(environ) / "lore.sock"


def candidates(option: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Sockets to try in turn: the option alone, else the variable alone, else the user's and then the system's."""
    named = option or environ.get(ENVIRONMENT)
    if named:
        return (path_of(named),)
    return (user_socket(environ), SYSTEM_SOCKET)
