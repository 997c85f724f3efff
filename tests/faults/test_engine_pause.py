"""The engine gives its memory away and comes back: its process ends, and no ticket is lost by it."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from support.fake_engine import FAKE
from support.real_engine import TEXT, ask, collected, engine, load, long_answer, question, said
from support.vaults import code
from support.waiting import SOON

from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import ChildState
from orchestrator.engine.messages import (
    Admitted,
    AnswerDelta,
    Completion,
    InferenceJob,
    Outcome,
    PrefillProgress,
    Reason,
    Tier,
    Urgency,
    ids_to_bytes,
)
from orchestrator.engine.model import EngineSpec

pytestmark = pytest.mark.anyio
WHY = "paused since 12:00 (lore pause); lore resume ends it"


@pytest.fixture(scope="module")
async def client(quoter_model, tmp_path_factory):
    """An engine with checkpoints and a floor, which one test after another pauses."""
    async with engine(quoter_model, tmp_path_factory.mktemp("pause") / "cache") as client:
        await load(client)
        await ask(client, 10)
        yield client


def is_gone(pid):
    return not Path(f"/proc/{pid}").exists()


async def soon(true):
    """Returns when it is so, after some turns of the event loop."""
    async with asyncio.timeout(SOON):
        while not true():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.001)


def from_cache(admitted, *tiers):
    return sum(part.end - part.start for part in admitted.reuse if part.tier in tiers)


async def test_a_pause_leaves_no_process_and_the_floor_comes_back_from_disk(client):
    pid = client.pid
    await client.pause(WHY, 10.0)
    assert (is_gone(pid), client.pid, client.state, client.reason) == (True, None, ChildState.PAUSED, WHY)
    assert (client.snapshot.kv_bytes, client.busy) == (0, False)
    client.resume()
    messages = await collected(client.run(await question(client, 11)))
    assert said(messages).startswith(code(11))
    assert from_cache(messages[0], Tier.DISK, Tier.VRAM) > 300  # by this question, or restored in advance
    assert client.restarts == 0


async def test_who_asks_meanwhile_waits_and_is_answered_when_it_is_back(client):
    job = await question(client, 12)
    await client.pause(WHY, 10.0)
    asked = [asyncio.create_task(collected(client.run(job))), asyncio.create_task(client.encode(["x"]))]
    _, waiting = await asyncio.wait(asked, timeout=0.05)
    assert (len(waiting), client.busy) == (2, True)
    client.resume()
    async with asyncio.timeout(SOON):
        assert said(await asked[0]).startswith(code(12))
        assert await asked[1]


async def begun(answer):
    """Returns once the answer has begun."""
    while not isinstance(await anext(answer), AnswerDelta):
        pass


async def test_an_answer_that_has_begun_ends_by_itself_and_one_that_has_not_waits(client):
    running, behind = client.run(await long_answer(client)), await question(client, 13)
    await begun(running)
    pausing = asyncio.create_task(client.pause(WHY, SOON))
    later = asyncio.create_task(collected(client.run(behind)))
    assert (await collected(running))[-1].outcome is Outcome.DONE
    await pausing
    assert not later.done()
    client.resume()
    assert said(await later).startswith(code(13))


async def test_an_answer_that_takes_longer_than_it_may_is_cut_off_with_a_fault_that_may_be_tried_again(client):
    running = client.run(await long_answer(client))
    await begun(running)
    await client.pause(WHY, 0.0)
    end = (await collected(running))[-1]
    assert (end.outcome, end.reason) == (Outcome.FAILED, Reason.ENGINE)
    assert WHY in end.detail
    client.resume()
    assert (await ask(client, 14))[0].startswith(code(14))


async def test_a_child_that_is_killed_while_it_leaves_costs_what_a_kill_costs(client):
    running, behind = client.run(await long_answer(client)), await question(client, 15)
    await begun(running)
    pausing = asyncio.create_task(client.pause(WHY, SOON))
    later = asyncio.create_task(collected(client.run(behind)))
    await soon(lambda: client.state is ChildState.PAUSED)
    os.kill(client.pid, signal.SIGKILL)
    assert (await collected(running))[-1].outcome is Outcome.FAILED
    await pausing
    assert client.state is ChildState.PAUSED
    client.resume()
    assert said(await later).startswith(code(15))


async def test_what_was_computed_of_a_floor_is_kept_and_the_rest_is_computed_afterwards(client):
    (ids,) = await client.encode([TEXT * 12])
    client.put_floor("long", ids_to_bytes(ids))
    job = InferenceJob(0, "long", b"", owner=0, max_tokens=0, urgency=Urgency.BACKGROUND)
    messages, moved = [], asyncio.Event()

    async def compute():
        async for message in client.run(job):
            messages.append(message)
            if isinstance(message, PrefillProgress):
                moved.set()

    computing = asyncio.create_task(compute())
    await moved.wait()
    await client.pause(WHY, 10.0)
    assert not any(isinstance(message, Completion) for message in messages)
    client.resume()
    await computing
    first, again = (message for message in messages if isinstance(message, Admitted))
    assert messages[-1].outcome is Outcome.DONE
    assert from_cache(again, Tier.DISK) > from_cache(first, Tier.DISK)


async def test_a_pause_while_the_model_is_loading_ends_the_load_and_a_stop_ends_the_pause(quoter_model):
    client = EngineClient(EngineSpec(model=str(quoter_model), threads=1))
    client.start()
    ready = asyncio.create_task(client.ensure_ready())
    await soon(lambda: client.pid is not None)
    pid = client.pid
    await client.pause(WHY, 10.0)
    assert is_gone(pid)
    client.resume()
    await ready
    await client.pause(WHY, 10.0)
    await client.stop()
    assert client.state is ChildState.STOPPED


async def test_an_engine_that_begins_paused_has_no_process_until_it_is_resumed():
    client = EngineClient(EngineSpec(FAKE))
    client.start(paused=WHY)
    try:
        assert (client.state, client.reason, client.pid) == (ChildState.PAUSED, WHY, None)
        client.paused_for("another reason")
        assert client.reason == "another reason"
        waiting = asyncio.create_task(client.encode(["a"]))
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.shield(waiting)
        assert client.pid is None
        client.resume()
        assert (await waiting)[0].tolist() == [97]
    finally:
        await client.stop()
