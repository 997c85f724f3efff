"""Faults of the engine's real child process, on the real quoting model: killed, stopped, aborted, its disk full."""

import asyncio
import os
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.real_engine import ask, code, collected, engine, load, next_child, question, said

from orchestrator.engine.checkpoints.coding import coding_of
from orchestrator.engine.checkpoints.file import read_header, read_state
from orchestrator.engine.client import client as client_module
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import (
    Admitted,
    Completion,
    InferenceJob,
    Outcome,
    PrefillProgress,
    Reason,
    Urgency,
    ids_to_bytes,
)

pytestmark = pytest.mark.anyio


def states(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.kv"))


def leftovers(cache: Path) -> list[Path]:
    return list(cache.rglob("*.tmp"))


def flip_last_byte(model: Path, copy: Path) -> None:
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    copy.write_bytes(data)


def damage(paths: list[Path]) -> None:
    """A flipped byte in each file, at another place in each; every second one is cut too."""
    for number, path in enumerate(paths):
        data = bytearray(path.read_bytes())
        data[(len(data) - 1) * (number + 1) // (len(paths) + 1)] ^= 0x20
        path.write_bytes(data[: len(data) - number % 2])


@pytest.fixture(scope="module")
async def unharmed(quoter_model: Path) -> AsyncIterator[EngineClient]:
    """A client whose child no test ends."""
    async with engine(quoter_model) as client:
        await load(client)
        yield client


# ---- the process -----------------------------------------------------------------------------------------------------


async def test_the_child_imports_nothing_from_the_folder_it_is_started_in(
    quoter_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That may be a codebase which nobody trusts."""
    for name in ("orchestrator", "queue", "llama_cpp"):
        (tmp_path / f"{name}.py").write_text("from pathlib import Path; Path('ran').touch()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REAL_PROCESSES", "1")
    async with engine(quoter_model) as client:
        await load(client)
        assert (await ask(client, 37))[0] == code(37)
    assert not (tmp_path / "ran").exists()


async def test_a_child_that_ends_in_the_middle_of_a_prefill_is_replaced_and_the_question_answered(
    quoter_model: Path,
) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        first, told = client.pid, list[Any]()
        async with aclosing(client.run(await question(client, 37))) as stream:
            async for message in stream:
                told.append(message)
                if isinstance(message, PrefillProgress) and client.pid == first and message.done < message.total:
                    os.kill(first, signal.SIGSEGV)
        assert told[-1].outcome is Outcome.DONE
        assert said(told) == code(37)
        assert client.restarts == 1
        assert len([message for message in told if isinstance(message, Admitted)]) == 2


async def test_questions_that_waited_are_answered_by_the_next_child(quoter_model: Path) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        streams = [client.run(await question(client, vault)) for vault in (33, 35, 39)]
        os.kill(client.pid or 0, signal.SIGSTOP)  # so that none of them has said anything
        answers = [asyncio.ensure_future(collected(stream)) for stream in streams]
        await asyncio.sleep(0)
        os.kill(client.pid or 0, signal.SIGKILL)
        texts = [said(await answer) for answer in answers]
        assert texts == [code(33), code(35), code(39)]


async def test_a_child_that_hangs_is_ended_by_the_heartbeat_and_its_question_is_answered(
    quoter_model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client_module, "HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr(client_module, "PATIENCE_SECONDS", 5.0)  # a child that is only slow is not ended
    async with engine(quoter_model) as client:
        await load(client)
        first = client.pid or 0
        async with aclosing(client.run(await question(client, 20))) as stream:
            waiting = anext(stream)
            os.kill(first, signal.SIGSTOP)
            messages = [await waiting, *[message async for message in stream]]
        assert client.pid != first
        assert messages[-1].outcome is Outcome.DONE
        assert not psutil.pid_exists(first)
    assert "answered nothing for 5 s and is ended" in caplog.text


async def test_a_hostile_schema_is_refused_and_the_child_lives(unharmed: EngineClient) -> None:
    _, first = await ask(unharmed, 15)
    for schema in ('{"const": "' + "(" * 50_000 + '"', '{"type": "string", "pattern": "^a{999999999}$"}', "[]"):
        _, end = await ask(unharmed, 15, schema=schema)
        assert (end.outcome, end.reason) == (Outcome.REFUSED, Reason.SCHEMA)
    assert (unharmed.restarts, first.outcome) == (0, Outcome.DONE)


async def test_every_setting_of_the_sampler_is_taken_by_the_real_child(unharmed: EngineClient) -> None:
    every = {"temperature": 0.2, "seed": 3, "repeat_penalty": 1.01, "min_p": 0.05, "top_p": 0.9, "logprobs": 3}
    text, end = await ask(unharmed, 18, **every)
    assert (text, end.outcome) == (code(18), Outcome.DONE)
    _, end = await ask(unharmed, 18, schema='{"type": "array", "items": {"type": "boolean"}, "maxItems": 2}')
    assert (end.outcome, unharmed.restarts) == (Outcome.DONE, 0)


# ---- its checkpoints -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [b"", b"k" * 32], ids=["plain", "encrypted"])
async def test_a_child_killed_while_it_writes_leaves_no_file_that_is_believed_and_wrong(
    quoter_model: Path, tmp_path: Path, key: bytes
) -> None:
    coding = coding_of(key)
    for wanted in (0, 2):
        cache = tmp_path / str(wanted)
        async with engine(quoter_model, cache, key=key) as client:
            await load(client)
            async with aclosing(client.run(await question(client, 10 + wanted))) as stream:
                async for _ in stream:
                    if len(states(cache)) >= wanted:
                        break
            os.kill(client.pid or 0, signal.SIGKILL)
            await next_child(client)
            assert (await ask(client, 34))[0] == code(34)
    for path in states(tmp_path):
        read_state(path, read_header(path, coding), coding)


async def test_a_stopped_engine_has_written_its_floor_and_the_next_one_restores_it(
    quoter_model: Path, first_answer: tuple[Path, Completion], cache: Path
) -> None:
    _, cold = first_answer
    async with engine(quoter_model, cache) as client:
        await load(client)
        text, warm = await ask(client, 11)
        assert text == code(11)
        assert warm.computed < cold.computed / 20


async def test_damaged_checkpoints_are_misses_and_the_answer_is_right(quoter_model: Path, cache: Path) -> None:
    damage(states(cache))
    async with engine(quoter_model, cache) as client:
        await load(client)
        text, end = await ask(client, 11)
        assert (text, end.outcome, end.cached, client.restarts) == (code(11), Outcome.DONE, 0, 0)


async def test_another_kv_type_or_attention_or_model_finds_nothing_and_computes(
    quoter_model: Path, cache: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "other.gguf"
    flip_last_byte(quoter_model, copy)
    others: list[tuple[Path, dict[str, Any]]] = [
        (quoter_model, {"kv_type_k": "f32", "kv_type_v": "f32"}),
        (quoter_model, {"flash_attention": True}),
        (copy, {}),
    ]
    for model, settings in others:
        async with engine(model, cache, **settings) as client:
            await load(client)
            text, end = await ask(client, 11)
            assert (text, end.cached, client.restarts) == (code(11), 0, 0)


async def test_a_full_disk_costs_the_checkpoints_and_nothing_else(
    quoter_model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with engine(quoter_model, tmp_path) as client:
        await load(client)
        resource.prlimit(client.pid or 0, resource.RLIMIT_FSIZE, (4096, 4096))
        assert (await ask(client, 10))[0] == code(10)
        assert (await ask(client, 11))[0] == code(11)
        assert client.restarts == 0
    assert states(tmp_path) == []
    assert leftovers(tmp_path) == []
    assert "was not written" in capfd.readouterr().err


async def test_after_a_kill_a_question_does_not_wait_for_a_floor_that_is_computed_in_the_background(quoter_model):
    async with engine(quoter_model) as client:
        await load(client)
        client.put_floor("large", ids_to_bytes([number % 3000 for number in range(3000)]))
        floor = InferenceJob(0, "large", b"", 0, 0, urgency=Urgency.BACKGROUND)
        asked = await question(client, 12)
        ended = list[str]()  # in the order of the engine's messages, however late this task looks

        async def until_ended(what: str, stream: AsyncIterator[Any]) -> list[Any]:
            messages = await collected(stream)
            ended.append(what)
            return messages

        async with aclosing(client.run(floor)) as computing:
            while not isinstance(await anext(computing), PrefillProgress):
                pass
            os.kill(client.pid, signal.SIGKILL)
            rest = asyncio.create_task(until_ended("floor", computing))
            messages = await until_ended("question", client.run(asked))
            assert (said(messages), messages[-1].outcome) == (code(12), Outcome.DONE)
            assert (await rest)[-1].outcome is Outcome.DONE
            assert ended == ["question", "floor"], "the question waited for the floor"
