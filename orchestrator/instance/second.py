"""Whether a second daemon would be refused, asked before one is put together: loading its parts takes seconds.

Locks are only looked at. The daemon takes them itself, and who comes in between is refused then.
"""

from pathlib import Path

from orchestrator.api.sockets import living, lock_of
from orchestrator.instance.folders import LOCK, by, used, written
from orchestrator.instance.lock_file import holder
from orchestrator.settings import Paths
from orchestrator.settings.model import ServeSettings


def refuse_second(given: ServeSettings, paths: Paths) -> None:
    """Raises Conflict where a daemon serves this socket, or has these folders."""
    socket = Path(given.socket or paths.socket)
    if other := holder(lock_of(socket)):
        raise living(socket, by(other))
    for folder in written(paths):
        if other := holder(folder / LOCK):
            raise used(folder, other)
