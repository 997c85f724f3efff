"""Cancelling in the real child, counted in steps and not in time; and more conversations than llama.cpp has sequences.

The child's frontend takes messages in order beside a running step. So when an encoding that was asked for behind a Cancel
has come back, the loop finds that Cancel before its next step: at most the step that was running may still be reported.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.real_engine import TEXT, engine

from orchestrator.engine.client.supervisor import ChildProcess
from orchestrator.engine.messages import (
    Admitted,
    AnswerDelta,
    Cancel,
    Completion,
    Encode,
    Encoded,
    EngineReady,
    Grant,
    InferenceJob,
    Outcome,
    PrefillProgress,
    PutFloor,
    Sampling,
    Tier,
    ids_to_bytes,
)
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.snapshot import EngineSnapshot

pytestmark = pytest.mark.anyio

FLOOR = [number % 3000 for number in range(4000)]
FENCE = 99
GRANT = Grant(1, 16_384, 8192)


@asynccontextmanager
async def child(model: Path, batch: int = 128) -> AsyncIterator[tuple[ChildProcess, AsyncIterator[Any]]]:
    """The process itself, without the client that hides what comes after a Cancel."""
    process = await ChildProcess.start(EngineSpec(str(model), threads=1, gpu_layers=0, batch=batch))
    messages = process.messages()
    try:
        await until(messages, EngineReady)
        process.send([GRANT, PutFloor("floor", ids_to_bytes(FLOOR))])
        yield process, messages
    finally:
        await process.stop()


async def until(messages: AsyncIterator[Any], kind: type) -> list[Any]:
    """What comes, up to the first message of a kind."""
    found = []
    async for message in messages:
        found.append(message)
        if isinstance(message, kind):
            return found
    raise AssertionError(f"the child ended before it told {kind.__name__}")


async def cancelled(process: ChildProcess, messages: AsyncIterator[Any], ticket: int) -> list[Any]:
    """What is told behind the fence, up to the ticket's end."""
    process.send([Cancel(ticket), Encode(FENCE, ("x",))])
    before = await until(messages, Encoded)
    ends = [message for message in before if isinstance(message, Completion)]
    return ends or await until(messages, Completion)


async def idle_pools(process: ChildProcess, messages: AsyncIterator[Any]) -> EngineSnapshot:
    """An idle child tells its picture once, which may have been read by now, and again when it is told anything."""
    process.send([GRANT])
    while True:
        snapshot = (await until(messages, EngineSnapshot))[-1]
        assert isinstance(snapshot, EngineSnapshot)
        if not snapshot.running and not snapshot.waiting:
            return snapshot


def assert_all_given_back(snapshot: EngineSnapshot) -> None:
    for pool in snapshot.pools:
        assert (pool.reserved, pool.leased) == (0, 0)
        assert pool.free + pool.reserved + pool.evictable == pool.size


async def test_a_prefill_is_cancelled_within_one_step_and_what_it_computed_stays(quoter_model: Path) -> None:
    async with child(quoter_model) as (process, messages):
        process.send([InferenceJob(1, "floor", b"", 1, 5)])
        told = await until(messages, PrefillProgress)
        assert told[-1].done < len(FLOOR) / 2, "this prefill is too short to be cancelled"
        rest = await cancelled(process, messages, 1)
        assert sum(isinstance(message, PrefillProgress) for message in rest) <= 1
        assert rest[-1].outcome is Outcome.CANCELLED
        assert 0 < rest[-1].computed < len(FLOOR)
        snapshot = await idle_pools(process, messages)
        assert_all_given_back(snapshot)
        assert sum(pool.evictable for pool in snapshot.pools) == rest[-1].computed


