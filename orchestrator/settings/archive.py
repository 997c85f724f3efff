"""The archive on object storage as the settings and the environment name it, with keys that neither of them shows."""

import getpass
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from codex.settings import RemoteArchive
from orchestrator.errors import SettingsError
from orchestrator.settings.model import Settings
from orchestrator.settings.sources import read_key_file

MOST_KEYS = 16_384  # bytes of a file of keys; more is another file
AWS = "amazonaws.com"


def remote_archive(settings: Settings, folder: Path) -> RemoteArchive | None:
    """None where the archive is in `folder`, the daemon's own. Raises SettingsError for keys that cannot be read."""
    given = settings.archive
    if not given.uri:
        return None
    options = dict(option.split("=", 1) for option in given.options)
    keys = keys_of(given.key_file) if given.key_file else {}
    # The folder belongs to one daemon at a time, so that one that was killed takes its own lease again.
    holder = f"{user()}@{socket.gethostname()} ({folder})"
    return RemoteArchive(given.uri, {**options, **keys}, given.writes, holder, given.lease, given.timeout)


def host_of(settings: Settings) -> str:
    """Who is spoken to because of archive.uri; '' for nobody. Without an endpoint it is a name of Amazon's."""
    given = settings.archive
    if not given.uri:
        return ""
    options = dict(option.split("=", 1) for option in given.options)
    endpoint = options.get("endpoint") or options.get("aws_endpoint") or ""
    return str(urlsplit(endpoint).hostname or AWS)


def keys_of(file: str) -> Mapping[str, str]:
    """Lines NAME=VALUE, as the environment would have them. No message of a fault has a value."""
    path, found = read_key_file("archive.key_file", file, MOST_KEYS)
    text = found.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    pairs = [line.removeprefix("export ").partition("=") for line in lines]
    if len(found) > MOST_KEYS or not pairs or not all(name.strip() and value.strip() for name, _, value in pairs):
        hint = "write AWS_ACCESS_KEY_ID=… and AWS_SECRET_ACCESS_KEY=… into it, a line each"
        raise SettingsError(f"archive.key_file: {path} holds no keys", hint)
    return {name.strip().lower(): value.strip().strip("'\"") for name, _, value in pairs}


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
