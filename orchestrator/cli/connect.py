"""The way to the daemon, loaded when a command takes it: the HTTP client costs a quarter of `lore --help`'s time."""

from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from orchestrator.cli.client import Daemon


def daemon(socket: str | None) -> "Daemon":
    """Connected. Raises Failure where none listens."""
    from orchestrator.cli.client import Daemon

    return Daemon(socket)


def part(name: str) -> str:
    """A name as one part of a route."""
    return quote(name, safe="")
