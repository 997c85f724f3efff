"""The way to the daemon, loaded when a command takes it: the HTTP client costs a quarter of `lore --help`'s time."""

from typing import TYPE_CHECKING
from urllib.parse import quote

from orchestrator.cli.faults import Failure
from orchestrator.wire import faults

if TYPE_CHECKING:
    from orchestrator.cli.client import Daemon


def daemon(socket: str | None) -> "Daemon":
    """Connected. Raises Failure where none listens."""
    from orchestrator.cli.client import Daemon

    return Daemon(socket)


def part(name: str, what: str = "codex") -> str:
    """A name as one part of a route. Raises Failure for what is none: it would lead to another route."""
    if "/" in name or name in ("", ".", ".."):
        listed = {"codex": "lore codex list", "session": "lore session list"}[what]
        raise Failure(faults.NOT_FOUND, f"no {what} named {name!r}", f"{listed} shows what there is")
    return quote(name, safe="")
