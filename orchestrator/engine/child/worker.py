"""The child process: loads the model, then runs the loop until the daemon closes the socket.

    python -m orchestrator.engine.child.worker FD

    daemon ══ socket ══▶ frontend ─▶ inbox ─▶ loop ══ socket ══▶ daemon
                         │             ▲
                         │             └─ samplers ─▶ compiles JSON schemas beside a running step
                         └─ tokenises and reads beside a running step

The first message is the EngineSpec. The frontend is a thread of its own and never touches the loop's state; so is the one
that makes samplers.

The `Watchdog` ends the process when a load, a step, what is done beside steps or a batch of texts takes ten times its
prediction, and at least 30 s; time in which it waited for a core does not count. A thread stuck in llama.cpp cannot be
stopped any other way; the supervisor starts the next process. Each thread is watched by what it does itself:

    watch(20 s) ├─ beside steps ─┤ watch(0.3 s) ├─ a step ─┤─ the first one's time begins anew ─┤       the loop's thread
                             watch(61 s) ├─ a batch ─┤─ nothing ─┤                                    a lane's thread
"""

import ctypes
import gc
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from orchestrator.engine.backend import Backend, BackendError
from orchestrator.engine.checkpoints.coding import coding_of
from orchestrator.engine.checkpoints.file import CheckpointWritten, folder_of, usable
from orchestrator.engine.checkpoints.store import CheckpointStore
from orchestrator.engine.child.samplers import SchemaSamplers
from orchestrator.engine.child.thread_count import CoreTimes, ThreadCount, core_times, core_waits
from orchestrator.engine.costs import CostFile, cost_path
from orchestrator.engine.embedding.lanes import Lanes
from orchestrator.engine.embedding.port import EmbeddingBackend, ToEmbedder
from orchestrator.engine.llama.loading import STILL_SECONDS, LoadProgress, reported
from orchestrator.engine.messages import (
    OVERRUN_FACTOR,
    OVERRUN_LEAST_SECONDS,
    OVERRUN_STATUS,
    Cancel,
    Completion,
    Decode,
    DecodedText,
    Encode,
    Encoded,
    EngineReady,
    FromChild,
    InferenceJob,
    LoadFailed,
    Prepare,
    Shutdown,
    bytes_to_ids,
    ids_to_bytes,
)
from orchestrator.engine.model import EmbeddingSpec, EngineSpec
from orchestrator.engine.scheduler.loop import Loop
from orchestrator.engine.scheduler.planner import Limits
from orchestrator.engine.transport import Wire

SNAPSHOT_SECONDS = 0.1
IDLE_SECONDS = 0.5  # without a message, before the audit: a question that follows at once does not wait for it
LONG_TEXTS = 100_000  # characters of one call; fewer are tokenised in hundredths of a second
SWITCH_SECONDS = 0.0005  # that a thread keeps the interpreter: Python's own 5 ms are 40 for a step with its calls
_SET_PARENT_DEATH_SIGNAL = 1
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, in glibc's malloc.h
_LARGE = 4 << 20  # bytes; above a row of logits of the largest vocabularies, which is copied for each token

log = logging.getLogger("lorekeep.engine")


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the daemon's to answer
    sys.setswitchinterval(SWITCH_SECONDS)
    die_with_parent()
    give_back_at_once()
    threading.excepthook = thread_failed
    wire = Wire(socket.socket(fileno=int(sys.argv[1])))
    messages = wire.receive()
    spec = next(messages, None)
    if not isinstance(spec, EngineSpec):
        return
    if spec.remote is not None:
        from orchestrator.engine.remote.worker import run  # no llama.cpp is loaded with it

        run(spec, wire, messages)
        return
    watchdog = Watchdog(time.monotonic, overrun)
    watchdog.start()
    if (worker := begun(spec, wire, watchdog)) is not None:
        gc.freeze()  # no step waits while what was imported and loaded is looked through again
        worker.run()


def begun(spec: EngineSpec, wire: Wire, watchdog: "Watchdog") -> "Worker | None":
    """Loads the model and reads the index of checkpoints, and reports progress meanwhile. None, with the reason sent, where
    the model cannot be loaded."""
    progress, cores = LoadProgress(), core_times()
    with reported(progress, wire.send):
        try:
            with watchdog.watch("the load of the model", STILL_SECONDS, progress.signs):
                backend = load(spec, progress)
        except (BackendError, OSError) as error:
            wire.send([LoadFailed(str(error))])
            return None
        return Worker(backend, spec, wire, watchdog, cores)


def load(spec: EngineSpec, progress: LoadProgress) -> Backend:
    from orchestrator.engine.llama.backend import LlamaBackend

    return LlamaBackend(spec, progress)


def load_embedding(spec: EmbeddingSpec, watchdog: "Watchdog") -> EmbeddingBackend:
    with watchdog.watch("the load of the embedding model", STILL_SECONDS, LoadProgress().signs):
        return embedding_of(spec)


