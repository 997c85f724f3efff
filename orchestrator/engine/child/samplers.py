"""Samplers of constrained answers, made beside the steps."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from orchestrator.engine.backend import Backend, Sampler, SamplerMade, SchemaRefused, Watch
from orchestrator.engine.calling import ToolRules
from orchestrator.engine.messages import InferenceJob, Sampling

OLDEST_EACH = 4  # schemas, one is that which has waited longest: a stream of small ones holds up none for ever
NOBODY = 0  # in the place of a ticket: nobody waits for what is compiled in advance
COMPILE_SECONDS = 3.0  # of a schema, with the tokenizer for the first; by the watchdog's limit 30
PREPARE_SECONDS = 30.0  # in advance, while everything starts: 4 s of a core took 30 beside ten other processes
BUSY_SECONDS = 30.0  # after which it is made beside answers

log = logging.getLogger("lorekeep.engine")


class SchemaSamplers:
    """Makes the samplers of constrained jobs, in a thread beside the loop: `post` takes them as they are made.

    One at a time, because the steps miss each core that compiles: it is theirs no more inside `apart`. A small schema goes
    before larger ones, but each fourth one is the one that has waited longest. One that is compiled already waits for none.
    Nor do answers with the calls that are to be prepared, which takes seconds for a large vocabulary: those are not bound.
    """

    def __init__(
        self,
        backend: Backend,
        post: Callable[[object], None],
        watch: Watch,
        apart: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._backend = backend
        self._post = post
        self._watch = watch
        self._apart = apart
        self._came: queue.SimpleQueue[None] = queue.SimpleQueue()  # one for each job taken
        self._wanted: dict[int, Sampling] = {}  # by ticket, in the order in which they came
        self._compiles = False
        self._preparing: ToolRules | None = None
        self._in_advance: Sampling | None = None  # to be begun
        self._told = 0.0  # when that was
        self._starting = threading.Lock()  # the frontend and the loop may both be the first
        self._thread = threading.Thread(target=self._run, name="schemas", daemon=True)

    def take(self, job: InferenceJob) -> None:
        """Returns at once."""
        if self._backend.compiled(job.sampling):
            self._post(SamplerMade(job.ticket, self._made(job.sampling)))
        elif job.sampling == replace(job.sampling, schema="", calls=self._preparing):
            self._post(SamplerMade(job.ticket, self._backend.unbound(job.sampling)))
        else:
            self._want(job.ticket, job.sampling)
        if time.monotonic() - self._told > BUSY_SECONDS:
            self.begin_in_advance()

    def prepare(self, sampling: Sampling) -> None:
        """What `begin_in_advance` compiles, and with it whatever the first one of a vocabulary takes. Returns at once."""
        self._in_advance, self._preparing, self._told = sampling, sampling.calls, time.monotonic()

    def begin_in_advance(self) -> None:
        """Where nobody asks: llguidance keeps Python's lock while it takes in a vocabulary, 1.6 s for one of 262,000 words.
        No step is begun meanwhile."""
        if (sampling := self._in_advance) is not None:
            self._in_advance = None
            self._want(NOBODY, sampling)

    def _want(self, ticket: int, sampling: Sampling) -> None:
        self._wanted[ticket] = sampling
        self._came.put(None)
        with self._starting:
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
                with self._apart():
                    sampler = self._made(sampling, COMPILE_SECONDS if ticket != NOBODY else PREPARE_SECONDS)
                self._give(ticket, sampler)
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
