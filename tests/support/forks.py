"""Daemons and commands that are forks of one process that has imported already.

Until its own code runs, a `lore serve` takes two seconds of a processor for imports, and any other command a third of one.
What a test asks about comes after that. So its daemon is a fork: a process with its own memory, session, environment,
signals, files and end, which runs the entry point that `lore` runs.

Whoever asks about a start has a real one: `new_daemon`, or LORE in a process of one's own. So has every environment with
something that an import or the system's loader reads: LD_PRELOAD and its like, and a PYTHONPATH that takes the place of
something. What runs at every start, sitecustomize, runs in a fork when all is imported; the driver in LD_LIBRARY_PATH is
loaded then. With REAL_PROCESSES=1 all are real.
"""

import asyncio
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TypeVar

from private_daemon import PrivateDaemon
from support.fork_server import ENGINE, START_PROCESS, EngineFork

from orchestrator.engine.client.supervisor import ChildProcess, environment_of
from orchestrator.engine.model import EngineSpec

SERVER = Path(__file__).with_name("fork_server.py")
# Environment variables that are read when they are needed, and by no import. Some of libraries are set when they are used.
READ_LATE = (
    "LORE_",
    "LANCE",
    "GGML_",
    "XDG_",
    "HOME",
    "NOTIFY_SOCKET",
    "KF_RULE_CACHE_DIR",
    "CREDENTIALS_DIRECTORY",
    "PYTEST_",
    "PYTHONPATH",
    "NO_COLOR",
    "TERM",
    "COLUMNS",
    "EDITOR",
    "VISUAL",
    "FAULT_FILE",  # faulty_child, which looks when it runs
    "CHILD_",
    "FAKE_NVML_",
    "LD_LIBRARY_PATH",
)

IMPORTED_IN = dict(os.environ)  # what was set later no fork server's imports have read
ROOM = " " * 200  # in the server's arguments, for those that `ps` shows of a fork
F = TypeVar("F", bound="Fork")
ONE_ORDER = threading.Lock()  # at a time: some tests ask from several threads


class Fork:
    """What tests use of `subprocess.Popen`. The process is no child of ours: its parent reports its number, and its end."""

    def __init__(self, args: Sequence[str], reports: socket.socket) -> None:
        self.args = list(args)
        self.returncode: int | None = None
        self.reports = reports
        self.pid = self._reported()

    def poll(self) -> int | None:
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it may end in between
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self.reports], [], [], timeout)[0]:
            self.returncode = os.waitstatus_to_exitcode(self._reported())
            self.reports.close()
        return self.returncode

    def _reported(self) -> int:
        report = self.reports.recv(4)
        assert report, "the fork server has ended"
        return int.from_bytes(report, sys.byteorder)


class ForkedCommand(Fork):
    """Text can be read of what it writes."""

    stdout: IO[str]
    stderr: IO[str]

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """As of `Popen`; what never ends is for the timeout of tests."""
        with self.stdout, self.stderr, ThreadPoolExecutor(2) as pool:
            out, err = pool.map(lambda pipe: pipe.read(), (self.stdout, self.stderr))
        self.wait(timeout)
        return out, err


def begin_command(command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[str]":
    """`lore`, left running in a session of its own, with pipes for what it writes."""
    if not forkable(environment):
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    with Path(os.devnull).open("rb") as nothing, os.fdopen(out_end, "wb") as written, os.fdopen(err_end, "wb") as told:
        process = fork(command, environment, Path.cwd(), (nothing, written, told), session=True, kind=ForkedCommand)
    process.stdout, process.stderr = os.fdopen(out), os.fdopen(err)
    return process  # type: ignore[return-value]


class ForkedDaemon(PrivateDaemon):
    """A private daemon whose processes are forks."""

    def begin(
        self, command: Sequence[str], environment: Mapping[str, str], sink: IO[bytes]
    ) -> "subprocess.Popen[bytes]":
        if not forkable(environment):
            return super().begin(command, environment, sink)
        with Path(os.devnull).open("rb") as nothing:
            return fork(command, environment, Path.cwd(), (nothing, sink, sink), session=True)  # type: ignore[return-value]

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: Path, given: bytes, timeout_s: float
    ) -> "subprocess.CompletedProcess[bytes]":
        if not forkable(environment):
            return super().run(command, environment, cwd, given, timeout_s)
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            source.write(given)
            source.seek(0)
            process = fork(command, environment, cwd, (source, out, err), session=False)
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(list(command), code, out.read(), err.read())


def forkable(environment: Mapping[str, str], imported_in: Mapping[str, str] = os.environ) -> bool:
    """Whether every import would find what the fork server's imports found."""

    def read_early(all_of: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in all_of.items() if not name.startswith(READ_LATE)}

    if "REAL_PROCESSES" in os.environ or read_early(environment) != read_early(imported_in):
        return False
    more = environment.get("PYTHONPATH", "")
    return more == imported_in.get("PYTHONPATH", "") or only_adds(more)


def only_adds(folders: str) -> bool:
    """Whether these, in front of all others where modules are looked for, hide none of them."""
    names = {module.name for folder in folders.split(os.pathsep) for module in pkgutil.iter_modules([folder])}
    return not any(map(find_spec, names - {"sitecustomize"}))


async def start_engine(
    kind: type[ChildProcess], spec: EngineSpec, environment: Mapping[str, str] | None = None
) -> ChildProcess:
    """As `ChildProcess.start`, for tests that talk to an engine without a daemon."""
    if not forkable({**os.environ, **(environment or {})}, IMPORTED_IN):
        return await START_PROCESS(spec, environment)
    ours, theirs = socket.socketpair()
    with theirs:
        process = engine_fork({**environment_of(spec), **(environment or {})}, theirs)
    ended = EngineFork(process.pid, os.dup(process.reports.fileno()), process.wait)
    child = kind(ended, *await asyncio.open_connection(sock=ours))  # type: ignore[arg-type]
    child.send([spec])
    return child


def engine_fork(environment: Mapping[str, str], wire: socket.socket) -> Fork:
    with (
        Path(os.devnull).open("rb") as nothing,
        open(1, "wb", closefd=False) as out,
        open(2, "wb", closefd=False) as err,
    ):
        return fork([ENGINE], environment, Path.cwd(), (nothing, out, err), wire=wire)


def fork(
    command: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    files: Sequence[IO[bytes]],
    *,
    session: bool = False,
    wire: socket.socket | None = None,
    kind: type[F] = Fork,  # type: ignore[assignment]
) -> F:
    """A new process that runs `lore`, or with `wire` an engine, with these arguments and files in this folder; `session`:
    in a session of its own."""
    ours, theirs = socket.socketpair()
    order = repr((list(command), dict(environment), str(cwd), session)).encode()
    with theirs:
        given = [*(file.fileno() for file in (*files, theirs)), *([] if wire is None else [wire.fileno()])]
        with ONE_ORDER:
            server = fork_server("all" if wire is None else "engines")
            socket.send_fds(server, [struct.pack("i", len(order)) + order], given)
    return kind(command, ours)


@cache
def fork_server(imported: str) -> socket.socket:
    """Where to send orders to one that has imported `all`, or what `engines` need. It ends with this process, whose end
    closes the socket."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, str(SERVER), str(theirs.fileno()), imported, ROOM]
        subprocess.Popen(command, env=IMPORTED_IN, pass_fds=[theirs.fileno()], start_new_session=True)
    return ours
