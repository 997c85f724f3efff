"""A file of keys that a setting names, as it is read."""

import logging
import os
from pathlib import Path

from orchestrator.errors import SettingsError
from orchestrator.wire.places import path_of

log = logging.getLogger("lorekeep.settings")


def read_key_file(setting: str, file: str, most: int) -> tuple[Path, bytes]:
    """Where it is, and at most a byte more than `most` of it: so long a one is another file. Raises SettingsError, of which
    no message has what is in it."""
    path = path_of(file)
    try:
        # A pipe that nobody writes to is empty, instead of waited for.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as opened:
            found, others = opened.read(most + 1), os.fstat(opened.fileno()).st_mode & 0o077
    except OSError as error:
        raise SettingsError(f"{setting}: {path}: {error.strerror}", "make it readable for the daemon") from error
    if others:
        log.warning("others may read the key in %s: chmod 600 %s", path, path)
    return path, found
