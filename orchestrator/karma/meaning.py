"""Memories that mean what a question asks, in other words than its own: with an embedding model alone.

    a memory's summary ─▶ vector, by the memory's id, in an index of its user        in the background, once
    a question ─▶ nearest memories ─▶ those that stand out ─▶ nearness, 0..1

Near is what stands out from this model's own background of unrelated questions, as in codex search; no cosine is compared
with a constant. Words find memories as before: this adds to them. Without a model no vector is made up.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from codex.errors import CodexError
from codex.vectors.embedder import Embedder, checked, space_of
from codex.vectors.index import VectorIndex
from codex.vectors.search import Background, bound_of
from orchestrator.errors import LoreError
from orchestrator.karma.schema import SHOWN
from orchestrator.karma.store import MemoryStore
from orchestrator.prompt.phrases import read_part

log = logging.getLogger("lorekeep.karma")
AT_ONCE = 16  # texts in a request: a question that comes meanwhile waits for one request at most
FAR = 6.0  # deviations from unrelated questions: with 3, as in a codex, too much is near (decision 0040)
NEAREST = 40  # memories that a question is compared with for good


class Nearness(Protocol):
    """Which memories mean what a text says. `fault`: why the last one was compared by words alone, '' where it was not."""

    fault: str

    def near(self, uid: int, text: str) -> Mapping[str, float]:
        """Of a user's memories, by id, how near they are: 0..1, those that are near alone. Raises nothing."""
        ...


class WordsAlone:
    """Where no model embeds."""

    fault = ""

    def near(self, uid: int, text: str) -> Mapping[str, float]:  # noqa: ARG002
        return {}


WORDS_ALONE = WordsAlone()


class MemoryMeaning:
    """A `Nearness` by vectors. Thread-safe; its methods block and belong in worker threads. `question` and `texts` give
    vectors of one space."""

    def __init__(self, store: MemoryStore, vectors: VectorIndex, question: Embedder, texts: Embedder) -> None:
        self._store, self._vectors = store, vectors
        self._question, self._texts = question, texts
        self._background = Background()
        self._filling = threading.Lock()
        self._asked: tuple[str, Sequence[float]] = ("", ())
        self.fault = ""

    def near(self, uid: int, text: str) -> Mapping[str, float]:
        """What has no vector yet gets one behind the question."""
        try:
            found, self.fault = self._near(uid, read_part(text)), ""
        except CodexError as fault:
            found, self.fault = {}, str(fault)
        except LoreError as fault:
            found, self.fault = {}, fault.message
        if not self.fault and self._missing(uid):
            threading.Thread(target=self._fill_alone, args=(uid,), name="memory-vectors", daemon=True).start()
        return found

    def fill(self, uid: int) -> int:
        """Makes the vectors that are missing, and deletes those of memories that are forgotten; returns how many were
        made. Raises CodexError and LoreError."""
        index, space = _index_of(uid), space_of(self._texts)
        texts, held = self._shown(uid), self._vectors.held(index, space)
        self._vectors.sweep(index, space, texts.keys())
        self._vectors.forget(index, space, held - texts.keys())
        missing = [(one, text) for one, text in texts.items() if one not in held]
        for some in (missing[at : at + AT_ONCE] for at in range(0, len(missing), AT_ONCE)):
            made = checked(self._texts, self._texts.embed([text for _, text in some]), len(some))
            self._vectors.add(index, space, {one: vector for (one, _), vector in zip(some, made, strict=True)})
        return len(missing)

    def _near(self, uid: int, text: str) -> Mapping[str, float]:
        index, space = _index_of(uid), space_of(self._question)
        if not self._vectors.count(index, space):
            return {}
        if self._asked[0] != text:
            self._asked = text, checked(self._question, self._question.embed([text]), 1)[0]
        found = self._vectors.nearest(index, space, self._asked[1], NEAREST)
        bound = bound_of(self._background.of(index, self._question, self._vectors), FAR)
        if bound is None or bound >= 1:
            return {}
        return {one: min(1.0, (cosine - bound) / (1 - bound)) for one, cosine in found if cosine > bound}

    def _missing(self, uid: int) -> bool:
        ((count,),) = self._store.read(f"SELECT count(*) FROM memories WHERE uid = ? AND {SHOWN}", uid)  # noqa: S608
        return bool(count != self._vectors.count(_index_of(uid), space_of(self._texts)))

    def _shown(self, uid: int) -> dict[str, str]:
        return dict(self._store.read(f"SELECT id, summary FROM memories WHERE uid = ? AND {SHOWN}", uid))  # noqa: S608

    def _fill_alone(self, uid: int) -> None:
        """One at a time; who comes meanwhile is served by who is there, or by the next question."""
        if not self._filling.acquire(blocking=False):
            return
        try:
            self.fill(uid)
        except (CodexError, LoreError) as fault:
            log.warning("memories are searched by words until they have vectors: %s", fault)
        finally:
            self._filling.release()


def _index_of(uid: int) -> str:
    return f"memories of {uid}"
