"""The two threads that embed: who waits for whom, what is let go, and when the memory is given back."""

import os
import threading
from functools import partial

import numpy as np
import pytest
from support.fake_engine import FakeContext, FakeEmbedding
from support.lanes import Gated, GatedContext, Room
from support.waiting import SOON

from orchestrator.engine.backend import BackendError
from orchestrator.engine.child import worker
from orchestrator.engine.child.worker import Watchdog
from orchestrator.engine.embedding.lanes import NICE, Lanes, seconds
from orchestrator.engine.embedding.port import CallOff, Embed, EmbeddedTexts, EmbedFailed, Unload
from orchestrator.engine.llama.loading import STILL_SECONDS
from orchestrator.engine.messages import OVERRUN_FACTOR
from orchestrator.engine.model import EmbeddingSpec


@pytest.fixture
def room():
    made = Room()
    yield made
    made.model.gate.release(100)
    assert made.embedder.close()


def test_texts_come_back_as_vectors_of_length_one_in_their_order(room):
    room.ask(1, "one two", "three", "one two")
    found = room.answer()
    vectors = np.frombuffer(found.vectors, np.float32).reshape(3, found.dimensions)
    assert (found.call, found.tokens, found.cut) == (1, (4, 3, 4), (0, 0, 0))
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert (vectors[0] == vectors[2]).all()
    assert (vectors[0] != vectors[1]).any()


def test_what_did_not_fit_the_window_is_told_per_text(room):
    room.ask(1, "word " * 300, "short")
    found = room.answer()
    assert (found.tokens, found.cut) == ((128, 3), (174, 0))


def test_no_texts_are_no_vectors(room):
    room.ask(1)
    assert room.answer() == EmbeddedTexts(1, b"", 64, (), ())


def test_a_question_does_not_wait_for_the_fill(room):
    room.ask(1, "stop", background=True)
    assert room.model.entered.acquire(timeout=SOON)
    room.ask(2, "where is it")
    assert room.answer().call == 2
    room.model.gate.release()
    assert room.answer().call == 1


def test_only_the_fill_gives_its_cores_away(room):
    room.ask(1, "a")
    room.ask(2, "b", background=True)
    assert {room.answer().call, room.answer().call} == {1, 2}
    here = os.getpriority(os.PRIO_PROCESS, 0)
    assert sorted(room.model.nice.values()) == sorted({here, max(here, NICE)})


def test_the_fill_gives_its_cores_away_only_once_the_model_is_loaded(room):
    """Questions wait for the load too, and a busy machine gives a nice thread next to nothing: 17 s instead of 2."""
    room.ask(1, "a", background=True)
    assert room.answer().call == 1
    assert room.loaded_at == os.getpriority(os.PRIO_PROCESS, 0)
    assert list(room.model.nice.values()) == [max(room.loaded_at, NICE)]


def test_a_call_that_nobody_waits_for_ends_between_two_batches(room):
    room.ask(1, "stop", *["word " * 100] * 50, "stop")
    assert room.model.entered.acquire(timeout=SOON)
    room.embedder.take(CallOff(1))
    room.model.gate.release()
    room.ask(2, "next")
    assert room.answer().call == 2
    assert not room.model.entered.acquire(blocking=False)


def test_a_call_that_waits_in_line_is_never_begun_when_it_is_called_off(room):
    room.ask(1, "stop")
    assert room.model.entered.acquire(timeout=SOON)
    room.ask(2, "stop")
    room.embedder.take(CallOff(2))
    room.model.gate.release()
    room.ask(3, "next")
    assert [room.answer().call, room.answer().call] == [1, 3]


def test_the_model_is_loaded_at_the_first_text_once_for_both(room):
    assert room.loads == 0
    room.ask(1, "a")
    room.ask(2, "b", background=True)
    assert {room.answer().call, room.answer().call} == {1, 2}
    assert (room.loads, room.model.open_contexts) == (1, 2)


def test_the_memory_is_given_back_on_demand_and_the_next_text_loads_again(room):
    room.ask(1, "a")
    room.answer()
    room.embedder.take(Unload())
    assert room.model.closed.wait(SOON)
    assert room.model.open_contexts == 0
    room.ask(2, "a")
    assert room.answer().call == 2
    assert room.loads == 2
    assert room.held == [Gated.bytes, 0, Gated.bytes]


def test_the_memory_is_given_back_when_nobody_asks_for_a_while():
    room = Room(idle=0.01)
    room.ask(1, "a")
    room.answer()
    assert room.model.closed.wait(SOON)
    assert room.embedder.close()


def test_a_model_that_cannot_be_loaded_fails_each_call_with_its_reason_and_is_tried_again():
    loads = iter([BackendError("no such file"), BackendError("still none"), FakeEmbedding()])

    def load():
        found = next(loads)
        if isinstance(found, Exception):
            raise found
        return found

    room = Room(load)
    for call in (1, 2, 3):
        room.ask(call, "a")
    assert [room.answer(), room.answer()] == [EmbedFailed(1, "no such file"), EmbedFailed(2, "still none")]
    assert isinstance(room.answer(), EmbeddedTexts)
    assert room.embedder.close()


