"""What a child is started in, and its end."""

import asyncio
import socket
import sys
import threading

import pytest

from orchestrator.engine.client.process import ChildProcess, ended, environment_of
from orchestrator.engine.messages import OVERRUN_STATUS
from orchestrator.engine.model import EngineSpec


def test_what_the_user_told_the_c_library_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")
    assert environment_of(EngineSpec("fake"))["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1:glibc.malloc.hugetlb=0"
    monkeypatch.delenv("GLIBC_TUNABLES")
    assert environment_of(EngineSpec("fake"))["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"


def test_a_card_that_was_chosen_is_the_only_one_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "CUDA_VISIBLE_DEVICES" not in environment_of(EngineSpec("fake"))
    assert environment_of(EngineSpec("fake", gpu="1"))["CUDA_VISIBLE_DEVICES"] == "1"


def test_how_a_child_ended_is_told_in_words_and_its_watchdog_by_name() -> None:
    assert ended(0) == "exit status 0"
    assert ended(-9) == "killed by signal 9"
    assert ended(OVERRUN_STATUS).startswith("exit status 86: something did not come back from llama.cpp")


@pytest.mark.anyio
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio needs no thread to wait for a process")
async def test_a_machine_without_a_thread_to_spare_lacks_what_a_process_needs() -> None:
    before = threading.stack_size(1 << 46)  # of which there is no room for one
    try:
        with pytest.raises(OSError, match="can't start new thread"):
            await ChildProcess.start(EngineSpec("fake"))
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
        await ChildProcess.start(EngineSpec("fake"))


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
        child = ChildProcess(process, ours)  # type: ignore[arg-type]
        child._reader, child._writer = await asyncio.open_connection(sock=ours)
        stopping = asyncio.create_task(child.stop())
        for _ in range(3):
            await asyncio.sleep(0)
        process.over.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        given_up = stopping.cancel()
        await asyncio.wait([stopping])
        assert stopping.cancelled() == given_up
