"""`hf:OWNER/REPO/FILE` as the address it is downloaded from. HF_ENDPOINT names another hub and HF_TOKEN says who asks,
as the hub's own tools have it."""

import os
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import quote

from orchestrator.cli.faults import Failure
from orchestrator.wire import faults

HUB = "https://huggingface.co"
PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf(?:@|$)")
FORM = re.compile(r"hf:([\w.-]+/[\w.-]+)/([^@]+?\.gguf)(?:@([\w./-]+))?\Z")


@dataclass(frozen=True)
class HubFile:
    """`file` is where it lies below the models folder. `token` opens gated models; '' asks as anybody does."""

    url: str
    name: str
    file: PurePosixPath
    token: str = field(default="", repr=False)


def parts(source: str) -> tuple[HubFile, ...]:
    """All files of a model that comes in several (`NAME-00001-of-00003.gguf`, whichever of them is named), or the one.

    Raises Failure.
    """
    found = PART.search(source)
    if found is None:
        return (located(source),)
    head, tail = source[: found.start(1)], source[found.end(1) :]
    return tuple(located(f"{head}{number:05d}{tail}") for number in range(1, int(found[2]) + 1))


def located(source: str) -> HubFile:
    """Raises Failure for what is not of that form. `@REVISION` behind it takes another than main."""
    found = FORM.match(source)
    parts = PurePosixPath(found[2]).parts if found else ()
    if found is None or ".." in parts or found[2].startswith("/"):
        raise Failure(faults.USAGE, f"{source} is no model on a hub", "write hf:OWNER/REPO/FILE.gguf")
    repository, file, revision = found[1], found[2], found[3] or "main"
    hub = os.environ.get("HF_ENDPOINT", HUB).rstrip("/")
    if not hub.startswith(("https://", "http://")):
        raise Failure(faults.USAGE, f"HF_ENDPOINT={hub} is no address of a hub", "write https://HOST")
    url = f"{hub}/{repository}/resolve/{quote(revision)}/{quote(file)}"
    return HubFile(url, parts[-1], PurePosixPath(repository.replace("/", "--"), *parts), hub_token())


def hub_token() -> str:
    """Raises Failure for one that cannot stand in a request's header. It is not shown."""
    token = os.environ.get("HF_TOKEN", "").strip()
    if not re.fullmatch(r"[!-~]*", token):
        raise Failure(faults.USAGE, "HF_TOKEN is no token", "a token is one word of plain letters, digits and signs")
    return token
