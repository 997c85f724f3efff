"""What does not come back in the real child: steps, restores, loads, embeddings. Who waits is answered by the next one."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import anyio
import psutil
import pytest
from support.real_engine import ask, code, collected, engine, load, long_answer

from orchestrator.engine.builtin import ensure
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.embedding import EmbeddingLost
from orchestrator.engine.client.supervisor import GRACE_SECONDS
from orchestrator.engine.messages import AnswerDelta, Outcome, Reason, Urgency
from orchestrator.engine.model import EmbeddingSpec, EngineSpec
from orchestrator.model.chat_model import arriving

pytestmark = pytest.mark.anyio


async def test_a_step_that_hangs_ends_the_child_from_inside_and_its_question_is_answered_by_the_next(
    quoter_model: Path, fault: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        await ask(client, 15)  # the first step is not watched
        first = client.pid or 0
        fault("hang")
        text, end = await ask(client, 34)
        assert (text, end.outcome, client.restarts) == (code(34), Outcome.DONE, 1)
        assert not psutil.pid_exists(first)
    assert "exit status 86" in caplog.text


async def test_the_first_step_may_take_any_time_although_messages_and_rounds_came_before_it(
    quoter_model: Path, fault: Callable[[str], None]
) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        fault("slow")
        text, end = await ask(client, 16)
        assert (text, end.outcome, client.restarts) == (code(16), Outcome.DONE, 0)


async def test_a_restore_that_hangs_ends_the_child_and_its_question_is_answered_by_the_next(
    quoter_model: Path, fault: Callable[[str], None], cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with engine(quoter_model, cache) as client:
        await load(client)
        fault("restore hang")
        text, end = await ask(client, 18)
        assert (text, end.outcome, client.restarts) == (code(18), Outcome.DONE, 1)
    assert "exit status 86" in caplog.text


async def test_an_engine_that_does_not_come_to_an_end_of_loading_is_stopped_at_once(
    quoter_model: Path, fault: Callable[[str], None]
) -> None:
    fault("load hang")
    client = EngineClient(EngineSpec(str(quoter_model), threads=1, gpu_layers=0))
    client.start()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await client.ensure_ready()
    with anyio.fail_after(GRACE_SECONDS / 2):
        await client.stop()


async def test_a_load_that_hangs_says_how_far_it_came_is_ended_from_inside_and_the_next_child_answers(
    quoter_model: Path, fault: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CHILD_FACTOR", "1e-6")
    fault("load hang")
    async with engine(quoter_model) as client:
        reasons: list[str] = []
        ready = asyncio.ensure_future(client.ensure_ready())
        async for percent in arriving(ready, client):
            reasons += [client.reason] * (percent > 0)
        await load(client)
        assert ((await ask(client, 19))[0], client.restarts) == (code(19), 1)
    assert "the model is loading, 99 %" in reasons
    assert "exit status 86: something did not come back from llama.cpp" in caplog.text


async def test_an_embedding_that_hangs_ends_the_child_from_inside_and_the_next_one_embeds(
    quoter_model: Path, models: Path, fault: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHILD_FACTOR", "1e-6")
    words = EmbeddingSpec(str(ensure("builtin:words", models)), threads=1)
    async with engine(quoter_model, embedding=words) as client:
        for restarts, urgency in enumerate(Urgency, start=1):
            await client.embed(["a text"], urgency)
            fault("embed hang")
            with pytest.raises(EmbeddingLost, match="exit status 86"):
                await client.embed(["another text"], urgency)
            assert (await client.embed(["another text"], urgency)).cut == (0,)
            assert client.restarts == restarts


async def test_an_answer_that_hangs_half_way_fails_and_says_how_the_engine_ended(
    quoter_model: Path, fault: Callable[[str], None]
) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        async with aclosing(client.run(await long_answer(client))) as stream:
            async for message in stream:
                if isinstance(message, AnswerDelta):
                    break
            fault("hang")
            (*_, end) = await collected(stream)
        assert (end.outcome, end.reason) == (Outcome.FAILED, Reason.ENGINE)
        assert "exit status 86" in end.detail
