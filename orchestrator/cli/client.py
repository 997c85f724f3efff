"""The daemon as the command line sees it: JSON calls and streams of events over its Unix socket.

Standard library only: an HTTP package would double the time of every command. Knows no route.
"""

import http.client
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.cli.faults import Failure, failure_of
from orchestrator.cli.terminal import note
from orchestrator.wire import faults
from orchestrator.wire.sockets import candidates
from orchestrator.wire.version import HEADER, VERSION

CONNECT_TIMEOUT_S = 5.0


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(CONNECT_TIMEOUT_S)
        self.sock.connect(os.fspath(self.path))
        self.sock.settimeout(None)  # an answer may take as long as it takes; Ctrl-C ends it


@dataclass(frozen=True)
class Event:
    """One server-sent event; `aside` for what stood in a comment (progress while waiting)."""

    data: Any
    aside: bool = False


class Daemon:
    """One daemon, for one command. `socket` is the option's value."""

    def __init__(self, socket: str | None) -> None:
        self.connection = connected(candidates(socket, os.environ))
        self.version = ""

    def call(self, method: str, route: str, body: Any = None) -> Any:
        """The answer's JSON. Raises Failure."""
        response = self.request(method, route, body)
        answer = decoded(response.read())
        if response.status >= 400:
            raise failure_of(answer)
        return answer

    def stream(self, route: str, body: Any = None, method: str = "POST") -> Iterator[Event]:
        """Events as they come; the stream's end is not checked here. Raises Failure, also for errors in the stream."""
        response = self.request(method, route, body)
        if response.status >= 400:
            raise failure_of(decoded(response.read()))
        try:
            for event in events(response):
                if isinstance(event.data, dict) and "error" in event.data:
                    raise failure_of(event.data)
                yield event
        except (http.client.HTTPException, ConnectionError) as error:
            raise Failure(
                faults.FAILED, "the daemon broke off its answer", "`lore status` tells whether it lives"
            ) from error
        finally:
            self.close()

    def request(self, method: str, route: str, body: Any) -> http.client.HTTPResponse:
        raw = None if body is None else encoded(body)
        headers = {"Content-Type": "application/json"} if raw is not None else {}
        try:
            self.connection.request(method, route, raw, headers)
            response = self.connection.getresponse()
        except (http.client.HTTPException, OSError) as error:
            raise Failure(
                faults.UNREACHABLE, f"the daemon closed the connection: {error}", "`lore doctor` looks into it"
            ) from error
        self.version = response.headers.get(HEADER, "")
        tell_versions(self.version)
        return response

    def close(self) -> None:
        self.connection.close()


def connected(paths: tuple[Path, ...]) -> UnixConnection:
    """To the first that answers. Raises Failure with the line that starts a daemon."""
    for path in paths:
        connection = UnixConnection(path)
        try:
            connection.connect()
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            continue
        except PermissionError:
            raise Failure(
                faults.NOT_PERMITTED, f"{path} may not be used by you", "its owner can configure a sigil"
            ) from None
        except OSError as error:
            raise Failure(faults.UNREACHABLE, f"{path}: {error}", "`lore doctor` looks into it") from error
        return connection
    tried = " or ".join(str(path) for path in paths)
    raise Failure(faults.UNREACHABLE, f"no daemon listens at {tried}", "start one: lore serve")


def tell_versions(daemon: str) -> None:
    if daemon and daemon != VERSION:
        note(f"lore is version {VERSION}, the daemon {daemon}: restart the daemon (lore serve)")


def encoded(body: Any) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        wrong = error.object[max(0, error.start - 20) : error.end]
        raise Failure(faults.USAGE, f"{wrong!r} is not UTF-8", "only text in UTF-8 can be sent") from error


def decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")


def events(lines: Iterator[bytes] | http.client.HTTPResponse) -> Iterator[Event]:
    """Server-sent events of one line each, as the daemon writes them; ends at [DONE] or with the stream."""
    for line in lines:
        if line.startswith(b"data: [DONE]"):
            return
        if line.startswith(b"data: "):
            yield Event(decoded(line[6:]))
        elif line.startswith(b": "):
            yield Event(decoded(line[2:]), aside=True)
