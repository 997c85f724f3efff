"""Keeps one child process alive: starts it, notices its end, starts the next with backoff, until the model proves broken.

    STOPPED ──▶ STARTING ──ready──▶ READY
                  │  ▲ │                │
      load failed │  │ └──── ended ──┬──┘
                  │  │ after a pause ▼
                  │  └──────────── BACKOFF
                  ▼                  │ five ends in a minute of service, or a fault of ours
                BROKEN ◀─────────────┘

    any of them ──▶ PAUSED ──▶ STARTING     nothing is sent any more; what the child has begun it may end, then it goes

A machine that has no process to spare says nothing of the model: that is waited for, however long it takes. Tickets are
known only as numbers that the owner names when a child ends.
"""

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from itertools import count
from typing import Any

from orchestrator.engine.messages import OVERRUN_STATUS, EngineReady, LoadFailed, ModelLoading, Shutdown
from orchestrator.engine.model import EngineSpec, ModelInfo
from orchestrator.engine.transport import HEADER, pack, unpack

log = logging.getLogger("lorekeep.engine")

MOST_ENDS = 5
WITHIN_SECONDS = 60.0
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
GRACE_SECONDS = 30.0  # computed cells are written before the child goes
WORKER = ("-m", "orchestrator.engine.child.worker")
NO_THREAD = "can't start new thread"  # Python's words, which has no exception of its own for it
# Of a process that cannot be started: a file that is not there, or may not be run. All else is lacked for a while.
LASTING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOEXEC})
MOST_SILENCE = 600.0  # seconds, of a child that loads: it speaks every 15, but not before its libraries have been read


