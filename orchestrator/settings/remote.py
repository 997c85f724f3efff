"""Settings of what is elsewhere: servers that compute in the engine's place, and an archive on object storage.

No key and no password may stand in them: `lore config show` prints settings, and a file of them may be shared.
"""

import re
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, field_validator

from codex.settings import RemoteArchive
from orchestrator.settings.units import Seconds, Slice

SECRET = re.compile(r"key|secret|token|password|credential|sas\b")  # in the name of a storage option: its value is one
KEYS_BY_NAME = ("aws_sse_kms_key_id", "aws_sse_bucket_key_enabled")  # names of keys, which are no secrets


class EngineTable(Slice):
    """Servers that compute in the place of a model here."""

    url: tuple[str, ...] = Field(
        (),
        description='a server with OpenAI-compatible completions, "http://HOST:PORT/v1", or a list of such servers with '
        "the same model; empty: a model is loaded here",
    )
    model: str = Field("", description="which of the models that it serves; empty: the only one")
    key_file: str = Field(
        "", description="a file that holds the server's API key; LORE_ENGINE_KEY has it too; empty: none is sent"
    )

    @field_validator("url", mode="before")
    @classmethod
    def listed(cls, value: object) -> object:
        return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value

    @field_validator("url")
    @classmethod
    def reachable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(server_url, value)))


def server_url(url: str) -> str:
    """As it is asked: the same server is written in one way. Raises ValueError, which does not show it."""
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port, or an address of IPv6, that is none
        named = None
    if not named or not url.isprintable() or " " in url:
        raise ValueError("holds what is no URL of a server; write it like http://HOST:PORT/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("holds a password or a query; write the URL alone, and the key in engine.key_file")
    return urlunsplit(parts._replace(netloc=parts.netloc.lower())).rstrip("/")


class ArchiveTable(Slice):
    """Where the archive is that codices are searched in."""

    uri: str = Field(
        "", description='object storage that several machines read, "s3://BUCKET/PREFIX"; empty: a folder of the daemon'
    )
    options: tuple[str, ...] = Field(
        (),
        description='LanceDB\'s storage options, as in ["region=eu-central-1", "endpoint=https://HOST"]; no keys: those '
        "are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in archive.key_file",
    )
    key_file: str = Field(
        "", description="a file with lines NAME=VALUE: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN"
    )
    writes: bool = Field(True, description="write to it; false: read what others write there")
    lease: Seconds = Field(
        RemoteArchive.lease_s, ge=10, le=86_400, description="since a write, how long nobody else writes to that codex"
    )
    timeout: Seconds = Field(
        RemoteArchive.timeout_s, ge=1, le=600, description="longest time of one request, and of a search there"
    )

    @field_validator("uri")
    @classmethod
    def on_object_storage(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (parts.scheme != "s3" or not parts.hostname or not value.isprintable() or " " in value):
            raise ValueError("is no place on object storage; write it like s3://BUCKET/PREFIX")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("holds a key or a query; write the place alone, and the keys in archive.key_file")
        return value.rstrip("/")

    @field_validator("options")
    @classmethod
    def without_keys(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            name, found, given = one.partition("=")
            if not found or not name.strip() or not given.strip():
                raise ValueError("holds what is no option; write each like region=eu-central-1")
            if name.strip().lower() not in KEYS_BY_NAME and SECRET.search(name.lower()):
                raise ValueError("holds a key; keys are in the environment, or in archive.key_file")
            if "@" in urlsplit(given).netloc:
                raise ValueError("holds a password in a URL; keys are in the environment, or in archive.key_file")
        return tuple(f"{name.strip().lower()}={given.strip()}" for name, _, given in (o.partition("=") for o in value))
