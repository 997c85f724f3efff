"""What names a place to load from: a path, or a git URL. Both edges ask."""

import re

_URL = re.compile(r"^(?:https?|ssh|git|file)://|^[\w.-]+@[\w.-]+:", re.IGNORECASE)


def is_url(place: str) -> bool:
    """Whether this is a git URL, also in ssh's short form `user@host:path`."""
    return _URL.match(place) is not None
