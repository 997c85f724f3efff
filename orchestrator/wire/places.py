"""What names a place: a path, with `~` for a home, or a git URL to load from. Both edges ask."""

import os
import re
from pathlib import Path

_URL = re.compile(r"^(?:https?|ssh|git|file)://|^[\w.-]+@[\w.-]+:", re.IGNORECASE)


def is_url(place: str) -> bool:
    """Whether this is a git URL, also in ssh's short form `user@host:path`."""
    return _URL.match(place) is not None


def path_of(named: str) -> Path:
    """The path that somebody wrote, its `~` or `~NAME` replaced.

    Where NAME is nobody, or there is no home, it stays as it was written: a path that does not exist, which whoever looks
    for it says by that name. pathlib raises RuntimeError instead, which nobody expects of a path.
    """
    return Path(os.path.expanduser(named))  # noqa: PTH111 - see above
