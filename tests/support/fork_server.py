"""Imports once what `lore` imports, and forks for each order. See forks.py.

    order       its length; (arguments, environment, folder, whether in a session of its own); and four files: standard
                input, output and error, and the socket for its reports
    reports     the new process's number; at its end, its status as `waitpid` has it

It has one thread, so that a fork lacks none: what starts threads when it is imported is not imported here.
"""

import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import time
from ast import literal_eval
from contextlib import suppress
from pathlib import Path

from codex.trees import secrets

IMPORTED = (
    "orchestrator.cli.commands",
    "orchestrator.daemon",
    "orchestrator.bootstrap",
    "orchestrator.answering.agent",
    "orchestrator.api.app",
    "orchestrator.api.server",
    "orchestrator.api.sigils",
    "orchestrator.model_switch",
    "http.client",
    "lance_namespace",  # a third of LanceDB's import, which itself starts a thread
    "tomlkit",
)
INT = struct.Struct("i")
SET_PARENT_DEATH_SIGNAL = 1


def main() -> None:
    orders = socket.socket(fileno=int(sys.argv[1]))
    for name in IMPORTED:
        importlib.import_module(name)
    secrets.compile_rules()  # as each daemon does that loads: 0.4 s
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "forks would lack the other threads"
    gc.collect()
    gc.freeze()  # collecting in a fork then copies nothing that all share
    serve(orders)
    from orchestrator.cli import main as lore

    sys.exit(lore())  # in a fork: with all that an interpreter does at its end


def serve(orders: socket.socket) -> None:
    """Returns in each fork; ends with the process that orders."""
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
            become(order, files)
            for ours in (orders, *(reports for _, reports in running.values())):
                ours.close()
            for pidfd in running:
                os.close(pidfd)
            return
        for file in files[:3]:
            os.close(file)
        reports = socket.socket(fileno=files[3])
        reports.sendall(INT.pack(pid))
        running[os.pidfd_open(pid)] = pid, reports


def report_end(pidfd: int, pid: int, reports: socket.socket) -> None:
    os.close(pidfd)
    with reports, suppress(BrokenPipeError):  # who ordered it may have left
        reports.sendall(INT.pack(os.waitpid(pid, 0)[1]))


def received(orders: socket.socket) -> tuple[bytes, list[int]]:
    """The next order and its four files."""
    head, files, _, _ = socket.recv_fds(orders, INT.size, 4)
    if not head:
        os._exit(0)
    (length,), order = INT.unpack(head), b""
    while len(order) < length:
        order += orders.recv(length - len(order))
    return order, files


def become(order: bytes, files: list[int]) -> None:
    """The process that was ordered, with what an exec would have left it."""
    arguments, environment, folder, session = literal_eval(order.decode())
    if session:
        os.setsid()
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    for standard, file in enumerate(files[:3]):
        os.dup2(file, standard)
    for file in files:
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv[:] = arguments


if __name__ == "__main__":
    main()
