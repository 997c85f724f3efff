"""Whatever ends a child, or keeps one from being started, whoever waits for it is told; nothing dies unseen."""

import asyncio
import errno
import inspect
import os
import re
import signal
import socket
import sys
import threading
from contextlib import asynccontextmanager, suppress
from itertools import count
from types import SimpleNamespace

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_engine import FAKE
from support.real_engine import next_child
from support.scarce_descriptors import no_descriptors
from support.waiting import SOON

from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import (
    ALLOWED,
    LONGEST_PAUSE,
    ChildProcess,
    ChildState,
    EngineUnavailable,
    after_end,
    ended,
    environment_of,
    is_lasting,
    is_model_fault,
    loading_words,
    pause_after,
)
from orchestrator.engine.messages import OVERRUN_STATUS
from orchestrator.engine.model import EngineSpec
from orchestrator.model.chat_model import arriving

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def at_once(monkeypatch, request):
    if not inspect.iscoroutinefunction(request.function):
        return  # the decisions, with the pauses as they are
    monkeypatch.setattr("orchestrator.engine.client.supervisor.FIRST_PAUSE", 0.01)


@pytest.fixture
def no_process(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))


@asynccontextmanager
async def engine(model=FAKE, kind=EngineClient):
    client = kind(EngineSpec(model))
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


