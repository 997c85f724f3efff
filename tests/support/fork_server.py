"""Imports once what `lore` imports, and forks for each order. See forks.py.

    order       its length; (arguments, environment, folder, whether in a session of its own); and its files: standard
                input, output and error, the socket for its reports, and an engine's to its daemon
    reports     the new process's number; at its end, its status as `waitpid` has it

It has one thread, so that a fork lacks none: libraries that start one when they are imported start it later, or none. So
may the engines of a daemon that is a fork be forks too: of the daemon, which has imported what an engine needs.
"""

import asyncio
import atexit
import ctypes
import gc
import importlib
import logging
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from ast import literal_eval
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from orchestrator.engine.client.supervisor import ChildProcess, environment_of
from orchestrator.engine.model import EngineSpec

ENGINE = "orchestrator.engine.child.worker"
ENGINES = (ENGINE, "orchestrator.engine.llama.backend", "orchestrator.engine.remote.worker")
FAKE = "fake_engine"  # beside this file
ALL = (
    *ENGINES,
    "orchestrator.cli.commands",
    "orchestrator.daemon",
    "orchestrator.bootstrap",
    "orchestrator.answering.agent",
    "orchestrator.api.app",
    "orchestrator.api.server",
    "orchestrator.api.sigils",
    "orchestrator.model_switch",
    "http.client",
    "pyarrow.compute",
    "lancedb.index",
    "tomlkit",
)
# What starts no thread then when it is loaded: numpy's library, and Arrow's allocator.
THREADLESS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
INT = struct.Struct("i")
SET_PARENT_DEATH_SIGNAL = 1
START_PROCESS = ChildProcess.start
SPARES = 4
spares: list[tuple[int, socket.socket]] = []  # of this daemon: a process, and what makes it an engine


def main() -> None:
    orders = socket.socket(fileno=int(sys.argv[1]))
    os.environ.update(THREADLESS)
    prepare_engines() if sys.argv[2] == "engines" else prepare_all()
    become_single()
    gc.collect()
    gc.freeze()  # collecting in a fork then copies nothing that all share
    if (wire := serve(orders)) is not None:
        forget_daemon(wire)
        be_engine(wire, dict(os.environ))
    from orchestrator.cli import main as lore

    end_with(status_of(lore))


def prepare_engines() -> None:
    for name in (*ENGINES, FAKE):
        importlib.import_module(name)


def prepare_all() -> None:
    from codex.archive.lance import lancedb
    from codex.trees import secrets

    lancedb()
    for name in ALL:
        importlib.import_module(name)
    secrets.compile_rules()  # as each daemon does that loads: 0.4 s
    start_lances_loop_late()
    ChildProcess.start = classmethod(start_engine)  # type: ignore[assignment, method-assign]


def serve(orders: socket.socket) -> socket.socket | None:
    """Returns in each fork, an engine's socket in that; ends with the process that orders."""
    running: dict[int, tuple[int, socket.socket]] = {}  # by its pidfd: a fork's number, and where to report
    while True:
        awake, _, _ = select.select([orders, *running], [], [])
        for ended in set(awake) & set(running):
            report_end(ended, *running.pop(ended))
        if orders not in awake:
            continue
        order, files = received(orders)
        pid = os.fork()
        if pid == 0:
            wire = become(order, files)
            for ours in (orders, *(reports for _, reports in running.values())):
                ours.close()
            for pidfd in running:
                os.close(pidfd)
            return wire
        for file in (*files[:3], *files[4:]):
            os.close(file)
        reports = socket.socket(fileno=files[3])
        reports.sendall(INT.pack(pid))
        running[os.pidfd_open(pid)] = pid, reports


def report_end(pidfd: int, pid: int, reports: socket.socket) -> None:
    os.close(pidfd)
    with reports, suppress(BrokenPipeError):  # who ordered it may have left
        reports.sendall(INT.pack(os.waitpid(pid, 0)[1]))


def received(orders: socket.socket) -> tuple[bytes, list[int]]:
    """The next order and its files."""
    head, files, _, _ = socket.recv_fds(orders, INT.size, 5)
    if not head:
        os._exit(0)
    (length,), order = INT.unpack(head), b""
    while len(order) < length:
        order += orders.recv(length - len(order))
    return order, files


def become(order: bytes, files: list[int]) -> socket.socket | None:
    """The process that was ordered, with what an exec would have left it; an engine's socket."""
    arguments, environment, cwd, session = literal_eval(order.decode())
    if session:
        os.setsid()
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    for standard, file in enumerate(files[:3]):
        os.dup2(file, standard)
    for file in files[:4]:
        os.close(file)
    # What can be done with a file is seen when it is opened.
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.chdir(cwd)
    live_in(environment)
    for folder in paths(environment, "LD_LIBRARY_PATH"):
        if (driver := Path(folder) / "libnvidia-ml.so.1").exists():
            ctypes.CDLL(str(driver))  # whoever opens it by its name is given this one
    if more := paths(environment, "PYTHONPATH"):
        sys.path[:0] = more
        sys.modules.pop("sitecustomize", None)  # the system's
        with suppress(ImportError):
            importlib.import_module("sitecustomize")
    time.tzset()
    sys.argv[:] = arguments
    return socket.socket(fileno=files[4]) if files[4:] else None