async def test_an_answer_is_cancelled_within_one_step_and_everything_reserved_is_given_back(quoter_model: Path) -> None:
    async with child(quoter_model) as (process, messages):
        process.send([Encode(1, (TEXT[:500], "\n" + "tick tock " * 6 + "tick"))])
        (*_, encoded) = await until(messages, Encoded)
        process.send([PutFloor("small", encoded.ids[0])])
        process.send([InferenceJob(1, "small", encoded.ids[1], 1, 4000, Sampling(logprobs=0))])
        await until(messages, AnswerDelta)
        rest = await cancelled(process, messages, 1)
        assert sum(isinstance(message, AnswerDelta) for message in rest) <= 1
        assert rest[-1].outcome is Outcome.CANCELLED
        assert 0 < rest[-1].generated < 4000
        assert_all_given_back(await idle_pools(process, messages))


async def test_one_of_many_is_cancelled_and_the_others_are_answered(quoter_model: Path) -> None:
    async with child(quoter_model) as (process, messages):
        tails = [ids_to_bytes([3000 + number, 5]) for number in range(8)]
        process.send([PutFloor("half", ids_to_bytes(FLOOR[:2000]))])
        process.send([InferenceJob(number, "half", tail, number, 6) for number, tail in enumerate(tails, start=1)])
        await until(messages, PrefillProgress)
        process.send([Cancel(3), Cancel(3), Cancel(77)])
        ends: dict[int, Completion] = {}
        while len(ends) < 8:
            end = (await until(messages, Completion))[-1]
            assert end.ticket not in ends, "a ticket ended twice"
            ends[end.ticket] = end
        assert {number for number, end in ends.items() if end.outcome is Outcome.CANCELLED} == {3}
        assert_all_given_back(await idle_pools(process, messages))


async def test_a_client_that_goes_cancels_what_it_asked(quoter_model: Path) -> None:
    async with engine(quoter_model) as client:
        client.put_floor("floor", ids_to_bytes(FLOOR))
        async with aclosing(client.run(InferenceJob(0, "floor", b"", 1, 5))) as stream:
            async for message in stream:
                if isinstance(message, PrefillProgress):
                    break
        before = client.snapshot.steps
        while client.snapshot.running or client.snapshot.steps == 0:
            await asyncio.sleep(0)
            await client.encode(())
        # A picture comes some steps late; all of the floor takes 32.
        assert client.snapshot.steps - before < 16, "what nobody waits for was computed on"


# ---- more conversations than sequences -------------------------------------------------------------------------------


@pytest.mark.parametrize(("many", "sequences"), [(50, 16), (280, 256)])
async def test_more_conversations_than_sequences_are_answered_and_their_tails_come_back(
    quoter_model: Path, tmp_path: Path, many: int, sequences: int
) -> None:
    """All of one turn at once; the second turn goes on from what the first one left."""
    async with engine(quoter_model, tmp_path, sequences=sequences, batch=512) as client:
        (floor,) = await client.encode([TEXT[:400]])
        client.put_floor("small", ids_to_bytes(floor))
        tails = [[3000 + number // 60, 60 + number % 60, *range(100, 110)] for number in range(many)]

        async def turn(owner: int, tail: list[int]) -> list[Any]:
            job = InferenceJob(0, "small", ids_to_bytes(tail), owner + 1, 1)
            return [message async for message in client.run(job)]

        first = await asyncio.gather(*(turn(number, tail) for number, tail in enumerate(tails)))
        longer = [[*tail, 7, 8, 9] for tail in tails]
        second = await asyncio.gather(*(turn(number, tail) for number, tail in enumerate(longer)))
        assert {messages[-1].outcome for messages in (*first, *second)} == {Outcome.DONE}
        assert sum(messages[-1].computed for messages in first) == len(floor) + sum(map(len, tails))
        assert all(messages[-1].computed <= 4 for messages in second), "a tail was computed again"
        tiers = [part.tier for messages in second for part in admitted(messages).reuse]
        assert tiers.count(Tier.DISK) >= many - sequences
        assert client.restarts == 0


def admitted(messages: list[Any]) -> Admitted:
    (found,) = [message for message in messages if isinstance(message, Admitted)]
    return found