class ChildState(StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    BACKOFF = "backoff"
    BROKEN = "broken"
    PAUSED = "paused"


ALLOWED = {
    ChildState.STOPPED: {ChildState.STARTING, ChildState.PAUSED},
    ChildState.STARTING: {
        ChildState.READY,
        ChildState.BACKOFF,
        ChildState.BROKEN,
        ChildState.STOPPED,
        ChildState.PAUSED,
    },
    ChildState.READY: {ChildState.BACKOFF, ChildState.STOPPED, ChildState.PAUSED},
    ChildState.BACKOFF: {ChildState.STARTING, ChildState.BROKEN, ChildState.STOPPED, ChildState.PAUSED},
    ChildState.BROKEN: {ChildState.STARTING, ChildState.STOPPED, ChildState.PAUSED},
    ChildState.PAUSED: {ChildState.STARTING, ChildState.STOPPED},
}


class EngineUnavailable(Exception):
    """The engine cannot answer now: `broken` when it will not by itself."""

    def __init__(self, message: str, *, broken: bool = False) -> None:
        super().__init__(message)
        self.broken = broken


class Supervisor:
    """`hear` gets every message of a child that is ready, `up` is called when one is, `broken` when none will be again.

    `born` is called when there is a process. `ended` is told a child's end and returns the tickets that ran in it.
    """

    def __init__(
        self,
        spec: EngineSpec,
        *,
        hear: Callable[[Any], None],
        born: Callable[[], None],
        up: Callable[[], None],
        ended: Callable[[str], Sequence[int]],
        broken: Callable[[str], None],
    ) -> None:
        self.spec = spec
        self.state = ChildState.STOPPED
        self.reason = ""
        self.loaded = 0.0  # of the model, from 0 to 1
        self.restarts = 0
        self.info: ModelInfo | None = None
        self._hear = hear
        self._born = born
        self._up = up
        self._ended = ended
        self._broken = broken
        self._child: ChildProcess | None = None
        self._loaded_child = False
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._ends: list[float] = []  # in seconds of `_served`
        self._served = 0.0  # seconds that children were ready
        self._ready_since = 0.0
        self._suspects: set[int] = set()

    # -- what the owner asks for

    def start(self, paused: str = "") -> None:
        """Also after a pause. With a reason it begins paused."""
        assert self._task is None
        if paused:
            self.state, self.reason = ChildState.PAUSED, paused
            return
        self.state, self.reason = ChildState.STARTING, loading_words(0.0, again=self.info is not None)
        self._task = asyncio.create_task(self._supervise(), name="engine supervisor")

    async def pause(self, why: str, drained: Callable[[], Awaitable[None]]) -> None:
        """Returns when there is no child. One that is ready goes on until `drained` returns, then it writes its cells."""
        was_ready = self.state is ChildState.READY
        await self._enter(ChildState.PAUSED, why)
        if was_ready:
            await drained()
        await self._end_child()
        self._ends.clear()

    async def ensure_ready(self) -> ModelInfo:
        """Waits until a child is ready; raises EngineUnavailable when none will be."""
        if self.state is not ChildState.READY:
            async with self._changed:
                await self._changed.wait_for(
                    lambda: self.state in (ChildState.READY, ChildState.BROKEN, ChildState.STOPPED)
                )
        if self.state is not ChildState.READY or self.info is None:
            raise EngineUnavailable(self.reason or "the engine is stopped", broken=self.state is ChildState.BROKEN)
        return self.info

    def send(self, messages: Sequence[Any]) -> bool:
        """False when no child is ready to take them."""
        if self.state is not ChildState.READY or self._child is None:
            return False
        self._child.send(messages)
        return True

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def kill(self) -> None:
        """For a child that no longer answers: the supervisor starts the next."""
        if self._child:
            self._child.kill()

    async def stop(self) -> None:
        await self._end_child()
        if self.state is not ChildState.STOPPED:
            await self._enter(ChildState.STOPPED, "the engine is stopped")

    async def _end_child(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._child:
            if self._loaded_child:
                self._child.send([Shutdown()])
            else:
                self._child.kill()  # one that loads hears nothing for minutes, and has nothing to write
            await self._child.stop()
            self._left()

    def _left(self) -> None:
        self._child, self._loaded_child, self.loaded = None, False, 0.0

    # -- one child after the other

    async def _supervise(self) -> None:
        try:
            await self._keep_one()
        except Exception as fault:  # of ours: nobody would look after a child, or tell those who wait for one
            log.critical("the engine's supervisor failed", exc_info=True)
            self.kill()
            if self.state is ChildState.READY:
                await self._enter(ChildState.BACKOFF, "the engine's process is not looked after")
            if self.state is not ChildState.BROKEN:
                await self._give_up(f"its supervisor failed ({type(fault).__name__}: {fault}); start the daemon again")

    async def _keep_one(self) -> None:
        while True:
            failure, how = await self._lived()
            if self.state is ChildState.PAUSED:  # it has ended before it was asked to
                self._left()
                self._ended(how)
                return
            if failure and self.info is None:
                await self._give_up(failure)
                return
            # A model that was loaded before may be loaded again: its memory may be taken for a moment.
            if not await self._after(f"its model cannot be loaded: {failure}" if failure else how):
                return
            await self._enter(ChildState.STARTING, loading_words(0.0, again=True))

    async def _lived(self) -> tuple[str, str]:
        """One child's life: why its model could not be loaded, or nothing, and how it ended."""
        try:
            self._child = await self._started()
            self._born()
        except OSError as error:
            return "", f"its process cannot be started: {error}"
        try:
            failure = await self._listen(self._child)
        except TimeoutError:  # also its watchdog stands still, as when the process is stopped
            self._child.kill()
            how = await self._child.stop()
            return "", f"it said nothing for {MOST_SILENCE:.0f} s while its model was loading, {how}"
        except Exception as fault:  # of ours, or a child of other code: who waits for its answers would not get them
            log.critical("what the engine's process says cannot be taken", exc_info=True)
            await self._child.stop()
            return "", f"what it said could not be taken: {type(fault).__name__}: {fault}"
        return failure, await self._child.stop()

    async def _started(self) -> "ChildProcess":
        """Waits while the machine has no process, memory or descriptor to spare. Raises OSError where that is no help."""
        loading = self.reason
        for times in count(1):
            try:
                child = await ChildProcess.start(replace(self.spec, known=self.info))
                break
            except OSError as error:
                if is_lasting(error):
                    raise
                await self._spare(times, f"the engine's process cannot be started now: {error}")
        self.reason = loading
        return child

    async def _spare(self, times: int, why: str) -> None:
        """A pause, in which the machine may come to what it lacked so many times."""
        if times == 1:
            log.warning("%s; it is tried again until it can be", why)
        await self._enter(ChildState.BACKOFF, f"{why}; it is tried again every few seconds")
        await asyncio.sleep(pause_after(times))
        await self._enter(ChildState.STARTING, self.reason)

    async def _listen(self, child: "ChildProcess") -> str:
        """Passes messages on until the child ends; returns why its model could not be loaded, or nothing.

        Raises TimeoutError when it says nothing for too long while it loads; later its owner asks it.
        """
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(MOST_SILENCE) as silence:
            async for message in child.messages():
                if isinstance(message, ModelLoading):
                    self._progressed(message)
                    silence.reschedule(clock() + MOST_SILENCE)
                elif isinstance(message, EngineReady):
                    silence.reschedule(None)
                    await self._ready(message.info)
                elif isinstance(message, LoadFailed):
                    return message.reason
                else:
                    self._hear(message)
        return ""

    async def _ready(self, info: ModelInfo) -> None:
        self.info, self._ready_since, self._loaded_child = info, time.monotonic(), True
        await self._enter(ChildState.READY, "")
        self._up()  # before anyone who waited can run: nothing is awaited in between

    def _progressed(self, loading: ModelLoading) -> None:
        again = self.restarts > 0 or self.info is not None
        self.loaded, self.reason = loading.fraction, loading.why or loading_words(loading.fraction, again=again)

    async def _after(self, how: str) -> bool:
        self._left()
        was_ready = self.state is ChildState.READY
        self.restarts += 1
        # The state changes first: whoever is told of the end must not reach for the dead child.
        await self._enter(ChildState.BACKOFF, f"the engine ended ({how}) and is starting again")
        running = self._ended(how) if was_ready else ()  # no ticket is in a child that is still loading
        log.warning("the engine's process ended: %s, %d tickets were running", how, len(running))
        if was_ready:
            self._served += time.monotonic() - self._ready_since
        if not was_ready or is_model_fault(running, tuple(self._suspects)):
            self._ends.append(self._served)
        self._suspects.update(running)
        pause = after_end(self._ends, self._served)
        if pause is None:
            times = f"{MOST_ENDS} times within {WITHIN_SECONDS:.0f} s of service"
            await self._give_up(f"the engine ended {times} (last: {how}); see its log, or choose another model")
            return False
        await asyncio.sleep(pause)
        return True

    async def _give_up(self, why: str) -> None:
        self._left()
        await self._enter(ChildState.BROKEN, why)
        self._broken(why)

    async def _enter(self, state: ChildState, reason: str) -> None:
        assert state in ALLOWED[self.state], f"engine: {self.state} → {state}"
        async with self._changed:
            self.state, self.reason = state, reason
            self._changed.notify_all()


# -- what to do when the child ends; pure: times are handed in


def after_end(ends: Sequence[float], now: float) -> float | None:
    """Seconds until the next child is started; None when the model is broken and a further start would only loop.

    `ends`: when children ended that counted against the model, this one included, in seconds that they served. What
    loading takes is not counted: of a large model five ends would never be within a minute.
    """
    recent = [end for end in ends if now - end < WITHIN_SECONDS]
    return None if len(recent) >= MOST_ENDS else pause_after(len(recent))


def pause_after(times: int) -> float:
    """Seconds before the next start, after so many that came to nothing."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 3.0 ** min(max(0, times - 1), 30)))


def is_lasting(refusal: OSError) -> bool:
    """Whether a process cannot be started however often that is tried, and not only for now."""
    return refusal.errno in LASTING


def loading_words(fraction: float, *, again: bool) -> str:
    """Why nobody is answered yet. What follows the weights takes a moment too, so it never says that all is loaded."""
    words = "the model is loading again" if again else "the model is loading"
    return f"{words}, {min(99, percent)} %" if (percent := int(100 * fraction)) else words


def is_model_fault(running: Sequence[int], seen_before: Sequence[int]) -> bool:
    """Whether an end counts against the model: not when a ticket ran that was there at an earlier one."""
    return not set(running) & set(seen_before)


# -- one child, and the socket to it


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
    """Started by `start`; `messages` ends when the child does, after which `stop` returns how it ended."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, spec: EngineSpec, environment: Mapping[str, str] | None = None) -> "ChildProcess":
        """Raises OSError where there can be no process, and leaves nothing behind."""
        ours, theirs = socket.socketpair()
        with ExitStack() as unless_started, theirs:
            unless_started.callback(ours.close)  # which also ends a child that is there already
            # -P: nothing is imported from the folder somebody was in, which may be a codebase they do not trust.
            command = (sys.executable, "-P", *WORKER, str(theirs.fileno()))
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    pass_fds=(theirs.fileno(),),
                    stdin=asyncio.subprocess.DEVNULL,
                    env={**environment_of(spec), **(environment or {})},
                )
            except RuntimeError as error:  # asyncio waits for a child's end in a thread, and may get none
                if str(error) != NO_THREAD:
                    raise
                raise BlockingIOError(errno.EAGAIN, str(error)) from error
            child = cls(process, *await asyncio.open_connection(sock=ours))
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
    """How a child ended, in words."""
    if code == -signal.SIGILL:
        return "killed by SIGILL: llama.cpp has instructions that this CPU refuses; compile it again (docs/install.md)"
    if code == -signal.SIGKILL:
        return "killed by signal 9, by somebody or by the kernel for want of memory"
    if code < 0:
        return f"killed by signal {-code}"
    if code == OVERRUN_STATUS:
        return f"exit status {code}: something did not come back from llama.cpp, and its watchdog ended it"
    return f"exit status {code}"
