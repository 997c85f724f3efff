"""Embedding through a real child: the client's side, and what happens when that child ends."""

import asyncio
import os
import signal
from contextlib import asynccontextmanager

import numpy as np
import pytest
from support.fake_engine import FAKE
from support.waiting import SOON

from orchestrator.engine.builtin import ensure
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.embedding import EmbeddingRefused, embedding_name
from orchestrator.engine.client.supervisor import ChildState, EngineUnavailable
from orchestrator.engine.messages import Completion, Grant, InferenceJob, Outcome, Urgency, ids_to_bytes
from orchestrator.engine.model import EmbeddingSpec, EngineSpec

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_engines")]
MANY = ["a chunk of a file with some words in it " * 12] * 20_000  # minutes of work


@asynccontextmanager
async def engine(embedding):
    client = EngineClient(EngineSpec(FAKE, embedding=embedding))
    client.start()
    client.grant(Grant(1, 8192, 4096))
    try:
        yield client
    finally:
        await client.stop()


@pytest.fixture(scope="module")
def words(models):
    return EmbeddingSpec(str(ensure("builtin:words", models)), threads=1)


async def test_vectors_come_with_their_models_name_and_what_was_cut():
    async with engine(EmbeddingSpec(FAKE, window=16)) as client:
        found = await client.embed(["one two", "word " * 40])
        assert found.vectors.shape == (2, found.dimensions) == (2, 64)
        assert np.allclose(np.linalg.norm(found.vectors, axis=1), 1)
        assert (found.name, found.tokens, found.cut) == ("fake-16", (4, 16), (0, 26))


async def test_texts_that_share_uncommon_words_are_near(words):
    async with engine(words) as client:
        texts = ["def connect(path): retry the socket", "why does the Socket retry", "class TokenStore: keeps ids"]
        vectors = (await client.embed(texts)).vectors
        assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2


async def test_without_a_model_embedding_is_refused():
    async with engine(None) as client:
        with pytest.raises(EmbeddingRefused, match="no embedding model is configured"):
            await client.embed(["a"])


async def test_a_model_that_is_none_is_refused_with_its_file_and_answers_go_on(models):
    async with engine(EmbeddingSpec(str(ensure("builtin:quoter", models)))) as client:
        with pytest.raises(EmbeddingRefused, match=r"quoter-.*\.gguf \(architecture llama\) is no embedding model"):
            await client.embed(["a"])
        assert (await answer(client)).outcome is Outcome.DONE


async def test_answers_and_questions_to_the_model_go_on_beside_a_fill(words):
    async with engine(words) as client:
        fill = asyncio.create_task(client.embed(MANY, Urgency.BACKGROUND))
        assert (await answer(client)).outcome is Outcome.DONE
        assert (await client.embed(["where is it"])).cut == (0,)
        assert not fill.done()
        fill.cancel()
        await asyncio.gather(fill, return_exceptions=True)
        assert (await client.embed(["the lane is free again"], Urgency.BACKGROUND)).cut == (0,)


async def test_stopping_does_not_wait_for_a_fill(words):
    async with engine(words) as client:
        fill = asyncio.create_task(client.embed(MANY, Urgency.BACKGROUND))
        await client.embed(["both lanes are up"])
        async with asyncio.timeout(SOON):
            await client.stop()
        with pytest.raises(EngineUnavailable, match="stopped"):
            await fill


async def test_a_child_that_ends_fails_the_call_and_the_next_one_embeds_again(words):
    async with engine(words) as client:
        fill = asyncio.create_task(client.embed(MANY, Urgency.BACKGROUND))
        await client.embed(["the child is up"])
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(EngineUnavailable, match="signal 9"):
            await fill
        assert (await client.embed(["again"])).cut == (0,)


async def test_a_model_that_ends_the_child_twice_is_not_tried_a_third_time(words):
    async with engine(words) as client:
        for _ in range(2):
            await client.ensure_ready()
            fill = asyncio.create_task(client.embed(MANY, Urgency.BACKGROUND))
            await client.encode(["sent behind the texts"])
            os.kill(client.pid, signal.SIGKILL)
            with pytest.raises(EngineUnavailable):
                await fill
        with pytest.raises(EmbeddingRefused, match="ended 2 times while it embedded"):
            await client.embed(["a"])
        assert (await answer(client)).outcome is Outcome.DONE
        assert client.state is ChildState.READY


async def test_a_model_that_rests_is_out_of_the_memory_until_it_need_not(words):
    async with engine(words) as client:
        assert client.embedding.holds == 0
        first = (await client.embed(["a text"])).vectors
        assert client.embedding.holds > 1_000_000
        client.embedding.rest("RAM is scarce")
        async with asyncio.timeout(SOON):
            while client.embedding.holds:
                await client.encode([""])
        with pytest.raises(EngineUnavailable, match="RAM is scarce"):
            await client.embed(["a text"])
        assert client.embedding.holds == 0
        client.embedding.rest("")
        assert ((await client.embed(["a text"])).vectors == first).all()


def test_the_name_changes_with_the_file_and_the_window(models):
    one = embedding_name(EmbeddingSpec(str(ensure("builtin:words", models))))
    assert one == embedding_name(EmbeddingSpec(str(ensure("builtin:words", models)), threads=7))
    assert one != embedding_name(EmbeddingSpec(str(ensure("builtin:words", models)), window=100))
    assert one != embedding_name(EmbeddingSpec(str(ensure("builtin:quoter", models))))
    assert " " not in one
    assert one.startswith("words-")


async def answer(client):
    client.put_floor("f", ids_to_bytes(range(50)))
    job = InferenceJob(0, "f", ids_to_bytes([1, 2]), owner=1, max_tokens=4)
    last = [message async for message in client.run(job)][-1]
    assert isinstance(last, Completion)
    return last