def embedding_of(spec: EmbeddingSpec) -> EmbeddingBackend:
    from orchestrator.engine.embedding.llama import LlamaEmbedding

    return LlamaEmbedding(spec)


def store_of(backend: Backend, spec: EngineSpec, written: Callable[[], None]) -> CheckpointStore | None:
    """Checkpoints under the model's own name; None where nothing may or can be kept. `written`: see `CheckpointStore`."""
    folder = folder_of(Path(spec.cache_folder), backend.info.fingerprint)
    if not spec.cache_folder or not spec.disk_budget or not usable(folder):
        return None
    return CheckpointStore(backend.info.fingerprint, folder, spec.disk_budget, written, coding_of(spec.key))


def die_with_parent() -> None:
    """A daemon that is killed must not leave a child that holds its GPU."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def give_back_at_once() -> None:
    """From now on a large block is returned to the kernel as soon as it is freed.

    Left alone, glibc puts blocks of up to 32 MiB into its heap once such were freed. Contexts of small pools came and went
    there, and left 60 MB of holes, which no limit counts. No effect without `mallopt` in the C library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE)
        mallopt(_TRIM_THRESHOLD, 2 * _LARGE)  # which no longer follows the other by itself: rows of logits come and go


class Worker:
    """Threads around one loop: this one computes, the frontend reads, two embed where a model for it is configured.

    `cores`: before the model was loaded.
    """

    def __init__(self, backend: Backend, spec: EngineSpec, wire: Wire, watchdog: "Watchdog", cores: CoreTimes) -> None:
        self._wire = wire
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._watchdog = watchdog
        self._loop = Loop(
            backend,
            spec.sequences,
            Limits(spec.batch, drafts=spec.drafts),
            self._tell,
            time.monotonic,
            store_of(backend, spec, partial(self._inbox.put, CheckpointWritten())),
            partial(watchdog.watch, "a step"),
        )
        self._costs = CostFile(self._loop.costs, cost_path(backend.info, spec))
        embedding = partial(load_embedding, spec.embedding, watchdog) if spec.embedding else None
        self._lanes = Lanes(embedding, wire.send, partial(watchdog.watch, "the embedding model"))
        self._closing = False
        self._thread_count = ThreadCount(backend.threads, partial(setattr, backend, "threads"), cores)
        self._threads_are_set = spec.threads > 0
        apart = self._thread_count.apart
        self._samplers = SchemaSamplers(backend, self._inbox.put, partial(watchdog.watch, "a JSON schema"), apart)
        self._frontend = Frontend(backend, wire, self._forward, self._samplers, apart)
        self._published = 0.0

    def run(self) -> None:
        self._wire.send([EngineReady(self._loop.backend.info)])
        threading.Thread(target=self._serve, name="frontend", daemon=True).start()
        if not self._threads_are_set:
            self._thread_count.look()  # the first step is somebody's who waits for the model
            self._thread_count.start()
        self._publish()
        while True:
            for message in self._arrived():
                if isinstance(message, Shutdown):
                    self._loop.close()
                    self._costs.save()
                    if not (self._lanes.close() and self._samplers.close()):
                        leave(0)  # a thread inside a library would compute on while that is taken down
                    return
                with self._watched():
                    self._loop.handle(message)
            with self._watched():
                self._loop.round()
            self._publish()

    def _serve(self) -> None:
        # The daemon is gone, or the frontend met a fault of ours. The loop may be inside llama.cpp: the process ends here.
        status = 70
        try:
            self._frontend.serve()
            status = 0
        except Exception:
            log.critical("the engine's frontend failed", exc_info=True)
        finally:
            if not self._closing:
                leave(status)

    def _watched(self) -> AbstractContextManager[None]:
        """For all but steps, which are watched by their own predictions."""
        return self._watchdog.watch("restores and evictions", self._loop.pools.carrying_s())

    def _forward(self, message: object) -> None:
        if isinstance(message, ToEmbedder):
            self._lanes.take(message)
            return
        # Noted here and not in the loop: the socket's end, which follows, must not cut off what is being written.
        self._closing = self._closing or isinstance(message, Shutdown)
        self._inbox.put(message)

    def _arrived(self) -> Iterable[object]:
        """All messages that are there; with nothing to compute or to write, waits for one."""
        if not self._loop.busy() and not self._loop.has_idle_work():
            try:
                yield self._inbox.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._loop.audit():
                    self._publish()
                self._costs.save_changes()
                self._samplers.begin_in_advance()
                yield self._inbox.get()
        while not self._inbox.empty():
            yield self._inbox.get()

    def _tell(self, messages: list[FromChild]) -> None:
        """An end comes behind the picture that has it: who is answered and looks at once is not told that it runs still."""
        ends = any(isinstance(message, Completion) for message in messages)
        self._wire.send([self._loop.snapshot(), *messages] if ends else messages)

    def _publish(self) -> None:
        now = time.monotonic()
        if not self._loop.busy() or now - self._published >= SNAPSHOT_SECONDS:
            self._published = now
            self._wire.send([self._loop.snapshot()])


