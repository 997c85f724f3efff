"""The child's embedding work: two threads beside the loop, which it never waits for.

    questions ─▶ lane "query" ──┐                              one model, loaded at the first text,
    chunks    ─▶ lane "fill"  ──┴─▶ contexts of their own      freed when both lanes have rested

The fill runs at a nice value that leaves answers their cores; a thread cannot take its nice value back, so what somebody
waits for has a thread that never gave it up. No cells and no sequences of the pools are touched.
"""

import os
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from orchestrator.engine.backend import BackendError, Watch
from orchestrator.engine.embedding.port import (
    HARMLESS,
    CallOff,
    Embed,
    EmbeddedTexts,
    EmbeddingBackend,
    EmbeddingContext,
    EmbedFailed,
    FromEmbedder,
    Holds,
    TextNotEmbeddable,
    ToEmbedder,
    Unload,
    Vectors,
    batches,
    cut,
    joined,
    normalised,
    pieces,
)

NICE = 10
LATENT_SECONDS = 60.0  # beside the tokens: a nice thread on a busy machine, weights that are paged in again
TOKENS_A_SECOND = 10.0  # by the watchdog's factor it is one, and 8 billion parameters on two old cores are quicker
IDLE_SECONDS = 300.0  # after that the memory is worth more than the load (some hundred ms) at the next text
STOP_SECONDS = 2.0

Post = Callable[[Sequence[FromEmbedder]], None]


class Lanes:
    """`load` gives the model, or raises BackendError; None where none is configured. `post` may be called by any thread,
    `watch` is entered in each around whatever may not come back from the model."""

    def __init__(
        self,
        load: Callable[[], EmbeddingBackend] | None,
        post: Post,
        watch: Watch = nullcontext,
        idle: float = IDLE_SECONDS,
    ) -> None:
        self._post = post
        self._wanted: set[int] = set()
        self._lanes: dict[bool, Lane] = {}  # by whether it works in the background
        if load is not None:
            shared = Shared(load, post)
            self._lanes = {at: Lane(shared, post, self._wanted, watch, NICE if at else 0, idle) for at in (False, True)}

    def take(self, message: ToEmbedder) -> None:
        """Returns at once."""
        if isinstance(message, CallOff):
            self._wanted.discard(message.call)
        elif isinstance(message, Unload):
            for lane in self._lanes.values():
                lane.give(message)
        elif not self._lanes:
            self._post([EmbedFailed(message.call, "no embedding model is configured")])
        else:
            self._wanted.add(message.call)
            self._lanes[message.background].give(message)

    def close(self) -> bool:
        """Ends both threads; False when one of them is inside the model and does not come back in time."""
        self._wanted.clear()
        lanes = [lane for lane in self._lanes.values() if lane.started]
        for lane in lanes:
            lane.give(None)
        return all(lane.ended(STOP_SECONDS) for lane in lanes)


class Shared:
    """The model, loaded for the first lane that wants it and freed by the last one that lets it go. Both are reported."""

    def __init__(self, load: Callable[[], EmbeddingBackend], post: Post) -> None:
        self._load = load
        self._post = post
        self._lock = threading.Lock()
        self._model: EmbeddingBackend | None = None
        self._holders = 0

    def hold(self) -> EmbeddingBackend:
        with self._lock:
            if self._model is None:
                self._model = self._load()
                self._post([Holds(self._model.bytes)])
            self._holders += 1
            return self._model

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._model is not None:
                self._model.close()
                self._model = None
                self._post([Holds(0)])


