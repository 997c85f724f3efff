"""The two threads that embed, on a fake that waits where a test tells it to, and all that they answer."""

import os
import queue
import threading
from contextlib import nullcontext

from support.fake_engine import FakeContext, FakeEmbedding
from support.waiting import SOON

from orchestrator.engine.embedding.lanes import Lanes
from orchestrator.engine.embedding.port import Embed, Holds


class Gated(FakeEmbedding):
    """Stops inside a batch that holds the word `stop` until it is let through, and notes what happened."""

    def __init__(self):
        super().__init__()
        self.entered, self.gate = threading.Semaphore(0), threading.Semaphore(0)
        self.open_contexts, self.closed, self.nice = 0, threading.Event(), {}
        self.stop = self.encode("stop")[1]

    def open(self):
        self.open_contexts += 1
        self.nice[threading.current_thread().name] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        return GatedContext(self)

    def close(self):
        self.closed.set()


class GatedContext(FakeContext):
    def __init__(self, model):
        super().__init__(model.window)
        self._model = model

    def vectors(self, texts):
        if any(self._model.stop in ids for ids in texts):
            self._model.entered.release()
            assert self._model.gate.acquire(timeout=SOON)
        return super().vectors(texts)

    def close(self):
        self._model.open_contexts -= 1


class Room:
    def __init__(self, load=None, idle=60.0, watch=nullcontext):
        self.model = Gated()
        self.loads = 0
        self.answers = queue.Queue()
        self.held = []
        self.embedder = Lanes(load or self._load, self._hear, watch, idle)

    def _hear(self, messages):
        for one in messages:
            if isinstance(one, Holds):
                self.held.append(one.weights)
            else:
                self.answers.put(one)

    def _load(self):
        self.loads += 1
        self.loaded_at = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        return self.model

    def ask(self, call, *texts, background=False):
        self.embedder.take(Embed(call, texts, background))

    def answer(self):
        return self.answers.get(timeout=SOON)