class Frontend:
    """Answers what needs no loop; `forward` takes every other message, and `samplers` the constrained jobs too.

    Long texts are tokenised in a thread of their own, inside `apart`: no question waits for a megabyte of somebody else's.
    """

    def __init__(
        self,
        backend: Backend,
        wire: Wire,
        forward: Callable[[object], None],
        samplers: SchemaSamplers,
        apart: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._long: queue.SimpleQueue[Encode | None] = queue.SimpleQueue()
        self._backend = backend
        self._wire = wire
        self._forward = forward
        self._samplers = samplers
        self._apart = apart

    def serve(self) -> None:
        """Runs until the daemon closes its end."""
        threading.Thread(target=self._encode_long, name="long texts", daemon=True).start()
        for message in self._wire.receive():
            if isinstance(message, Encode) and sum(map(len, message.texts)) > LONG_TEXTS:
                self._long.put(message)
                continue
            if (answer := self._answer(message)) is not None:
                self._wire.send([answer])
                continue
            if isinstance(message, Prepare):
                self._samplers.prepare(message.sampling)
                continue
            self._forward(message)
            if isinstance(message, InferenceJob) and message.sampling.constrained:
                self._samplers.take(message)
            elif isinstance(message, Cancel):
                self._samplers.call_off(message.ticket)
        self._long.put(None)

    def _encode_long(self) -> None:
        for message in iter(self._long.get, None):
            with self._apart():
                answer = self._answer(message)
            self._wire.send([answer])

    def _answer(self, message: object) -> object | None:
        if isinstance(message, Encode):
            encoded = self._backend.encode(message.texts, control=message.control)
            return Encoded(message.call, tuple(ids_to_bytes(ids) for ids in encoded))
        if isinstance(message, Decode):
            text = self._backend.pieces(bytes_to_ids(message.ids)).decode("utf-8", "replace")
            return DecodedText(message.call, text)
        return None


@dataclass
class Watched:
    """What a thread does. Times in seconds of the clock; `sign` is the last value of `signs`."""

    what: str
    limit: float
    signs: Callable[[], object]
    began: float
    sign: object


class Watchdog:
    """`overrun` is called with what is done and the seconds since its last sign of life.

    Seconds in which a thread of this process waited for a core do not count: on a machine that others keep busy a step
    of 3 s took more than 30, and the process that is started for one that ends meets the same machine. `waits` are these
    seconds so far, by thread.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        overrun: Callable[[str, float], None],
        waits: Callable[[], Mapping[int, float]] = core_waits,
    ) -> None:
        self._clock = clock
        self._overrun = overrun
        self._waits = waits
        self._waited = waits()
        self._watched: dict[int, Watched] = {}  # by thread

    def start(self) -> None:
        threading.Thread(target=self._look_on, name="watchdog", daemon=True).start()

    @contextmanager
    def watch(self, what: str, predicted: float, signs: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Watches what this thread does inside. `predicted` is in seconds, infinite where nobody can say. May be nested: an
        inner end is a sign of life, and so is a change of `signs`, which another thread asks."""
        thread, limit = threading.get_ident(), max(OVERRUN_LEAST_SECONDS, OVERRUN_FACTOR * predicted)
        outer = self._watched.get(thread)
        self._watched[thread] = Watched(what, limit, signs, self._clock(), signs())
        try:
            yield
        finally:
            if outer is None:
                del self._watched[thread]
            else:
                outer.began = self._clock()
                self._watched[thread] = outer

    def look(self) -> None:
        """Looks once at all threads."""
        now, before, self._waited = self._clock(), self._waited, self._waits()
        waited = max((seconds - before.get(thread, seconds) for thread, seconds in self._waited.items()), default=0.0)
        for watched in tuple(self._watched.values()):
            watched.began = min(now, watched.began + waited)
            sign = watched.signs()
            if sign != watched.sign:
                watched.sign, watched.began = sign, now
            elif now - watched.began > watched.limit:
                self._overrun(watched.what, now - watched.began)

    def _look_on(self) -> None:
        waiting = threading.Event()
        while not waiting.wait(1.0):
            self.look()


def leave(status: int) -> NoReturn:
    logging.shutdown()
    os._exit(status)


def thread_failed(fault: threading.ExceptHookArgs) -> None:
    """A fault of ours in one thread: nobody would answer what it had taken, so the process ends."""
    log.critical("a thread of the engine failed", exc_info=fault.exc_value)
    leave(70)


def overrun(what: str, seconds: float) -> None:
    log.critical("%s has not come back for %.0f s, which is far too long: this process ends for another", what, seconds)
    os._exit(OVERRUN_STATUS)


if __name__ == "__main__":
    main()
