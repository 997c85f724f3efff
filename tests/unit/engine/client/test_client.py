"""The client with a real child process around the fake backend: what survives a child, and what is told when not."""

import asyncio
import os
import signal
from contextlib import aclosing, asynccontextmanager

import anyio
import pytest

from orchestrator.answering.inference import fault_of
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import ChildState, EngineUnavailable
from orchestrator.engine.messages import (
    Admitted,
    AnswerDelta,
    Completion,
    Grant,
    InferenceJob,
    Outcome,
    Reason,
    Sampling,
    ids_to_bytes,
)
from orchestrator.engine.model import EngineSpec

pytestmark = pytest.mark.anyio
FLOOR = ids_to_bytes([n % 50 for n in range(600)])


@asynccontextmanager
async def engine(model="fake", cells=8192):
    client = EngineClient(EngineSpec(model=model))
    client.start()
    client.grant(Grant(1, cells, 4096))
    try:
        yield client
    finally:
        await client.stop()


def job(tail=(1, 2, 3), max_tokens=8, floor="f", seed=None):
    sampling = Sampling() if seed is None else Sampling(temperature=1.0, seed=seed)
    return InferenceJob(0, floor, ids_to_bytes(tail), owner=1, max_tokens=max_tokens, sampling=sampling)


async def collect(client, asked):
    return [message async for message in client.run(asked)]


async def test_an_answer_is_admitted_told_and_completed():
    async with engine() as client:
        client.put_floor("f", FLOOR)
        messages = await collect(client, job())
        assert isinstance(messages[0], Admitted)
        assert isinstance(messages[-1], Completion)
        assert messages[-1].outcome is Outcome.DONE
        assert "".join(m.text for m in messages if isinstance(m, AnswerDelta)).isalpha()


async def test_the_second_question_computes_only_its_own_tokens():
    async with engine() as client:
        client.put_floor("f", FLOOR)
        await collect(client, job((1, 2, 3)))
        assert (await collect(client, job((9, 9, 9))))[-1].computed == 3


async def test_calls_are_answered_while_the_loop_is_idle_or_busy():
    async with engine() as client:
        client.put_floor("f", FLOOR)
        assert [ids.tolist() for ids in await client.encode(["ab", "c"])] == [[97, 98], [99]]
        assert await client.decode(ids_to_bytes([104, 105])) == "hi"
        assert (await client.match("f", ids_to_bytes([1]), 1)).length == 0
        await collect(client, job((1, 2, 3)))
        assert (await client.match("f", ids_to_bytes([1, 2, 7]), 1)).length == 602


async def test_a_killed_child_is_replaced_and_a_ticket_that_had_sent_nothing_is_answered():
    async with engine() as client:
        client.put_floor("f", FLOOR)
        await client.ensure_ready()
        first_child = client.pid
        os.kill(first_child, signal.SIGSTOP)  # it can send nothing more
        async with aclosing(client.run(job())) as stream:
            waiting = stream.__anext__()
            os.kill(first_child, signal.SIGKILL)
            messages = [await waiting] + [message async for message in stream]
        assert messages[-1].outcome is Outcome.DONE
        assert client.restarts == 1
        assert client.pid != first_child


async def test_questions_wait_for_no_suspect_that_nobody_wants_answered_any_more():
    async with engine() as client:
        client.put_floor("f", FLOOR)
        await client.ensure_ready()
        first_child = client.pid
        os.kill(first_child, signal.SIGSTOP)
        with anyio.fail_after(30):
            async with aclosing(client.run(job(max_tokens=3000))) as first, aclosing(client.run(job((4,)))) as second:
                told = asyncio.ensure_future(anext(first))
                waits = asyncio.ensure_future(anext(second))
                third = asyncio.ensure_future(collect(client, job((5,))))
                await asyncio.sleep(0)
                os.kill(first_child, signal.SIGKILL)
                assert isinstance(await told, Admitted)  # by the next child, alone
                waits.cancel()
                await asyncio.wait([waits])
            assert (await third)[-1].outcome is Outcome.DONE
            assert (await collect(client, job((6,))))[-1].outcome is Outcome.DONE
        assert client.restarts == 1


async def test_a_ticket_that_had_begun_to_answer_fails_with_a_retryable_error():
    async with engine() as client:
        client.put_floor("f", FLOOR)
        seen = []
        for seed in range(50):  # some seeds end with their first token; the stop must come in the middle
            async for message in client.run(job(max_tokens=3000, seed=seed)):
                seen.append(message)
                if isinstance(message, AnswerDelta):
                    os.kill(client.pid, signal.SIGKILL)
            if seen[-1].outcome is Outcome.FAILED:
                break
        assert (seen[-1].reason, seen[-1].detail) == (Reason.ENGINE, "the engine ended (killed by signal 9)")
        assert fault_of(seen[-1]).hint == "ask again"


async def test_a_child_that_ends_five_times_in_a_minute_is_reported_as_broken():
    async with engine() as client:
        for _ in range(5):
            await client.ensure_ready()
            os.kill(client.pid, signal.SIGKILL)
            while client.state is ChildState.READY:
                with pytest.raises(EngineUnavailable):
                    await client.encode(["x"])
        with pytest.raises(EngineUnavailable, match="5 times"):
            await client.ensure_ready()
        with pytest.raises(EngineUnavailable, match="another model"):
            await collect(client, job())


async def test_a_model_that_cannot_be_loaded_is_broken_at_once_and_says_why(tmp_path):
    path = tmp_path / "nothing.gguf"
    path.write_bytes(b"GGUF" + b"\0" * 64)
    async with engine(str(path)) as client:
        with pytest.raises(EngineUnavailable, match=r"nothing\.gguf"):
            await client.ensure_ready()


async def test_closing_the_stream_early_gives_its_cells_back():
    async with engine() as client:
        client.put_floor("f", FLOOR)
        async with aclosing(client.run(job(max_tokens=3000))) as stream:
            await stream.__anext__()
        assert (await collect(client, job((5,))))[-1].outcome is Outcome.DONE


async def test_a_stopped_engine_says_so():
    async with engine() as client:
        await client.ensure_ready()
    with pytest.raises(EngineUnavailable, match="stopped"):
        await client.encode(["x"])