class Lane:
    """One thread, started by its first message: texts of one call after the other, in batches."""

    def __init__(self, shared: Shared, post: Post, wanted: set[int], watch: Watch, nice: int, idle: float) -> None:
        self._shared = shared
        self._post = post
        self._wanted = wanted
        self._watch = watch
        self._nice = nice
        self._idle = idle
        self._inbox: queue.SimpleQueue[Embed | Unload | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"embedding at nice {nice}", daemon=True)
        self._held: tuple[EmbeddingBackend, EmbeddingContext] | None = None

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    def give(self, message: Embed | Unload | None) -> None:
        self._inbox.put(message)
        if not self.started:
            self._thread.start()

    def ended(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            try:
                message = self._inbox.get(timeout=self._idle if self._held else None)
            except queue.Empty:
                message = Unload()
            if isinstance(message, Embed):
                self._serve(message)
                continue
            self._rest()
            if message is None:
                return

    def _serve(self, message: Embed) -> None:
        try:
            answer: FromEmbedder | None = self._embed(message)
        except BackendError as error:
            answer = EmbedFailed(message.call, str(error), isinstance(error, TextNotEmbeddable))
        self._wanted.discard(message.call)
        if answer is not None:
            self._post([answer])

    def _embed(self, message: Embed) -> EmbeddedTexts | None:
        """None when nobody waits for it any more, noticed between two batches."""
        if message.call not in self._wanted:
            return None
        model, context = self._ready()
        texts = [self._read(model, number, text, message.whole) for number, text in enumerate(message.texts)]
        if not texts:
            return EmbeddedTexts(message.call, b"", model.dimensions, (), ())
        parts = [piece for text in texts for piece in text.pieces]
        lengths, rows = [len(part) for part in parts], []
        for batch in batches(lengths):
            if message.call not in self._wanted:
                return None
            with self._watch(seconds(sum(lengths[at] for at in batch))):
                rows.append(normalised(computed(model, context, [parts[at] for at in batch])))
        vectors = joined(np.concatenate(rows), lengths, [len(text.pieces) for text in texts])
        tokens, lost = tuple(text.tokens for text in texts), tuple(text.lost for text in texts)
        return EmbeddedTexts(message.call, vectors.tobytes(), model.dimensions, tokens, lost)

    def _read(self, model: EmbeddingBackend, number: int, text: str, whole: bool) -> "ReadText":
        with self._watch(seconds()):
            return read(model, number, text, whole)

    def _ready(self) -> tuple[EmbeddingBackend, EmbeddingContext]:
        if self._held is None:
            model = self._shared.hold()
            self._step_back()
            try:
                with self._watch(seconds()):
                    self._held = (model, model.open())
            except BackendError:
                self._shared.release()
                raise
        return self._held

    def _step_back(self) -> None:
        """Only once the model is loaded: questions wait for that too, and a busy machine leaves a nice thread next to
        nothing, so that the first load took minutes."""
        if self._nice and os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) < self._nice:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._nice)

    def _rest(self) -> None:
        if self._held is not None:
            with self._watch(seconds()):
                self._held[1].close()
                self._held = None
                self._shared.release()


@dataclass(frozen=True)
class ReadText:
    """A text as ids that fit the window; `lost`: how many did not."""

    pieces: list[list[int]]
    lost: int = 0

    @property
    def tokens(self) -> int:
        return sum(map(len, self.pieces))


def seconds(tokens: int = 0) -> float:
    """Predicted for a batch of so many, on the slowest of machines."""
    return LATENT_SECONDS + tokens / TOKENS_A_SECOND


def read(model: EmbeddingBackend, number: int, text: str, whole: bool) -> ReadText:
    """Raises TextNotEmbeddable for a text that has no ids."""
    ids = model.encode(text)
    if not ids:
        raise TextNotEmbeddable(f"text {number} is empty: there is nothing to embed")
    if whole:
        return ReadText(pieces(ids, model.window, model.starting, model.ending))
    beginning = cut(ids, model.window, model.ending)
    return ReadText([beginning], len(ids) - len(beginning))


def computed(model: EmbeddingBackend, context: EmbeddingContext, texts: Sequence[Sequence[int]]) -> Vectors:
    """Raises TextNotEmbeddable where the model fails at these texts and not at another one, BackendError where at all."""
    try:
        return context.vectors(texts)
    except BackendError as error:
        context.vectors([cut(model.encode(HARMLESS), model.window, model.ending)])
        raise TextNotEmbeddable(str(error)) from error
