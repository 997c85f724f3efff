"""Vectors in the background: who gets a turn, what a fault costs, and what is said of how far it is."""

import asyncio
import hashlib
import threading
from contextlib import asynccontextmanager

import pytest
from support.memory_archive import MemoryArchive
from support.memory_vectors import MemoryVectors
from support.turns import told_turns
from support.waiting import SOON

from codex.documents import Document
from codex.vectors.embedder import EmbeddingFailed
from orchestrator.model import meaning
from orchestrator.model.meaning import Filling

pytestmark = pytest.mark.anyio


class Hashes:
    """An embedder: every text has a direction of its own. `fault` is raised when set; `gate` holds up a batch."""

    name, dimensions = "hashes", 2

    def __init__(self):
        self.fault, self.batches = "", []
        self.gate, self.asked = threading.Event(), threading.Event()
        self.gate.set()

    def embed(self, texts):
        self.asked.set()
        assert self.gate.wait(SOON)
        if self.fault:
            raise EmbeddingFailed(self.fault)
        self.batches.append(len(texts))
        return [[1.0, 0.0] if hashlib.sha256(text.encode()).digest()[0] % 2 else [0.0, 1.0] for text in texts]


def source(path, functions=1):
    text = "".join(f"def {path[0]}{number}():\n    return '{path} {number}'\n\n\n" for number in range(functions))
    return Document(path, text, hashlib.sha256(text.encode()).hexdigest(), len(text))


@asynccontextmanager
async def background(*codices, embedder=None, again=SOON, vectors=None):
    archive = MemoryArchive()
    for name in codices:
        archive.index(name, [source(f"{name}.py", 3)], [], lambda more: None)
    made = Filling(archive, vectors or MemoryVectors(), embedder or Hashes(), again, lambda: made.why)
    made.turns, made.why = [], ""
    made.until = told_turns(made, made.turns).until
    made.keep_only(codices)
    try:
        yield made
    finally:
        made.embedder.gate.set()
        await made.stop()


async def in_the_midst(made):
    """The codex `demo` is being embedded, and its embedder held up."""
    made.archive.index("demo", [source(f"demo{n}.py") for n in range(50)], [], lambda more: None)
    made.wanted("demo")
    assert await asyncio.to_thread(made.embedder.asked.wait, SOON)


def complete(made, name):
    found = made.report(name)
    return found is not None and found.embedded == found.texts > 0


async def test_what_is_wanted_is_embedded_once():
    async with background("demo") as made:
        assert made.report("demo") is None
        made.wanted("demo")
        await made.until(lambda: complete(made, "demo"))
        texts = sum(made.embedder.batches)
        made.wanted("demo")
        await made.until(lambda: len(made.turns) == 2)
        assert sum(made.embedder.batches) == texts == made.report("demo").texts
        assert made.unseen("demo") == ""


async def test_an_embedder_that_fails_is_tried_again_and_meanwhile_it_is_told():
    hashes = Hashes()
    hashes.fault = "the model is gone"
    async with background("demo", embedder=hashes, again=0.01) as made:
        made.wanted("demo")
        await made.until(lambda: len(made.turns) >= 2)
        assert "the model is gone" in made.report("demo").fault
        assert made.unseen("demo").startswith("0 of ")
        hashes.fault = ""
        await made.until(lambda: complete(made, "demo"))
        assert made.report("demo").fault == ""


async def test_a_fault_of_one_codex_leaves_the_others_their_turn():
    async with background("first", "second", again=SOON) as made:
        made.archive.digests = failing(made.archive.digests, "first")
        made.wanted("first")
        made.wanted("second")
        await made.until(lambda: complete(made, "second"))


def failing(real, name):
    def digests(codex):
        if codex == name:
            raise EmbeddingFailed("not this one")
        return real(codex)

    return digests


async def test_a_long_codex_lets_others_have_theirs(monkeypatch):
    monkeypatch.setattr(meaning, "TURN_SECONDS", 0.0)
    hashes = Hashes()
    hashes.gate.clear()
    async with background("long", "short", embedder=hashes) as made:
        made.archive.index("long", [source(f"long{n}.py") for n in range(50)], [], lambda more: None)
        made.wanted("long")
        await asyncio.to_thread(lambda: None)
        made.wanted("short")
        await asyncio.to_thread(lambda: None)
        hashes.gate.set()
        await made.until(lambda: complete(made, "long") and complete(made, "short"))
        assert hashes.batches[:3] == [16, 1, 16]  # the short one after the long one's first


async def test_a_codex_that_is_forgotten_is_not_gone_on_with():
    hashes = Hashes()
    hashes.gate.clear()
    async with background("demo", embedder=hashes) as made:
        await in_the_midst(made)
        made.archive.drop("demo")
        made.forget("demo")
        hashes.gate.set()
        await made.until(lambda: made.turns == ["demo"])
        assert made.report("demo") is None
        assert len(hashes.batches) <= 1


async def test_vectors_of_codices_that_are_no_more_are_forgotten_at_the_start():
    vectors = MemoryVectors()
    async with background("gone", vectors=vectors) as made:
        made.wanted("gone")
        await made.until(lambda: complete(made, "gone"))
    assert vectors.codices() == {"gone"}
    async with background("demo", vectors=vectors) as made:
        made.wanted("demo")
        await made.until(lambda: complete(made, "demo"))
    assert vectors.codices() == {"demo"}


async def test_stopping_waits_for_the_batch_that_runs_and_no_more():
    hashes = Hashes()
    hashes.gate.clear()
    async with background("demo", embedder=hashes) as made:
        await in_the_midst(made)
        ending = asyncio.create_task(made.stop())
        await asyncio.to_thread(lambda: None)
        hashes.gate.set()
        await ending
        assert len(hashes.batches) == 1
        made.wanted("demo")  # too late, and no error


async def test_without_an_embedder_nothing_is_done_and_nothing_said():
    made = Filling(MemoryArchive(), MemoryVectors(), None)
    made.wanted("demo")
    assert (made.report("demo"), made.unseen("demo")) == (None, "")
    await made.stop()


async def test_while_the_model_rests_nothing_is_embedded_and_what_is_wanted_is_counted():
    async with background("demo") as made:
        made.why = "RAM is scarce"
        made.wanted("demo")
        await made.until(lambda: made.turns == ["demo"])
        report = made.report("demo")
        assert (report.embedded, report.fault) == (0, "RAM is scarce")
        assert report.texts > 0
        assert "RAM is scarce" in made.unseen("demo")
        assert made.embedder.batches == []
        made.why = ""
        made.rested()
        await made.until(lambda: complete(made, "demo"))
        assert (made.report("demo").fault, made.unseen("demo")) == ("", "")
