"""The daemon as the command line sees it: JSON calls and streams of events over its Unix socket, and faults of both ends.

Standard library only: an HTTP package would double the time of every command. The HTTP client is imported with the first
connection: it costs a quarter of `lore --help`'s time. Knows no route.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from orchestrator.cli.terminal import note, safe, to_stderr
from orchestrator.wire import faults
from orchestrator.wire.places import HEADER, VERSION, candidates

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

CONNECT_TIMEOUT_S = 5.0
HANGS_S = 10.0  # of silence: a view that asks again and again takes the daemon for one that hangs
PATIENCE_S = 3.0  # after which it is said what a command waits for
LISTS = {
    "codex": "lore codex list",
    "session": "lore session list",
    "memory": "lore memory list",
    "trace": "lore trace list",
    "identity": "lore identity list",
}


class Failure(Exception):
    """A fault at the command line's edge: an exit status, what is wrong and where, and what to do."""

    def __init__(self, status: int, message: str, hint: str = "", code: str = "") -> None:
        """`code`: the daemon's, where the fault is its."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint
        self.code = code

    def show(self) -> None:
        lines = f"lore: {self.message}\n" + (f"      {self.hint}\n" if self.hint else "")
        to_stderr(safe(lines, sys.stderr))


@dataclass(frozen=True)
class Event:
    """One server-sent event; `aside` for the content of a comment (progress while waiting)."""

    data: Any
    aside: bool = False


class Daemon:
    """One daemon, for one command. `socket` is the option's value; `quiet`: whoever asks tells of versions that differ in
    its own way; `silent_s`: how long it may say nothing, None for ever. Raises Failure where no daemon listens."""

    def __init__(self, socket: str | None, *, quiet: bool = False, silent_s: float | None = None) -> None:
        self._quiet = quiet
        self.connection = connected(candidates(socket, os.environ))
        self._socket = self.connection.sock
        self._socket.settimeout(silent_s)

    def call(self, method: str, route: str, body: Any = None) -> Any:
        """The answer's JSON. Raises Failure."""
        return answer_of(self.request(method, route, body))

    def archive_place(self) -> str:
        """The object storage that the daemon's archive is on; '' for a folder, and where it cannot be told."""
        try:
            place = self.call("GET", "/v1/status").get("archive")
        except Failure:
            return ""
        return str(place["uri"]) if place else ""

    def send(self, route: str, raw: bytes) -> Any:
        """The answer to bytes as they are. Raises Failure."""
        return answer_of(self.request("POST", route, raw))

    def download(self, route: str) -> "HTTPResponse":
        """An answer that is not JSON, to be read. Raises Failure."""
        response = self.request("GET", route, None)
        if response.status >= 400:
            raise failure_of(decoded(response.read()))
        return response

    def upload(self, route: str, pieces: Callable[[Any], Iterator[bytes]], size: int) -> Any:
        """The answer to so many bytes, or to those that `pieces` of the socket gave before it came. Raises Failure."""
        return answer_of(self.request("POST", route, pieces(self._socket), size))

    def stream(self, route: str, body: Any = None, method: str = "POST") -> Iterator[Event]:
        """Events as they come; the stream's end is not checked here. Raises Failure, also for errors in the stream."""
        from http.client import HTTPException

        response = self.request(method, route, body)
        if response.status >= 400:
            raise failure_of(decoded(response.read()))
        try:
            for event in events(response):
                if isinstance(event.data, dict) and "error" in event.data:
                    raise failure_of(event.data)
                yield event
        except (HTTPException, ConnectionError) as error:
            raise Failure(
                faults.FAILED, "the daemon broke off its answer", "`lore status` shows whether it runs"
            ) from error
        finally:
            self.connection.close()

    def leave(self) -> None:
        """From another thread: what waits here ends with a Failure or with nothing, and the daemon ends the request."""
        from socket import SHUT_RDWR

        with suppress(OSError):  # it has ended already
            self._socket.shutdown(SHUT_RDWR)

    def request(self, method: str, route: str, body: Any, size: int | None = None) -> "HTTPResponse":
        """`size`: of a body that is bytes one after the other."""
        from http.client import HTTPException

        is_raw = body is None or isinstance(body, bytes) or size is not None
        raw = body if is_raw else encoded(body)
        headers = (
            {"Content-Type": "application/octet-stream" if is_raw else "application/json"} if raw is not None else {}
        )
        headers |= {} if size is None else {"Content-Length": str(size)}
        try:
            self.connection.request(method, route, raw, headers)
            response = self.connection.getresponse()
        except TimeoutError:
            raise silent(self._socket.gettimeout()) from None
        except (HTTPException, OSError) as error:
            raise Failure(
                faults.UNREACHABLE, f"the daemon closed the connection: {error}", "`lore doctor` looks into it"
            ) from error
        version = response.headers.get(HEADER, "")
        if version and version != VERSION and not self._quiet:
            note(f"lore is version {VERSION}, the daemon {version}: restart the daemon (lore serve)")
        return response


