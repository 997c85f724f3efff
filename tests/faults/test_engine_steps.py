"""Steps of the real child that fail or find no memory: what is told, answered all the same, or given up."""

import logging
import os
import re
import resource
import signal
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import anyio
import psutil
import pytest
from support.real_engine import ask, code, collected, engine, load, long_answer, question, said

from orchestrator.answering.inference import fault_of
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import ChildState, EngineUnavailable
from orchestrator.engine.messages import AnswerDelta, Grant, InferenceJob, Outcome, Reason, ids_to_bytes

pytestmark = pytest.mark.anyio

MIB = 1 << 20


# ---- a step that fails -----------------------------------------------------------------------------------------------


async def test_a_step_that_fails_costs_no_process_and_the_question_is_answered(
    quoter_model: Path, fault: Callable[[str], None]
) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        fault("fail")
        text, end = await ask(client, 33)
        assert (text, end.outcome, client.restarts) == (code(33), Outcome.DONE, 0)
        with anyio.fail_after(60):  # what counts it may come behind the answer
            while not client.snapshot.counters["pool_failures"]:
                await client.next_snapshot()
        assert client.snapshot.counters["pool_failures"] == 1


async def test_a_question_that_llama_cpp_would_refuse_is_refused_alone_while_another_floor_answers(
    quoter_model: Path,
) -> None:
    async with engine(quoter_model, sequences=4) as client:
        await load(client)
        async with aclosing(client.run(await long_answer(client))) as other:
            messages = [await anext(other)]
            while not isinstance(messages[-1], AnswerDelta):
                messages.append(await anext(other))
            no_token = InferenceJob(0, "codex", ids_to_bytes([2**30]), 1, 5)
            refused = (await collected(client.run(no_token)))[-1]
            messages += await collected(other)
        assert (refused.outcome, refused.reason) == (Outcome.REFUSED, Reason.TOKENS)
        assert (messages[-1].outcome, messages[-1].generated) == (Outcome.DONE, 300)
        assert ((await ask(client, 20))[0], client.restarts) == (code(20), 0)


async def test_an_answer_that_had_begun_fails_with_a_fault_that_may_be_tried_again(
    quoter_model: Path, fault: Callable[[str], None]
) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        async with aclosing(client.run(await long_answer(client))) as stream:
            async for message in stream:
                if isinstance(message, AnswerDelta):
                    break
            fault("fail")
            rest = await collected(stream)
        assert (rest[-1].outcome, rest[-1].reason, client.restarts) == (Outcome.FAILED, Reason.ENGINE, 0)
        told = fault_of(rest[-1])
        assert told.message == "the engine failed (a step that fails on demand)"
        assert (told.hint, told.retry_after) == ("ask again", 1.0)


async def test_a_backend_that_fails_every_step_ends_the_child_and_the_question_fails_in_the_next(
    quoter_model: Path, fault: Callable[[str], None]
) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        jobs = [await question(client, vault) for vault in (10, 11, 12)]
        fault("every fail")
        ends = [(await collected(client.run(job)))[-1] for job in jobs]
        assert {(end.outcome, end.reason) for end in ends} == {(Outcome.FAILED, Reason.ENGINE)}
        assert client.restarts >= 1
        fault("")
        assert (await ask(client, 13))[0] == code(13)


async def test_a_question_that_waits_for_the_next_child_is_not_lost_when_that_one_ends_or_fails_while_it_loads(
    quoter_model: Path, fault: Callable[[str], None]
) -> None:
    for loading in ("load abort", "load fail"):
        async with engine(quoter_model) as client:
            await load(client)
            job = await question(client, 14)
            os.kill(client.pid or 0, signal.SIGKILL)
            fault(loading)
            messages = await collected(client.run(job))
            assert (said(messages), messages[-1].outcome) == (code(14), Outcome.DONE)
            assert client.restarts == 2


# ---- no memory -------------------------------------------------------------------------------------------------------


async def test_where_memory_ends_a_large_floor_fails_with_words_or_the_child_is_replaced_and_small_ones_are_answered(
    quoter_model: Path,
) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        assert (await ask(client, 21))[0] == code(21)
        pid = client.pid or 0
        client.grant(Grant(2, 2_000_000, 1_000_000))
        client.put_floor("large", ids_to_bytes([number % 3000 for number in range(600_000)]))
        limit_memory(pid, 64 * MIB)
        end = (await collected(client.run(InferenceJob(0, "large", b"", 0, 0))))[-1]
        assert end.outcome is Outcome.FAILED
        assert re.search(r"context of 6\d\d\d\d\d tokens|engine ended", end.detail)
        text, _ = await ask(client, 22)
        assert text == code(22)
        assert client.state is ChildState.READY


async def test_a_step_that_finds_no_memory_ends_the_child_and_the_next_one_answers(
    quoter_model: Path, fault: Callable[[str], None]
) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        fault("memory")
        text, end = await ask(client, 23)
        assert (text, end.outcome, client.restarts) == (code(23), Outcome.DONE, 1)


async def test_a_model_for_which_there_is_no_memory_is_reported_broken_and_not_tried_for_ever(
    quoter_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import resource\n"
        "import orchestrator.engine.llama.backend\n"
        "import psutil\n"
        f"most = psutil.Process().memory_info().vms + {4 * MIB}\n"
        "resource.setrlimit(resource.RLIMIT_AS, (most, most))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("REAL_PROCESSES", "1")  # a fork has memory to spare
    monkeypatch.setattr("orchestrator.engine.client.supervisor.MOST_ENDS", 2)
    async with engine(quoter_model) as client:
        with pytest.raises(EngineUnavailable) as refused:
            await client.ensure_ready()
        assert refused.value.broken
        assert client.state is ChildState.BROKEN


def limit_memory(pid: int, more: int) -> None:
    most = psutil.Process(pid).memory_info().vms + more
    resource.prlimit(pid, resource.RLIMIT_AS, (most, most))


# ---- ends that repeat ------------------------------------------------------------------------------------------------


async def test_ends_that_repeat_within_a_minute_report_the_model_broken_and_whoever_asks_is_told(
    quoter_model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("orchestrator.engine.client.supervisor.MOST_ENDS", 2)
    caplog.set_level(logging.WARNING)
    async with engine(quoter_model) as client:
        for _ in range(2):
            await client.ensure_ready()
            pid = client.pid or 0
            os.kill(pid, signal.SIGKILL)
            while client.pid == pid:
                await the_next_turn(client)
        with pytest.raises(EngineUnavailable, match="2 times within 60 s") as refused:
            await client.ensure_ready()
        assert refused.value.broken
        with pytest.raises(EngineUnavailable, match="another model"):
            await anext(client.run(InferenceJob(0, "codex", b"", 0, 0)))
        assert (client.state, client.pid) == (ChildState.BROKEN, None)
    assert caplog.text.count("killed by signal 9") == 2


async def test_a_ticket_that_ends_every_child_is_given_up_and_the_model_is_not(
    quoter_model: Path, fault: Callable[[str], None]
) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        fault("every abort")
        (*_, end) = await collected(client.run(await question(client, 30)))
        fault("")
        assert (end.outcome, end.reason, client.restarts) == (Outcome.FAILED, Reason.ENGINE, 2)
        await client.ensure_ready()
        assert (await ask(client, 31))[0] == code(31)


async def the_next_turn(client: EngineClient) -> None:
    """Lets the supervisor see what happened to its child."""
    try:
        await client.encode(())
    except EngineUnavailable:
        return
