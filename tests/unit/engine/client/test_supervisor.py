"""Whatever ends a child, or keeps one from being started, whoever waits for it is told; nothing dies unseen."""

import asyncio
import os
import re
import resource
import signal
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from types import SimpleNamespace

import anyio
import pytest
from support.real_engine import next_child
from support.waiting import SOON

from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import ChildState, EngineUnavailable
from orchestrator.engine.model import EngineSpec
from orchestrator.model.chat_model import arriving

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr("orchestrator.engine.client.supervisor.FIRST_PAUSE", 0.01)


@pytest.fixture
def no_process(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))


@asynccontextmanager
async def engine(model="fake", heard=lambda _: None):
    client = EngineClient(EngineSpec(model))
    client.on_snapshot(heard)
    client.start()
    try:
        with anyio.fail_after(SOON):
            yield client
    finally:
        await client.stop()


async def broken(client):
    """Why it was given up; it may have answered before."""
    while True:
        try:
            await client.encode(())
        except EngineUnavailable as error:
            if error.broken:
                return str(error)


@pytest.mark.usefixtures("no_process")
async def test_a_process_that_cannot_be_started_is_tried_five_times_and_whoever_waits_is_told():
    async with engine() as client:
        with pytest.raises(EngineUnavailable, match=r"5 times .* cannot be started: .*no python") as refused:
            await client.ensure_ready()
        assert refused.value.broken
        assert (client.state, client.restarts, client.pid) == (ChildState.BROKEN, 5, None)


async def test_a_process_that_cannot_be_started_for_a_moment_is_started_after_it(monkeypatch, tmp_path):
    monkeypatch.setattr("orchestrator.engine.client.supervisor.FIRST_PAUSE", 0.1)
    asyncio.get_running_loop().call_later(0.2, monkeypatch.setattr, sys, "executable", sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    async with engine() as client:
        assert (await client.encode(["a"]))[0].tolist() == [97]
        assert client.restarts >= 1


@pytest.fixture
def no_descriptors():
    """While it is entered this process gets none, as on a machine that has none left."""

    @contextmanager
    def taken():
        free = os.dup(0)
        os.close(free)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    return taken


async def test_what_the_machine_lacks_for_a_process_is_waited_for_is_told_and_is_not_counted_against_the_model(
    no_descriptors, monkeypatch, caplog
):
    monkeypatch.setattr("orchestrator.engine.client.supervisor.LONGEST_PAUSE", 0.02)
    async with engine() as client:
        with no_descriptors(), pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):  # some twenty times
                await client.ensure_ready()
        assert client.state in (ChildState.BACKOFF, ChildState.STARTING)
        assert re.search(r"process cannot be started now: .*Too many open files; it is tried again", client.reason)
        assert (await client.encode(["a"]))[0].tolist() == [97]
        assert (client.restarts, client.reason) == (0, "")
    assert caplog.text.count("cannot be started now") == 1


async def test_a_child_that_ended_is_replaced_once_the_machine_can_and_the_reason_says_why_not_yet(
    no_descriptors, monkeypatch
):
    monkeypatch.setattr("orchestrator.engine.client.supervisor.LONGEST_PAUSE", 0.02)
    async with engine() as client:
        await client.ensure_ready()
        with no_descriptors():
            os.kill(client.pid, signal.SIGKILL)
            while "cannot be started now" not in client.reason:
                with suppress(TimeoutError, EngineUnavailable):
                    async with asyncio.timeout(0.1):
                        await client.encode(["x"])
        await next_child(client)
        assert client.restarts == 1


async def test_a_child_that_says_nothing_while_it_loads_is_ended_from_outside_and_the_next_one_answers(monkeypatch):
    monkeypatch.setattr("orchestrator.engine.client.supervisor.FIRST_PAUSE", 0.2)
    monkeypatch.setattr("orchestrator.model.chat_model.LOOK_SECONDS", 0.001)
    reasons = set()
    with monkeypatch.context() as impatient:
        impatient.setattr("orchestrator.engine.client.supervisor.MOST_SILENCE", 0.01)
        async with engine() as client:
            ready = asyncio.ensure_future(client.ensure_ready())
            async for _ in arriving(ready, client):
                reasons.add(client.reason)
                if client.restarts:
                    impatient.undo()
            assert (await client.encode(["a"]))[0].tolist() == [97]
            assert client.restarts == 1
    assert any(re.search(r"said nothing for 0 s while its model was loading, killed by signal 9", it) for it in reasons)


@pytest.mark.usefixtures("no_process")
async def test_ends_count_by_the_time_that_children_served_and_not_by_how_long_they_took_to_load(monkeypatch):
    hours = count(0.0, 3600.0)
    monkeypatch.setattr("orchestrator.engine.client.supervisor.time", SimpleNamespace(monotonic=lambda: next(hours)))
    async with engine() as client:
        assert "5 times" in await broken(client)


async def test_a_model_that_cannot_be_loaded_is_told_also_where_its_process_then_hangs(monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import atexit, signal; atexit.register(signal.pause)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("orchestrator.engine.client.process.GRACE_SECONDS", 0.1)
    model = tmp_path / "nothing.gguf"
    model.write_bytes(b"GGUF" + bytes(64))
    async with engine(str(model)) as client:
        with pytest.raises(EngineUnavailable, match=r"nothing\.gguf"):
            await client.ensure_ready()
        assert client.pid is None


async def test_a_message_that_cannot_be_taken_ends_its_child_and_the_next_one_answers(caplog):
    faults = iter([ValueError("a fault of ours")])

    def fail_once(_):
        if (fault := next(faults, None)) is not None:
            raise fault

    async with engine(heard=fail_once) as client:
        await next_child(client)
        assert (await client.encode(["a"]))[0].tolist() == [97]
        assert client.restarts == 1
    assert "could not be taken: ValueError: a fault of ours" in caplog.text


async def test_where_no_message_can_be_taken_the_engine_is_given_up_and_says_why():
    def fail(_):
        raise ValueError("a fault of ours")

    async with engine(heard=fail) as client:
        assert "a fault of ours" in await broken(client)
        assert client.pid is None


async def test_that_a_child_is_gone_and_holds_nothing_is_told_at_once():
    told = []
    async with engine(heard=lambda snapshot: told.append((client.state, snapshot.kv_bytes))) as client:
        await client.ensure_ready()
        os.kill(client.pid, signal.SIGKILL)
        await next_child(client)
        assert (ChildState.BACKOFF, 0) in told