async def test_what_the_machine_lacks_for_a_process_is_waited_for_is_told_and_is_not_counted_against_the_model(
    monkeypatch, caplog
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


async def test_a_child_that_ended_is_replaced_once_the_machine_can_and_the_reason_says_why_not_yet(monkeypatch):
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
    monkeypatch.setattr("orchestrator.engine.client.supervisor.GRACE_SECONDS", 0.1)
    model = tmp_path / "nothing.gguf"
    model.write_bytes(b"GGUF" + bytes(64))
    async with engine(str(model)) as client:
        with pytest.raises(EngineUnavailable, match=r"nothing\.gguf"):
            await client.ensure_ready()
        assert client.pid is None


async def test_a_message_that_cannot_be_taken_ends_its_child_and_the_next_one_answers(caplog):
    class FailingOnce(EngineClient):
        failed = False

        def _hear(self, message):
            if not self.failed:
                self.failed = True
                raise ValueError("a fault of ours")
            super()._hear(message)

    async with engine(kind=FailingOnce) as client:
        await next_child(client)
        assert (await client.encode(["a"]))[0].tolist() == [97]
        assert client.restarts == 1
    assert "could not be taken: ValueError: a fault of ours" in caplog.text


async def test_where_no_message_can_be_taken_the_engine_is_given_up_and_says_why():
    class Failing(EngineClient):
        def _hear(self, message):
            raise ValueError("a fault of ours")

    async with engine(kind=Failing) as client:
        assert "a fault of ours" in await broken(client)
        assert client.pid is None


async def test_that_a_child_is_gone_and_holds_nothing_is_told_at_once():
    async with engine() as client:
        await client.ensure_ready()
        await client.encode(())
        os.kill(client.pid, signal.SIGKILL)
        while client.state is ChildState.READY:
            await client.next_snapshot()
        assert (client.state, client.snapshot.kv_bytes) == (ChildState.BACKOFF, 0)


def test_what_the_user_told_the_c_library_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")
    assert environment_of(EngineSpec(FAKE))["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1:glibc.malloc.hugetlb=0"
    monkeypatch.delenv("GLIBC_TUNABLES")
    assert environment_of(EngineSpec(FAKE))["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"


def test_a_card_that_was_chosen_is_the_only_one_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "CUDA_VISIBLE_DEVICES" not in environment_of(EngineSpec(FAKE))
    assert environment_of(EngineSpec(FAKE, gpu="1"))["CUDA_VISIBLE_DEVICES"] == "1"


def test_how_a_child_ended_is_told_in_words_and_its_watchdog_by_name() -> None:
    assert ended(0) == "exit status 0"
    assert ended(-9) == "killed by signal 9, by somebody or by the kernel for want of memory"
    assert ended(-11) == "killed by signal 11"
    assert "instructions that this CPU refuses; compile it again" in ended(-4)
    assert ended(OVERRUN_STATUS).startswith("exit status 86: something did not come back from llama.cpp")


@pytest.mark.anyio
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio needs no thread to wait for a process")
async def test_a_machine_without_a_thread_to_spare_lacks_what_a_process_needs() -> None:
    before = threading.stack_size(1 << 46)  # of which there is no room for one
    try:
        with pytest.raises(OSError, match="can't start new thread"):
            await ChildProcess.start(EngineSpec(FAKE))
    finally:
        threading.stack_size(before)


@pytest.mark.anyio
async def test_a_fault_of_ours_at_the_start_is_not_taken_for_what_the_machine_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def faulty(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", faulty)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        await ChildProcess.start(EngineSpec(FAKE))


class Ending:
    """A process that ends when it is told to."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def wait(self) -> int:
        await self.over.wait()
        return 0


@pytest.mark.anyio
@pytest.mark.parametrize("turns", range(4))
async def test_waiting_for_a_child_can_be_given_up_also_as_it_ends(turns: int) -> None:
    process, (ours, theirs) = Ending(), socket.socketpair()
    with theirs:
        child = ChildProcess(process, *await asyncio.open_connection(sock=ours))  # type: ignore[arg-type]
        stopping = asyncio.create_task(child.stop())
        for _ in range(3):
            await asyncio.sleep(0)
        process.over.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        given_up = stopping.cancel()
        await asyncio.wait([stopping])
        assert stopping.cancelled() == given_up


def test_the_first_end_is_followed_by_a_short_pause_and_each_further_one_by_three_times_it() -> None:
    pauses = [after_end([0.0] * many, 1.0) for many in (1, 2, 3, 4)]
    assert [round(pause, 2) for pause in pauses if pause] == [0.1, 0.3, 0.9, 2.7]


def test_the_fifth_end_within_a_minute_gives_the_model_up() -> None:
    assert after_end([0, 10, 20, 30, 59], 59.5) is None


def test_ends_longer_ago_than_a_minute_are_forgotten() -> None:
    assert after_end([0, 1, 2, 3, 100], 100) == 0.1


@given(st.lists(st.floats(0, 1000), max_size=30), st.floats(0, 1000))
def test_a_pause_is_never_longer_than_the_longest(ends: list[float], now: float) -> None:
    pause = after_end(ends, now)
    assert pause is None or 0 < pause <= LONGEST_PAUSE


@given(st.integers(0, 10**9))
def test_a_pause_grows_with_what_came_to_nothing_and_is_never_longer_than_the_longest(times: int) -> None:
    assert 0 < pause_after(times) <= pause_after(times + 1) <= LONGEST_PAUSE


def test_what_the_machine_lacks_is_waited_for_and_a_file_that_is_not_there_is_not() -> None:
    passing = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOBUFS)
    assert not any(is_lasting(OSError(number, "")) for number in passing)
    assert is_lasting(FileNotFoundError(errno.ENOENT, "python"))
    assert is_lasting(PermissionError(errno.EACCES, "python"))


def test_the_reason_of_a_load_says_how_far_it_is_and_never_that_it_is_done() -> None:
    assert loading_words(0.0, again=False) == "the model is loading"
    assert loading_words(0.439, again=False) == "the model is loading, 43 %"
    assert loading_words(1.0, again=True) == "the model is loading again, 99 %"


def test_a_ticket_that_was_there_at_two_ends_is_at_fault_and_not_the_model() -> None:
    assert not is_model_fault([7, 8], [3, 8])
    assert is_model_fault([7, 8], [3])
    assert is_model_fault([], [3])


def test_every_state_has_its_row_and_none_leads_to_itself() -> None:
    assert set(ALLOWED) == set(ChildState)
    assert all(state not in then for state, then in ALLOWED.items())
    assert all(ChildState.STOPPED in then for state, then in ALLOWED.items() if state is not ChildState.STOPPED)