def test_without_a_model_every_call_is_told_so():
    answers = []
    embedder = Lanes(None, answers.extend)
    embedder.take(Embed(7, ("a",)))
    embedder.take(Unload())
    assert answers == [EmbedFailed(7, "no embedding model is configured")]
    assert embedder.close()


def test_closing_drops_what_waits(room):
    room.ask(1, "stop", "word " * 120, "word " * 120, "word " * 120, "word " * 120, "stop")
    assert room.model.entered.acquire(timeout=SOON)
    room.model.gate.release()
    assert room.embedder.close()
    assert room.model.closed.is_set()


def test_a_text_without_anything_to_embed_is_told_from_a_model_that_fails():
    room = Room()
    room.model.encode = lambda text: []
    room.embedder.take(Embed(1, ("",)))
    assert room.answers.get(timeout=SOON) == EmbedFailed(1, "text 0 is empty: there is nothing to embed", text=True)
    assert room.embedder.close()

    def broken():
        raise BackendError("no such file")

    failing = Room(broken)
    failing.embedder.take(Embed(2, ("a",)))
    assert failing.answers.get(timeout=SOON) == EmbedFailed(2, "no such file")
    assert failing.embedder.close()


def test_a_text_that_is_wanted_whole_is_read_in_pieces_and_nothing_of_it_is_cut(room):
    long, end = "word " * 300, "other " * 126
    room.embedder.take(Embed(1, (long + end, "short"), whole=True))
    found = room.answer()
    assert (found.tokens, found.cut) == ((426 + 4 * 2, 3), (0, 0))
    room.ask(2, long + end, end)
    whole, (beginning, last) = vector(found)[0], vector(room.answer())
    assert whole @ last > beginning @ last + 0.1


def test_a_batch_that_fails_is_told_as_one_texts_fault_while_the_model_works_with_another(room):
    real = FakeContext.vectors

    def vectors(context, texts):
        if any(len(ids) == 5 for ids in texts):
            raise BackendError("embedding 5 tokens returned -1")
        return real(context, texts)

    GatedContext.vectors, before = vectors, GatedContext.vectors
    try:
        room.ask(1, "three words here", "two words")
        assert room.answer() == EmbedFailed(1, "embedding 5 tokens returned -1", text=True)
        room.ask(2, "two words")
        assert isinstance(room.answer(), EmbeddedTexts)
        GatedContext.vectors = broken
        room.ask(3, "two words")
        assert room.answer() == EmbedFailed(3, "embedding 1 tokens returned -3")
    finally:
        GatedContext.vectors = before


class Watched(Room):
    """Its watchdog's clock is set by the test."""

    def __init__(self, load=None):
        self.now, self.told = 0.0, []
        self.watchdog = Watchdog(lambda: self.now, lambda *said: self.told.append(said), dict)
        super().__init__(load, watch=partial(self.watchdog.watch, "the embedding model"))

    def spend(self, seconds):
        self.now += seconds
        self.watchdog.look()


def test_a_batch_that_does_not_come_back_is_told_of_in_either_lane():
    for background in (False, True):
        room = Watched()
        room.ask(1, "stop", background=background)
        assert room.model.entered.acquire(timeout=SOON)
        limit = OVERRUN_FACTOR * seconds(3)
        room.spend(limit)
        assert room.told == []
        room.spend(1)
        assert room.told == [("the embedding model", limit + 1)]
        room.model.gate.release()
        assert room.answer().call == 1
        assert room.embedder.close()


def test_a_lane_without_work_may_wait_for_ever():
    room = Watched()
    room.ask(1, "a")
    room.answer()
    room.spend(1e9)
    assert room.told == []
    assert room.embedder.close()


def test_a_longer_batch_may_take_longer():
    assert seconds(8192) > 10 * seconds(20) > 0


def test_the_load_of_the_embedding_model_is_watched_and_whoever_waits_for_it_is_not(monkeypatch):
    entered, gate = threading.Event(), threading.Event()

    def load(spec):
        entered.set()
        assert gate.wait(SOON)
        return FakeEmbedding()

    monkeypatch.setattr(worker, "embedding_of", load)
    room = Watched(lambda: worker.load_embedding(EmbeddingSpec("fake"), room.watchdog))
    room.ask(1, "a")
    assert entered.wait(SOON)
    room.ask(2, "a", background=True)
    while not room.told:  # pages that its thread took meanwhile were signs of life
        room.spend(OVERRUN_FACTOR * STILL_SECONDS + 1)
    assert room.told == [("the load of the embedding model", OVERRUN_FACTOR * STILL_SECONDS + 1)]
    gate.set()
    assert {room.answer().call, room.answer().call} == {1, 2}
    assert room.embedder.close()


def broken(context, texts):
    raise BackendError(f"embedding {len(texts)} tokens returned -3")


def vector(answer):
    return np.frombuffer(answer.vectors, np.float32).reshape(-1, answer.dimensions)