def answer_of(response: "HTTPResponse") -> Any:
    """Its JSON. Raises Failure."""
    from http.client import HTTPException

    try:
        answer = decoded(response.read())
    except TimeoutError:
        raise silent(None) from None
    except (HTTPException, OSError) as error:
        raise Failure(
            faults.UNREACHABLE, "the daemon broke off its answer", "`lore status` shows whether it runs"
        ) from error
    if response.status >= 400:
        raise failure_of(answer)
    return answer


def silent(seconds: float | None) -> Failure:
    """Of a daemon that hangs, or of a machine that is asleep or has far too much to do."""
    for_so_long = f" for {seconds:.0f} s" if seconds else " to its end"
    return Failure(faults.UNREACHABLE, f"the daemon has not answered{for_so_long}", "`lore doctor` looks into it")


def connected(paths: tuple[Path, ...]) -> "HTTPConnection":
    """To the first that answers. Raises Failure with the line that starts a daemon."""
    for path in paths:
        connection = unix_connection(path)
        try:
            connection.connect()
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            continue
        except PermissionError:
            raise Failure(
                faults.NOT_PERMITTED,
                f"{path} may not be used by you",
                "its group can be joined, or its owner can configure a sigil",
            ) from None
        except OSError as error:
            raise Failure(faults.UNREACHABLE, f"{path}: {error}", "`lore doctor` looks into it") from error
        return connection
    tried = " or ".join(str(path) for path in paths)
    raise Failure(faults.UNREACHABLE, f"no daemon listens at {tried}", "start one: lore serve")


def unix_connection(path: Path) -> "HTTPConnection":
    """HTTP over a Unix socket; it connects with the first request."""
    import socket
    from http.client import HTTPConnection

    class UnixConnection(HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(CONNECT_TIMEOUT_S)
            self.sock.connect(os.fspath(path))
            self.sock.settimeout(None)  # an answer may take as long as it takes; Ctrl-C ends it

    return UnixConnection("localhost")


@contextmanager
def told_of_waiting(socket: str | None, known: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Says once, after a few seconds, why the daemon answers nobody yet and how to stop waiting; nothing where it does, or
    where that is `known`."""
    from http.client import HTTPException
    from threading import Timer

    def tell() -> None:
        with suppress(Failure, HTTPException, OSError):  # who waits meets it, too
            found = decoded(Daemon(socket, quiet=True).request("GET", "/readyz", None).read())
            if not (found["ready"] or known()):
                note(f"waiting: {found['detail']} (Ctrl-C stops waiting)")

    timer = Timer(PATIENCE_S, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def route_part(name: str, what: str = "codex") -> str:
    """A name as one part of a route. Raises Failure for what is none: it would lead to another route."""
    if "/" in name or name in ("", ".", ".."):
        raise Failure(faults.NOT_FOUND, f"no {what} named {name!r}", f"{LISTS[what]} shows what there is")
    return quote(name, safe="")


def failure_of(answer: Any) -> Failure:
    """From the daemon's error object; anything else is shown as it came."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return Failure(faults.FAILED, f"the daemon's answer is none of ours: {json.dumps(answer)[:200]}")
    status = faults.fault_code(str(error.get("code", ""))).exit_status
    code = str(error.get("code", ""))
    return Failure(status, str(error.get("message", "failed")), str(error.get("hint", "")), code)


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


def events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Server-sent events of one line each, as the daemon writes them; ends at [DONE] or with the stream."""
    for line in lines:
        if line.startswith(b"data: [DONE]"):
            return
        if line.startswith(b"data: "):
            yield Event(decoded(line[6:]))
        elif line.startswith(b": "):
            yield Event(decoded(line[2:]), aside=True)