def paths(environment: Mapping[str, str], name: str) -> list[str]:
    return [folder for folder in environment.get(name, "").split(os.pathsep) if folder]


def live_in(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def status_of(lore: Callable[[], None]) -> int:
    """Its exit status. What else it raises ends this process as it would end any."""
    try:
        lore()
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise
        return end.code or 0
    return 0


def end_with(status: int) -> NoReturn:
    """What an interpreter does at its end, but for taking each of a million objects down, which are shared: 0.15 s."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # nobody reads, or the disk is full: the interpreter says so
        sys.exit(status)
    os._exit(status)


def become_single() -> None:
    """A thread that was joined has ended for Python, and ends for the kernel a moment later."""
    deadline = time.monotonic() + 10
    while threads() > 1:
        assert time.monotonic() < deadline, "forks would lack the other threads"
        os.sched_yield()


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


# -- LanceDB's event loop


def start_lances_loop_late() -> None:
    """Its thread starts with the first use in a fork. LanceDB itself begins a new loop after each fork."""
    from lancedb import background_loop

    class LoopWhenUsed(background_loop.BackgroundEventLoop):  # type: ignore[misc]
        def _start(self) -> None:
            vars(self).clear()

        def __getattr__(self, name: str) -> object:
            super()._start()
            return vars(self)[name]

    loop = background_loop.LOOP
    loop.loop.call_soon_threadsafe(loop.loop.stop)
    loop.thread.join()
    loop.loop.close()
    loop.__class__ = LoopWhenUsed
    background_loop._FORK_WARNED = True


# -- a daemon's engine


async def start_engine(
    kind: type[ChildProcess], spec: EngineSpec, environment: Mapping[str, str] | None = None
) -> ChildProcess:
    """As `ChildProcess.start`. Before its second thread a daemon makes spare processes, which become its engines one
    after another; when they are used up, engines are no forks."""
    if threads() == 1 and not spares:
        spares.extend(spare() for _ in range(SPARES))
    if environment or not spares:
        return await START_PROCESS(spec, environment)
    pid, orders = spares.pop()
    ours, theirs = socket.socketpair()
    with theirs, orders:
        order = repr(environment_of(spec)).encode()
        socket.send_fds(orders, [INT.pack(len(order)) + order], [theirs.fileno()])
    ended = EngineFork(pid, os.pidfd_open(pid), lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    child = kind(ended, *await asyncio.open_connection(sock=ours))  # type: ignore[arg-type]
    child.send([spec])
    return child


def spare() -> tuple[int, socket.socket]:
    """A process that becomes an engine when it is ordered to, or ends with this one."""
    ours, theirs = socket.socketpair()
    with theirs:
        pid = os.fork()
        if pid == 0:
            forget_daemon(theirs)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group
            order, (wire,) = received(theirs)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            be_engine(socket.socket(fileno=wire), literal_eval(order.decode()))
    return pid, ours


def forget_daemon(only: socket.socket) -> None:
    """What an exec would not have left it of its daemon."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.closerange(3, only.fileno())
    os.closerange(only.fileno() + 1, os.sysconf("SC_OPEN_MAX"))


def be_engine(wire: socket.socket, environment: Mapping[str, str]) -> NoReturn:
    from orchestrator.engine.child import worker

    logging.captureWarnings(capture=False)
    logging.root.handlers.clear()
    live_in(environment)
    sys.argv[:] = [ENGINE, str(wire.detach())]
    name_process(sys.executable, "-P", "-m", *sys.argv)
    try:
        worker.main()
        end_with(0)
    except BaseException:  # noqa: BLE001 - it ends this process, as it would end any
        sys.excepthook(*sys.exc_info())
        os._exit(1)


class EngineFork:
    """What `ChildProcess` uses of asyncio's processes. `end` can be read once it has ended, and then `status` tells how."""

    def __init__(self, pid: int, end: int, status: Callable[[], int]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._end, self._status, self._ended = end, status, asyncio.Event()
        asyncio.get_running_loop().add_reader(end, self._reap)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    async def wait(self) -> int | None:
        await self._ended.wait()
        return self.returncode

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._end)
        self.returncode = self._status()
        os.close(self._end)
        self._ended.set()


def name_process(*arguments: str) -> None:
    """As `ps` and /proc show it, cut where this process's own arguments were shorter."""
    begin, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, "\0".join(arguments).encode(), min(len("\0".join(arguments).encode()), end - begin - 1))


if __name__ == "__main__":
    main()
