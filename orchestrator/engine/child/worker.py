"""The child process: loads the model, then runs the loop until the daemon closes the socket.

    python -m orchestrator.engine.child.worker FD

    daemon ══ socket ══▶ frontend ─▶ inbox ─▶ loop ══ socket ══▶ daemon
                         │             ▲
                         │             └─ samplers ─▶ compiles JSON schemas beside a running step
                         └─ tokenises and reads beside a running step

The first message is the EngineSpec. The frontend is a thread of its own and never touches the loop's state; so is the one
that makes samplers.

The `Watchdog` ends the process when a load, a step, what is done beside steps or a batch of texts takes ten times its
prediction, and at least 30 s. A thread stuck in llama.cpp cannot be stopped any other way; the supervisor starts the next
process. Each thread is watched by what it does itself:

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
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import psutil

from orchestrator.engine.backend import Backend, BackendError, Sampler, SamplerMade, SchemaRefused, Watch
from orchestrator.engine.calling import ToolRules
from orchestrator.engine.checkpoints.coding import coding_of
from orchestrator.engine.checkpoints.file import CheckpointWritten, folder_of, usable
from orchestrator.engine.checkpoints.store import CheckpointStore
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
    Sampling,
    Shutdown,
    Wire,
    bytes_to_ids,
    ids_to_bytes,
)
from orchestrator.engine.model import EmbeddingSpec, EngineSpec
from orchestrator.engine.scheduler.loop import Loop
from orchestrator.engine.scheduler.planner import Limits

SNAPSHOT_SECONDS = 0.1
IDLE_SECONDS = 0.5  # without a message, before the audit: a question that follows at once does not wait for it
OLDEST_EACH = 4  # schemas, one is that which has waited longest: a stream of small ones holds up none for ever
NOBODY = 0  # in the place of a ticket: nobody waits for what is compiled in advance
COMPILE_SECONDS = 3.0  # of a schema, with the tokenizer for the first; by the watchdog's limit 30
PREPARE_SECONDS = 30.0  # in advance, while everything starts: 4 s of a core took 30 beside ten other processes
LONG_TEXTS = 100_000  # characters of one call; fewer are tokenised in hundredths of a second
SWITCH_SECONDS = 0.0005  # that a thread keeps the interpreter: Python's own 5 ms are 40 for a step with its calls
CORE_SECONDS = 1.0  # between looks at the cores
LEAST_CORE_SECONDS = 0.2  # that a look must be about: the kernel counts in hundredths
_SET_PARENT_DEATH_SIGNAL = 1

log = logging.getLogger("lorekeep.engine")


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the daemon's to answer
    sys.setswitchinterval(SWITCH_SECONDS)
    die_with_parent()
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
    if spec.model == "fake":
        from orchestrator.engine.fake import FakeBackend

        return FakeBackend()
    from orchestrator.engine.llama.backend import LlamaBackend

    return LlamaBackend(spec, progress)


def load_embedding(spec: EmbeddingSpec, watchdog: "Watchdog") -> EmbeddingBackend:
    with watchdog.watch("the load of the embedding model", STILL_SECONDS, LoadProgress().signs):
        return embedding_of(spec)


def embedding_of(spec: EmbeddingSpec) -> EmbeddingBackend:
    if spec.model == "fake":
        from orchestrator.engine.embedding.fake import FakeEmbedding

        return FakeEmbedding(spec.window)
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


class Worker:
    """Threads around one loop: this one computes, the frontend reads, two embed where a model for it is configured.

    `cores`: before the model was loaded.
    """

    def __init__(
        self, backend: Backend, spec: EngineSpec, wire: Wire, watchdog: "Watchdog", cores: "CoreTimes"
    ) -> None:
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
        self._samplers = SchemaSamplers(backend, self._inbox.put, partial(watchdog.watch, "a JSON schema"))
        self._frontend = Frontend(backend, wire, self._forward, self._samplers)
        self._thread_count = (
            None if spec.threads else ThreadCount(backend.threads, partial(setattr, backend, "threads"), cores)
        )
        self._published = 0.0

    def run(self) -> None:
        self._wire.send([EngineReady(self._loop.backend.info)])
        threading.Thread(target=self._serve, name="frontend", daemon=True).start()
        if self._thread_count is not None:
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

    Long texts are tokenised in a thread of their own: no question waits for a megabyte of somebody else's.
    """

    def __init__(
        self, backend: Backend, wire: Wire, forward: Callable[[object], None], samplers: "SchemaSamplers"
    ) -> None:
        self._long: queue.SimpleQueue[Encode | None] = queue.SimpleQueue()
        self._backend = backend
        self._wire = wire
        self._forward = forward
        self._samplers = samplers

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
            self._wire.send([self._answer(message)])

    def _answer(self, message: object) -> object | None:
        if isinstance(message, Encode):
            encoded = self._backend.encode(message.texts, control=message.control)
            return Encoded(message.call, tuple(ids_to_bytes(ids) for ids in encoded))
        if isinstance(message, Decode):
            text = self._backend.pieces(bytes_to_ids(message.ids)).decode("utf-8", "replace")
            return DecodedText(message.call, text)
        return None


