"""`lore codex export` and `lore codex import`: a codex's computed prefix, taken to another machine with the same model."""

import json
import os
import select
import shlex
import signal
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon, Failure, route_part
from orchestrator.cli.terminal import clear_progress, count, done, duration, note, progress, size
from orchestrator.wire import faults

if TYPE_CHECKING:
    from http.client import HTTPResponse

PIECE = 1 << 20
BLOCK = 512  # bytes, of a tar archive
SHOWN_S = 0.1  # between two lines of progress

Name = Annotated[str, typer.Argument(metavar="NAME", help="the codex")]
File = Annotated[str, typer.Argument(metavar="FILE", help="what lore codex export wrote")]
NewFile = Annotated[str, typer.Argument(metavar="FILE", help="a file that is not there yet")]


def export(name: Name, file: NewFile, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Writes a codex's computed prefix to a file, for another machine with the same model.

    Whoever has the file can read the code in it.
    """
    path = Path(file)
    if os.path.lexists(path):
        raise Failure(faults.USAGE, f"{path} is there already", "name another file, or remove it")
    response = Daemon(socket).download(f"/v1/codices/{route_part(name)}/floor")
    beside = Path(f"{file}.{os.getpid()}.part")
    try:
        with unfinished(beside) as written:
            manifest = copied(response, written)
            written.flush()
            os.fsync(written.fileno())
            beside.replace(path)
    except OSError as error:
        raise Failure(faults.FAILED, f"{beside}: {error.strerror}", "nothing was written") from error
    finally:
        clear_progress()
    report = {"codex": manifest["codex"], "file": str(path), "bytes": path.stat().st_size, "tokens": manifest["tokens"]}
    done(
        report, f"wrote {count(report['tokens'])} tokens of {name} to {path}, {size(report['bytes'])}", as_json=as_json
    )
    note("whoever has this file can read the code in it; on the other machine: lore codex import FILE")


@contextmanager
def unfinished(path: Path) -> Iterator[BinaryIO]:
    """A file that was not there, for its owner alone. It is gone at the end, also where SIGTERM or SIGHUP, the end of a
    terminal, is that. Raises OSError."""
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP)}
    for one in before:
        if before[one] is signal.SIG_DFL:  # `nohup` ignores SIGHUP
            signal.signal(one, lambda number, _: sys.exit(128 + number))
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            try:
                yield file
            finally:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def copied(response: "HTTPResponse", file: BinaryIO) -> Any:
    """The manifest, once the whole archive is in the file. Raises Failure."""
    import tarfile
    from http.client import HTTPException

    try:
        begin = response.read(BLOCK)
        length = tarfile.TarInfo.frombuf(begin, "ascii", "strict").size
        raw = response.read(blocks(length))
        manifest = json.loads(raw[:length])
        total = sum(BLOCK + blocks(one["bytes"]) for one in manifest["segments"]) + 2 * BLOCK
        file.write(begin + raw)
        shown = BytesShown("writing", total)
        while piece := response.read(PIECE):
            file.write(piece)
            shown.more(len(piece))
    except (HTTPException, ConnectionError, tarfile.HeaderError, ValueError) as error:
        raise broken_off() from error
    if shown.done != total:
        raise broken_off()
    return manifest


def broken_off() -> Failure:
    return Failure(faults.FAILED, "the daemon broke off the prefix", "nothing was written; export it again")


def blocks(length: int) -> int:
    return -(-length // BLOCK) * BLOCK


def import_(file: File, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Takes in a prefix that was computed on another machine with the same model.

    It loads no code: load the same files under the same name afterwards. Import what you trust: nobody can see whether the
    prefix is what the model would have computed.
    """
    path = Path(file)
    try:
        with path.open("rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise Failure(faults.USAGE, f"{path} is no file: its size is not known", "write it to a file first")
            report = Daemon(socket).upload(
                "/v1/floors", lambda sock: pieces(opened, sock), os.fstat(opened.fileno()).st_size
            )
    except FileNotFoundError:
        raise Failure(faults.NOT_FOUND, f"{path} is not there", "lore codex export NAME FILE writes it") from None
    except OSError as error:
        raise Failure(faults.FAILED, f"{path}: {error.strerror}", "nothing was taken in") from error
    finally:
        clear_progress()
    state = f" ({report['state']})" if report["state"] else ""
    done(
        report,
        f"took in {count(report['tokens'])} tokens of {report['codex']}, {size(report['bytes'])}",
        as_json=as_json,
    )
    named = shlex.quote(report["codex"])
    note(f"next: lore load PATH --name {named}, with the same files{state}; their prefix is then not computed")
    for notice in report["notices"]:
        note(notice)


def pieces(file: BinaryIO, sock: Any) -> Iterator[bytes]:
    """The file, as far as the daemon has not answered: it refuses a prefix by its first bytes."""
    total = os.fstat(file.fileno()).st_size
    shown = BytesShown("sending", total)
    while shown.done < total and not select.select([sock], [], [], 0)[0]:
        piece = file.read(min(PIECE, total - shown.done))
        if not piece:
            raise Failure(faults.FAILED, f"{file.name} became shorter while it was sent", "nothing was taken in")
        yield piece
        shown.more(len(piece))


class BytesShown:
    """Progress in bytes."""

    def __init__(self, what: str, total: int) -> None:
        self.done = 0
        self._what = what
        self._total = total
        self._began = self._last = time.monotonic()

    def more(self, number: int) -> None:
        self.done += number
        now = time.monotonic()
        if now - self._last >= SHOWN_S:
            self._last = now
            left = (self._total - self.done) * (now - self._began) / self.done
            progress(f"{self._what} {size(self.done)}/{size(self._total)} · {duration(left)} left")
