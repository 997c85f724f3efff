"""What names a place: a path with `~` for a home, a git URL, the daemon's socket. For both ends, so it loads little."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

SYSTEM_SOCKET = Path("/run/lorekeep/lore.sock")
SOCKET_VARIABLE = "LORE_SOCKET"
URL = re.compile(r"^(?:https?|ssh|git|file)://|^[\w.-]+@[\w.-]+:", re.IGNORECASE)


def is_url(place: str) -> bool:
    """Whether this is a git URL, also in ssh's short form `user@host:path`."""
    return URL.match(place) is not None


def path_of(named: str) -> Path:
    """The path that somebody wrote, its `~` or `~NAME` replaced.

    Where NAME is nobody, or there is no home, it stays as it was written: a path that does not exist, which whoever looks
    for it says by that name. pathlib raises RuntimeError instead, which nobody expects of a path.
    """
    return Path(os.path.expanduser(named))  # noqa: PTH111 - see above


def runtime_folder(environ: Mapping[str, str]) -> Path:
    """The user's runtime folder, also where a login shell has not set the variable (cron, ssh with a command)."""
    base = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return Path(base) / "lorekeep"


def candidates(option: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Sockets to try in turn: the option alone, else the variable alone, else the user's and then the system's."""
    if named := option or environ.get(SOCKET_VARIABLE):
        return (path_of(named),)
    return runtime_folder(environ) / "lore.sock", SYSTEM_SOCKET
