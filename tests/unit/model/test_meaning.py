"""A text that cannot be embedded, or that ends the engine, is found, remembered and passed over; the others get vectors."""

import asyncio
import hashlib
import os
import signal
from contextlib import asynccontextmanager

import pytest
from support.fake_engine import FAKE
from support.memory_archive import MemoryArchive
from support.memory_vectors import MemoryVectors
from support.turns import told_turns

from codex.documents import Document
from codex.vectors.embedder import EmbeddingFailed, UnembeddableText, space_of
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.embedding import EmbeddingRefused
from orchestrator.engine.messages import Urgency
from orchestrator.engine.model import EmbeddingSpec, EngineSpec
from orchestrator.model.embedding_model import EmbeddingFile
from orchestrator.model.meaning import Bridge, Filling, Refusals, embedders

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_engines")]
SPEC = EmbeddingSpec(FAKE)
FILE = EmbeddingFile(SPEC, "fake-0", 64)


class Deadly(EngineClient):
    """A real child that really ends, as llama.cpp's aborts end it, when a text holds the word `deadly`."""

    word = "deadly"

    async def embed(self, texts, urgency=Urgency.INTERACTIVE, *, whole=False):
        await self.ensure_ready()
        if not any(self.word in text for text in texts):
            return await super().embed(texts, urgency, whole=whole)
        os.kill(self.pid, signal.SIGSTOP)  # before it is sent, so that the child cannot answer first
        asked = asyncio.ensure_future(super().embed(texts, urgency, whole=whole))
        await asyncio.sleep(0)
        os.kill(self.pid, signal.SIGKILL)
        return await asked


class Refusing(EngineClient):
    """What the child answers where llama.cpp fails at one text of a batch."""

    async def embed(self, texts, urgency=Urgency.INTERACTIVE, *, whole=False):
        if any("odd" in text for text in texts):
            raise EmbeddingRefused("embedding 7 tokens returned -1", text=True)
        return await super().embed(texts, urgency, whole=whole)


@asynccontextmanager
async def room(path, kind=Deadly):
    client, refusals = kind(EngineSpec(FAKE, embedding=SPEC)), Refusals(path)
    bridge = Bridge(client)
    client.start()
    try:
        yield client, embedders(bridge, FILE, refusals, "", "")
    finally:
        await client.stop()
        refusals.close()


def document(name, text):
    return Document(name, text, hashlib.sha256(text.encode()).hexdigest(), len(text))


def archive(word, files=20):
    made = MemoryArchive()
    texts = [f"a file about thing {number}\n" for number in range(files)]
    texts[7] = f"a file that is {word}\n"
    made.index("demo", [document(f"f{n:02}.txt", text) for n, text in enumerate(texts)], [], lambda more: None)
    return made


async def filled(embedder, held, vectors):
    """The report once all is done."""
    filling = Filling(held, vectors, embedder, again=0.05)
    told = told_turns(filling)
    filling.wanted("demo")
    try:
        await told.until(lambda: (now := filling.report("demo")) and now.embedded == now.texts > 0)
        return filling.report("demo")
    finally:
        await filling.stop()


@pytest.mark.parametrize(("kind", "word"), [(Deadly, "deadly"), (Refusing, "odd")])
async def test_one_bad_text_costs_its_own_vector_and_no_other(tmp_path, kind, word):
    held, vectors = archive(word), MemoryVectors()
    async with room(tmp_path / "refused.sqlite3", kind) as (_, (_, texts)):
        report = await filled(texts, held, vectors)
        assert (report.texts, report.refused, report.fault) == (20, 1, "")
        assert vectors.count("demo", space_of(texts)) == 19


async def test_a_text_that_ended_the_engine_is_not_tried_again_after_a_restart(tmp_path):
    held, vectors = archive("deadly"), MemoryVectors()
    async with room(tmp_path / "refused.sqlite3") as (client, (_, texts)):
        await filled(texts, held, vectors)
        assert client.restarts == 2  # with its batch, and alone
    async with room(tmp_path / "refused.sqlite3") as (client, (_, texts)):
        assert (await filled(texts, held, vectors)).refused == 1
        assert client.restarts == 0


async def test_an_engine_that_ends_at_every_text_blames_none_of_them(tmp_path):
    path = tmp_path / "refused.sqlite3"
    async with room(path) as (client, (_, texts)):
        client.word = ""
        with pytest.raises(EmbeddingFailed) as raised:
            await asyncio.to_thread(texts.embed, ["one text"])
        assert not isinstance(raised.value, UnembeddableText)
        client.word = "deadly"
        with pytest.raises(EmbeddingFailed, match="tried again after 10 minutes"):
            await asyncio.to_thread(texts.embed, ["one text"])
    assert not path.exists()


async def test_a_question_that_ends_the_engine_is_answered_by_words_and_holds_up_nobody(tmp_path):
    async with room(tmp_path / "refused.sqlite3") as (client, (question, texts)):
        await client.ensure_ready()
        with pytest.raises(EmbeddingFailed, match="signal 9"):
            await asyncio.to_thread(question.embed, ["a deadly question"])
        assert len(await asyncio.to_thread(texts.embed, ["a text"])) == 1


def test_refusals_are_of_one_model_and_outlast_their_file_being_damaged(tmp_path):
    path = tmp_path / "refused.sqlite3"
    first = Refusals(path)
    first.add("one", "text", "it is odd")
    first.add("one", "text", "it is odd")
    assert first.any("one", ["other", "text"])
    assert not first.any("other", ["text"])
    first.close()
    assert Refusals(path).any("one", ["text"])
    path.write_bytes(b"no database" * 500)
    damaged = Refusals(path)
    assert not damaged.any("one", ["text"])
    damaged.add("one", "text", "it is odd")
    damaged.close()
    assert Refusals(path).any("one", ["text"])


def test_a_place_that_cannot_be_written_remembers_until_the_end(tmp_path):
    (tmp_path / "file").write_text("in the way")
    refusals = Refusals(tmp_path / "file" / "refused.sqlite3")
    refusals.add("one", "text", "it is odd")
    assert refusals.any("one", ["text"])
