"""A path as it was named, links and all: what is loaded again when a link has been pointed elsewhere."""

import os
from pathlib import Path


def as_named(given: Path, path: Path) -> str:
    """Absolute and without `..`; where that would not lead to `path`, `path`: `..` behind a link is another folder."""
    plain = os.path.abspath(given)  # noqa: PTH100 - resolve() would follow links
    return plain if os.path.realpath(plain) == str(path) else str(path)
