"""What the commands share that work without a daemon: settings, folders, and faults of the rooms that they call.

Such a command imports those rooms when it runs, so that help and commands that only ask the daemon stay quick.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cli.client import Failure
from orchestrator.wire import faults

if TYPE_CHECKING:
    from orchestrator.settings import LoadedSettings, Paths


def settings(config: str | None = None, options: Mapping[str, Any] | None = None) -> "LoadedSettings":
    """Raises Failure for what cannot be used."""
    from orchestrator.settings import load

    chosen = {key: value for key, value in (options or {}).items() if value is not None}
    with translated():
        return load(os.environ, config=Path(config) if config else None, options=chosen)


def paths() -> "Paths":
    from orchestrator.settings import Paths

    return Paths.of(os.environ)


def chat_history() -> Path:
    """What this user typed in `lore chat`: the command line's own file, which no daemon reads."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "lorekeep" / "chat-history"


@contextmanager
def translated() -> Iterator[None]:
    """The daemon's kind of fault as the command line's."""
    from orchestrator.errors import LoreError

    try:
        yield
    except LoreError as error:
        raise Failure(faults.fault_code(error.code).exit_status, error.message, error.hint) from error
