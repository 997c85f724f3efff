"""How far a load is, by llama.cpp's reports and by the kernel's, and how it is known to move."""

import ctypes
import mmap
import queue
import socket
import threading
import time
from pathlib import Path

import llama_cpp as lib
import pytest
from support.waiting import SOON

from orchestrator.engine.child import worker
from orchestrator.engine.child.worker import Watchdog
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.llama.loading import PAGE, LoadProgress, faults, reported
from orchestrator.engine.messages import EngineReady, ModelLoading, Shutdown
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.transport import Wire

MIB = 1 << 20


def touched(size: int) -> mmap.mmap:
    """Memory that the process has had to take."""
    memory = mmap.mmap(-1, size)
    for at in range(0, size, PAGE):
        memory[at] = 1
    return memory


def test_a_load_is_as_far_as_llama_cpp_says() -> None:
    progress = LoadProgress()
    assert progress.fraction() == 0.0
    progress.place(0.43)
    assert progress.fraction() == 0.43


def test_a_load_of_which_llama_cpp_says_nothing_is_as_far_as_the_memory_that_was_taken() -> None:
    progress = LoadProgress()
    progress.begin(64 * MIB)
    held = touched(32 * MIB)
    assert progress.fraction() == pytest.approx(0.5, abs=0.1)
    held.close()


def test_memory_that_was_taken_before_and_memory_without_end_are_no_more_than_the_model() -> None:
    held = touched(16 * MIB)
    progress = LoadProgress()
    progress.begin(8 * MIB)
    assert progress.fraction() < 0.5
    more = touched(16 * MIB)
    assert progress.fraction() == 1.0
    held.close(), more.close()


def test_each_percent_is_reported_once() -> None:
    progress = LoadProgress()
    assert progress.report() is None
    progress.place(0.431)
    assert progress.report() == ModelLoading(0.431)
    progress.place(0.439)
    assert progress.report() is None
    progress.place(0.44)
    assert progress.report() == ModelLoading(0.44)


def test_what_was_reported_is_reported_again_where_it_is_wanted_and_never_less() -> None:
    progress = LoadProgress()
    assert progress.report(again=True) == ModelLoading(0.0)
    progress.place(0.5)
    assert progress.report() == ModelLoading(0.5)
    progress.place(0.25)
    assert progress.report() is None
    assert progress.report(again=True) == ModelLoading(0.5)


def test_no_percent_is_taken_back_when_it_is_reported_again() -> None:
    """0.29 of a hundred are 28.999…"""
    progress = LoadProgress()
    for percent in range(1, 101):
        progress.place(percent / 100 + 0.001)
        reports = [progress.report()]
        progress.place(0.0)
        reports += [progress.report(again=True), progress.report(again=True)]
        assert [int(100 * one.fraction) for one in reports if one is not None] == [percent] * 3


def test_what_llama_cpp_calls_back_lets_it_go_on_loading() -> None:
    callback = lib.llama_progress_callback(LoadProgress().place)
    assert all(callback(fraction, ctypes.c_void_p()) is True for fraction in (0.0, 0.5, 1.0, float("nan")))


def test_a_load_moves_while_its_own_thread_takes_pages_and_not_while_another_one_does() -> None:
    progress = LoadProgress()
    before = progress.signs()
    other = threading.Thread(target=lambda: touched(MIB).close())
    other.start()
    other.join()
    alone = faults(threading.get_native_id())
    touched(4 * MIB).close()
    assert faults(threading.get_native_id()) > alone
    assert progress.signs() != before


def test_a_thread_that_there_is_not_has_no_faults() -> None:
    assert faults(-1) == 0


def test_what_is_new_is_reported_until_the_load_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.engine.llama.loading.LOOK_SECONDS", 0.001)
    progress, sent = LoadProgress(), queue.SimpleQueue[ModelLoading]()
    progress.place(0.25)
    with reported(progress, lambda messages: [sent.put(message) for message in messages] and None):
        assert sent.get(timeout=SOON) == ModelLoading(0.25)
    progress.place(0.5)
    assert {sent.get() for _ in range(sent.qsize())} <= {ModelLoading(0.25)}, (
        "what was reported again as a sign of life"
    )
    assert "loading" not in {thread.name for thread in threading.enumerate()}


def test_a_child_speaks_also_while_it_looks_through_what_is_kept_and_is_ready_after_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a slow disk that takes minutes, in which it would be taken for one that hangs."""
    monkeypatch.setattr("orchestrator.engine.llama.loading.LOOK_SECONDS", 0.001)
    monkeypatch.setattr("orchestrator.engine.llama.loading.HEARTBEAT", 1)
    ours, theirs = socket.socketpair()
    ours.settimeout(SOON)
    wire, looked = Wire(ours), list[object]()
    heard = wire.receive()
    monkeypatch.setattr("orchestrator.engine.costs.sweep", lambda *_: looked.extend(next(heard) for _ in range(3)))
    spec = EngineSpec("fake", threads=1, cache_folder=str(tmp_path), disk_budget=1 << 20)
    with ours:
        child = worker.begun(spec, Wire(theirs), Watchdog(time.monotonic, worker.overrun))
        assert child is not None
        assert looked == [ModelLoading(0.0)] * 3
        running = threading.Thread(target=child.run)
        running.start()
        assert isinstance(next(message for message in heard if not isinstance(message, ModelLoading)), EngineReady)
        wire.send([Shutdown()])
        running.join(SOON)
        assert not running.is_alive()


def test_a_real_model_is_loaded_to_its_end_and_shows_signs_of_life(quoter_model: Path) -> None:
    progress = LoadProgress()
    before = progress.signs()
    backend = LlamaBackend(EngineSpec(str(quoter_model), threads=1, gpu_layers=0), progress)
    backend.close()
    assert progress.fraction() == 1.0
    assert progress.signs() != before
    assert 0.9 * backend.info.weight_bytes < backend.info.mapped_bytes <= backend.info.weight_bytes
