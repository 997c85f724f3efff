"""One child process and the socket to it, seen from the daemon's event loop."""

import asyncio
import errno
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from orchestrator.engine.messages import HEADER, OVERRUN_STATUS, pack, unpack
from orchestrator.engine.model import EngineSpec

GRACE_SECONDS = 30.0  # what stands is written before the child goes
NO_THREAD = "can't start new thread"  # Python's words, which has no exception of its own for it


def environment_of(spec: EngineSpec) -> dict[str, str]:
    """What a child computes this model in: ours, and what its libraries read as they are loaded."""
    tunables = ("glibc.malloc.hugetlb=1", os.environ.get("GLIBC_TUNABLES", ""))  # the last word is the user's
    return {
        **os.environ,
        "GGML_NO_BACKTRACE": "1",  # an abort would wait for a debugger
        # Large pages: attention over a deep floor is 3 to 6 % quicker.
        "GLIBC_TUNABLES": ":".join(filter(None, tunables)),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # indices are then those that NVML counts by
        **({"CUDA_VISIBLE_DEVICES": spec.gpu} if spec.gpu else {}),
    }


class ChildProcess:
    """Started by `start`; `messages` ends when the child does, after which `stop` tells how that came."""

    def __init__(self, process: asyncio.subprocess.Process, connection: socket.socket) -> None:
        self._process = process
        self._connection = connection
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    @classmethod
    async def start(cls, spec: EngineSpec, environment: Mapping[str, str] | None = None) -> "ChildProcess":
        """Raises OSError where there can be no process, and leaves nothing behind."""
        try:
            return await cls._start(spec, environment)
        except RuntimeError as error:  # asyncio waits for a child's end in a thread, and may get none
            if str(error) != NO_THREAD:
                raise
            raise BlockingIOError(errno.EAGAIN, str(error)) from error

    @classmethod
    async def _start(cls, spec: EngineSpec, environment: Mapping[str, str] | None) -> "ChildProcess":
        ours, theirs = socket.socketpair()
        with ExitStack() as unless_started:
            unless_started.callback(ours.close)  # which also ends a child that is there already
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-P",  # nothing is imported from the folder somebody was in: it may be a codebase they do not trust
                    "-m",
                    "orchestrator.engine.child.worker",
                    str(theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    stdin=asyncio.subprocess.DEVNULL,
                    env={**environment_of(spec), **(environment or {})},
                )
            child = cls(process, ours)
            child._reader, child._writer = await asyncio.open_connection(sock=ours)
            unless_started.pop_all()
        child.send([spec])
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, messages: Sequence[Any]) -> None:
        """Queues messages; a child that is gone is noticed by `messages`, not here."""
        if not self._writer.is_closing():
            self._writer.write(pack(messages))

    async def messages(self) -> AsyncIterator[Any]:
        try:
            while True:
                (size,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
                for message in unpack(await self._reader.readexactly(size)):
                    yield message
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def stop(self) -> str:
        """Closes the socket, which ends the child, and kills it when it does not go; how it ended, in words."""
        self._writer.close()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                code = await self._process.wait()
        except TimeoutError:
            self.kill()
            code = await self._process.wait()
        return ended(code)


def ended(code: int) -> str:
    """How a child came to its end, in words."""
    if code < 0:
        return f"killed by signal {-code}"
    if code == OVERRUN_STATUS:
        return f"exit status {code}: something did not come back from llama.cpp, and its watchdog ended it"
    return f"exit status {code}"