class SchemaSamplers:
    """Makes the samplers of constrained jobs, in a thread beside the loop: `post` takes them as they are made.

    One at a time, because the steps miss each core that compiles; a small schema goes before larger ones,
    but each fourth one is the one that has waited longest. One that is compiled already waits for none. Nor do answers with
    the calls that are being prepared, which takes seconds for a large vocabulary: those are not bound.
    """

    def __init__(self, backend: Backend, post: Callable[[object], None], watch: Watch) -> None:
        self._backend = backend
        self._post = post
        self._watch = watch
        self._came: queue.SimpleQueue[None] = queue.SimpleQueue()  # one for each job taken
        self._wanted: dict[int, Sampling] = {}  # by ticket, in the order in which they came
        self._compiles = False
        self._preparing: ToolRules | None = None
        self._thread = threading.Thread(target=self._run, name="schemas", daemon=True)

    def take(self, job: InferenceJob) -> None:
        """Returns at once."""
        if self._backend.compiled(job.sampling):
            self._post(SamplerMade(job.ticket, self._made(job.sampling)))
        elif job.sampling == replace(job.sampling, schema="", calls=self._preparing):
            self._post(SamplerMade(job.ticket, self._backend.unbound(job.sampling)))
        else:
            self._want(job.ticket, job.sampling)

    def prepare(self, sampling: Sampling) -> None:
        """Compiles it, and so whatever the first one of a vocabulary takes. Returns at once."""
        self._preparing = sampling.calls
        self._want(NOBODY, sampling)

    def _want(self, ticket: int, sampling: Sampling) -> None:
        self._wanted[ticket] = sampling
        self._came.put(None)
        if self._thread.ident is None:
            self._thread.start()

    def call_off(self, ticket: int) -> None:
        self._wanted.pop(ticket, None)

    def close(self) -> bool:
        """Makes no more; False while one is still being made."""
        self._wanted.clear()
        return not self._compiles

    def _run(self) -> None:
        made = 0
        while True:
            self._came.get()
            self._compiles = True  # first: what `close` calls off after this may be made all the same
            if waiting := list(self._wanted.items()):
                made += 1
                oldest, smallest = waiting[0], min(waiting, key=lambda one: one[1].schema_size)
                ticket, sampling = smallest if made % OLDEST_EACH else oldest
                self._wanted.pop(ticket, None)
                self._give(ticket, self._made(sampling, COMPILE_SECONDS if ticket != NOBODY else PREPARE_SECONDS))
            self._compiles = False

    def _give(self, ticket: int, made: Sampler | SchemaRefused) -> None:
        if ticket != NOBODY:
            self._post(SamplerMade(ticket, made))
            return
        self._preparing = None
        if isinstance(made, SchemaRefused):
            log.warning("the model's own tools are not bound: %s", made)
        else:
            made.close()

    def _made(self, sampling: Sampling, seconds: float = COMPILE_SECONDS) -> Sampler | SchemaRefused:
        with self._watch(seconds):
            try:
                return self._backend.sampler(sampling)
            except SchemaRefused as refused:
                return refused


@dataclass
class Watched:
    """What a thread does. Times in seconds of the clock; `sign` is the last value of `signs`."""

    what: str
    limit: float
    signs: Callable[[], object]
    began: float
    sign: object


class Watchdog:
    """`overrun` is called with what is done and the seconds since its last sign of life."""

    def __init__(self, clock: Callable[[], float], overrun: Callable[[str, float], None]) -> None:
        self._clock = clock
        self._overrun = overrun
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
        now = self._clock()
        for watched in tuple(self._watched.values()):
            sign = watched.signs()
            if sign != watched.sign:
                watched.sign, watched.began = sign, now
            elif now - watched.began > watched.limit:
                self._overrun(watched.what, now - watched.began)

    def _look_on(self) -> None:
        waiting = threading.Event()
        while not waiting.wait(1.0):
            self.look()


@dataclass(frozen=True)
class CoreTimes:
    """Seconds since some start: of the clock, that the cores at hand were busy (all together), and of them ours."""

    clock: float
    busy: float
    own: float


class ThreadCount:
    """How many threads compute beside what else ran here `since` the last look; `most` on a quiet machine. `use` gets what
    changes.

    llama.cpp's threads meet many times in a step and spin while they wait: one that another process keeps from its core
    holds up all of them. On two cores beside one busy process two threads took 22 to 86 ms for a token, one thread took 7.
    """

    def __init__(
        self,
        most: int,
        use: Callable[[int], None],
        since: CoreTimes,
        read: Callable[[], CoreTimes] | None = None,
    ) -> None:
        self._most = most
        self._use = use
        self._read = read or core_times
        self._last = since
        self._threads = most

    def start(self) -> None:
        threading.Thread(target=self._watch, name="thread-count", daemon=True).start()

    def look(self) -> None:
        try:
            now, last = self._read(), self._last
        except OSError:
            return  # a machine without a descriptor to spare says nothing now: it is asked again
        if now.clock - last.clock < LEAST_CORE_SECONDS:
            return
        self._last = now
        others = max(0.0, (now.busy - last.busy) - (now.own - last.own)) / (now.clock - last.clock)
        threads = threads_beside(others, len(os.sched_getaffinity(0)), self._most)
        if threads != self._threads:
            self._threads = threads
            self._use(threads)

    def _watch(self) -> None:
        waiting = threading.Event()
        while not waiting.wait(CORE_SECONDS):
            self.look()


def threads_beside(others: float, cores: int, most: int) -> int:
    """`others`: cores that other processes keep busy, on average. A core that is busy for less than half counts as free."""
    return max(1, min(most, int(cores - others + 0.5)))


def core_times() -> CoreTimes:
    every = psutil.cpu_times(percpu=True)
    mine = [every[core] for core in os.sched_getaffinity(0) if core < len(every)]
    busy = sum(core.user + core.nice + core.system + core.irq + core.softirq + core.steal for core in mine)
    return CoreTimes(time.monotonic(), busy, time.process_time())


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
