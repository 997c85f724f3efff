"""A model from a hub, over HTTP: goes on where it broke off, is checked, and gets its name only when it is whole.

`hf:OWNER/REPO/FILE` names it. HF_ENDPOINT names another hub and HF_TOKEN says who asks, as the hub's own tools have it.
Standard library only. The sum is taken from the headers of the answers on the way, where hubs name it for large files: an
`X-Linked-Etag` (or `ETag`) of 64 hexadecimal digits is the file's SHA-256, `X-Linked-Size` its size. A token goes to the
hub alone: never to the store that a hub redirects to.
"""

import hashlib
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPException, HTTPMessage
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import quote, urlsplit

from orchestrator.cli.client import Failure
from orchestrator.wire import faults

HUB = "https://huggingface.co"
PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf(?:@|$)")
FORM = re.compile(r"hf:([\w.-]+/[\w.-]+)/([^@]+?\.gguf)(?:@([\w./-]+))?\Z")
NAMED = "write hf:OWNER/REPO/FILE.gguf; a name of docs/models.md: lore up --model NAME"
CHUNK = 1 << 20
TIMEOUT_S = 30.0
SHA256 = re.compile(r'(?:W/)?"?([0-9a-f]{64})"?\Z')
Report = Callable[[int, int], None]


class Unreachable(Failure):
    """The hub does not answer: there may be no network."""


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
        raise Failure(faults.USAGE, f"{source} is no model on a hub", NAMED)
    repository, file, revision = found[1], found[2], found[3] or "main"
    hub = os.environ.get("HF_ENDPOINT", HUB).rstrip("/")
    if not hub.startswith(("https://", "http://")):
        raise Failure(faults.USAGE, f"HF_ENDPOINT={hub} is no address of a hub", "write https://HOST")
    url = f"{hub}/{repository}/resolve/{quote(revision)}/{quote(file)}"
    return HubFile(url, parts[-1], PurePosixPath(repository.replace("/", "--"), *parts), hub_token())


def hub_token() -> str:
    """Raises Failure for one that cannot be in a request's header. It is not shown."""
    token = os.environ.get("HF_TOKEN", "").strip()
    if not re.fullmatch(r"[!-~]*", token):
        raise Failure(faults.USAGE, "HF_TOKEN is no token", "a token is one word of plain letters, digits and signs")
    return token


# ---- the download ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Got:
    """`checked`: the server announced the sum beforehand and it is the same."""

    bytes: int
    sha256: str
    checked: bool


@dataclass
class Announced:
    """What the answers on the way said of the file."""

    sha256: str = ""
    size: int = 0

    def hear(self, headers: Message) -> None:
        tag = SHA256.match(headers.get("X-Linked-Etag") or headers.get("ETag") or "")
        self.sha256 = self.sha256 or (tag[1] if tag else "")
        self.size = self.size or int(headers.get("X-Linked-Size") or 0)


def fetch(url: str, target: Path, report: Report, token: str = "") -> Got:
    """Downloads to `target`; bytes so far stay beside it as `.part`. Raises Failure."""
    if target.exists():
        raise Failure(faults.FAILED, f"{target} is there already", "remove it to download it again")
    part = target.with_name(f"{target.name}.part")
    announced = Announced()
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        receive(url, part, announced, report, token)
        digest = sum_of(part)
    except urllib.error.HTTPError as error:
        raise refused(url, error, token) from error
    except (urllib.error.URLError, HTTPException, ConnectionError, TimeoutError) as error:
        raise unreachable(url, part, error) from error
    except OSError as error:
        raise Failure(
            faults.FAILED, f"{part}: {error.strerror or error}", "make room or choose another disk"
        ) from error
    size = part.stat().st_size
    if (announced.sha256 and digest != announced.sha256) or (announced.size and size != announced.size):
        part.unlink()
        raise Failure(faults.FAILED, f"{url} came damaged: its sum or size is not what the hub says", "try again")
    part.replace(target)
    return Got(size, digest, bool(announced.sha256))


def receive(url: str, part: Path, announced: Announced, report: Report, token: str) -> None:
    """All bytes from where `part` ends; from the start where the server knows no ranges."""
    have = part.stat().st_size if part.exists() else 0
    try:
        response = opened(url, announced, have, token)
    except urllib.error.HTTPError as error:
        announced.hear(error.headers)
        whole = announced.size or int((error.headers.get("Content-Range") or "/0").rpartition("/")[2])
        if error.code == 416 and have and have == whole:
            return  # it was whole when it broke off
        raise
    with response:
        begin = have if response.status == 206 else 0
        total = begin + int(response.headers.get("Content-Length") or 0)
        insist_on_room(part, total - begin)
        with part.open("ab" if begin else "wb") as file:
            done = begin
            while chunk := response.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                report(done, total)
        if done < total:
            raise ConnectionError(f"it ended after {done:,} of {total:,} bytes")


def opened(url: str, announced: Announced, have: int, token: str) -> Any:
    headers = {"Range": f"bytes={have}-"} if have else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - `hub` makes http and https alone
    redirects = Redirects(announced, origin(url), token)
    redirects.authorize(request)
    response = urllib.request.build_opener(redirects).open(request, timeout=TIMEOUT_S)
    announced.hear(response.headers)
    return response


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows, and hears what each answer says on the way: the hub knows the sum, its store may not.

    `token` is sent to `hub` alone, a scheme and an address: where a redirect leads elsewhere it is left out.
    """

    def __init__(self, announced: Announced, hub: tuple[str, str], token: str) -> None:
        self.announced = announced
        self._hub = hub
        self._token = token

    def authorize(self, request: urllib.request.Request) -> None:
        if self._token and origin(request.full_url) == self._hub:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        self.announced.hear(headers)
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None:
            self.authorize(following)
        return following


def origin(url: str) -> tuple[str, str]:
    """Scheme and address with its port."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def insist_on_room(part: Path, wanted: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if wanted > free:
        raise Failure(
            faults.FAILED,
            f"{wanted / 1e9:.1f} GB are to come and {free / 1e9:.1f} GB are free at {part.parent}",
            "make room, or set XDG_CACHE_HOME to a larger disk",
        )


def sum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refused(url: str, error: urllib.error.HTTPError, token: str) -> Failure:
    if error.code == 404:
        return Failure(faults.NOT_FOUND, f"{url} does not exist", "check owner, repository and file")
    if error.code in (401, 403):
        way = "agree to its terms with the account of HF_TOKEN" if token else "set HF_TOKEN to a token that may read it"
        hint = f"{way}, or download it in a browser and use its path: lore model use FILE.gguf"
        return Failure(faults.NOT_PERMITTED, f"{url} is not given to everybody ({error.code})", hint)
    return Failure(faults.FAILED, f"{url}: {error.code} {error.reason}", "try again later")


def unreachable(url: str, part: Path, error: Exception) -> Failure:
    why = error.reason if isinstance(error, urllib.error.URLError) else error
    kept = f"{part.stat().st_size:,} bytes are kept; " if part.exists() and part.stat().st_size else ""
    hint = f"{kept}when there is a network, the same command goes on; a file at hand: lore model use FILE.gguf"
    return Unreachable(faults.FAILED, f"{url} cannot be reached: {why}", hint)
