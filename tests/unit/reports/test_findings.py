"""What facts of the machine mean, and that each fault has the command that mends it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.driver import Driver
from orchestrator.reports import findings
from orchestrator.reports.surroundings import Clock, DiskRate, EngineBuild, OpenPath, Server, Swap, Watches, Worth
from orchestrator.wire.checks import Check

GIB = 1024**3
CPU, CUDA_12 = EngineBuild("0.3"), EngineBuild("0.3", uses_gpu=True, cuda=True, runtime=(12, 4))
UNUSED = EngineBuild("0.3", cuda=True, runtime=(12, 4))
HERE = Path("/d")


def driver(cuda=(12, 4), engine=CUDA_12, told=None, cards=1):
    return findings.driver(told or Driver("550.54.14", cuda), cards, engine, "again")


def test_a_cuda_that_is_newer_than_the_driver_allows_needs_another_driver_or_another_build():
    found = driver(cuda=(11, 8))
    assert not found.ok
    assert found.detail == "NVIDIA 550.54.14, CUDA up to 11.8; the engine has CUDA 12.4, which this driver does not run"
    assert found.fix == "install a driver for CUDA 12.4 or newer, or compile with an older CUDA: again"


def test_within_a_major_version_it_is_a_fault_only_where_no_gpu_can_be_used():
    runs, fails = driver(cuda=(12, 2)), driver(cuda=(12, 2), engine=UNUSED)
    assert (runs.ok, bool(runs.fix), fails.ok) == (True, True, False)
    assert driver() == Check("driver", True, "NVIDIA 550.54.14, CUDA up to 12.4; the engine has CUDA 12.4")


def test_a_driver_that_is_missing_replaced_or_dead_has_its_own_words():
    assert findings.driver(None, 0, CPU, "").absent
    missing = findings.driver(None, 1, CPU, "")
    assert (missing.ok, "no driver" in missing.detail) == (False, True)
    assert driver(told=Driver(fault="mismatch", replaced=True)).fix == "sudo reboot"
    assert "modprobe" in driver(told=Driver(fault="Driver Not Loaded")).fix
    assert driver(engine=CPU).ok


def test_a_cpu_build_beside_a_gpu_is_told_from_a_build_that_finds_none():
    assert findings.gpu([], CPU, "again", None).absent
    assert findings.gpu(["X"], CUDA_12, "again", None).ok
    built = findings.gpu(["X"], CPU, "again", None)
    assert (built.ok, built.fix) == (False, f"{findings.NVCC}, then: again")
    assert findings.gpu(["X"], CPU, "again", "/usr/bin/nvcc").fix == "again"
    assert "built for CUDA" in findings.gpu(["X"], UNUSED, "again", None).detail


def test_another_server_is_a_fault_where_it_holds_the_memory_that_counts():
    ollama = Server(7, "ollama", ram=2 * GIB, gpu=0)
    on_card = findings.servers([ollama], gpu_counts=True)
    in_ram = findings.servers([ollama], gpu_counts=False)
    assert (on_card.ok, in_ram.ok) == (True, False)
    assert in_ram.fix.startswith("ollama stop MODEL")
    vllm = findings.servers([Server(8, "vLLM", GIB, 20 * GIB)], gpu_counts=True)
    assert vllm.detail.startswith("vLLM (pid 8, 20.0 GiB of the GPU, 1.0 GiB of RAM)")
    assert vllm.fix == "kill 8; to give way to it for a time: lore pause --for 1h"
    unsaid = findings.servers([Server(8, "vLLM", GIB, None)], gpu_counts=True)
    assert (unsaid.ok, "some of the GPU" in unsaid.detail) == (True, True)


def test_of_many_servers_a_line_names_a_few():
    found = findings.servers([Server(pid, "vLLM", 0) for pid in range(5)], gpu_counts=False)
    assert (found.detail.count("pid"), "and 2 more" in found.detail) == (3, True)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_raising_the_watches_as_told_mends_it(limit, others, folders):
    found = findings.watches(Watches(limit, others, folders))
    if not found.ok:
        raised = int(found.fix.rpartition("=")[2])
        assert findings.watches(Watches(raised, others, folders)).ok


def test_swap_is_a_fault_where_the_daemon_is_in_it():
    assert findings.swap(Swap(0, 0, 0, None)).ok
    assert findings.swap(Swap(8 * GIB, 4 * GIB, 0, None)).ok
    ours = findings.swap(Swap(8 * GIB, 4 * GIB, GIB, None))
    assert (ours.ok, "1.0 GiB of the daemon" in ours.detail) == (False, True)
    assert findings.swap(None).absent


def test_a_disk_is_slow_where_reading_takes_clearly_longer_than_computing():
    rate = DiskRate(HERE, written=1e6, read=1e6)
    assert findings.speed(rate, None).ok
    assert findings.speed(rate, Worth(bytes=1000, seconds=0.001)).ok
    slow = findings.speed(rate, Worth(bytes=2000, seconds=0.001))
    assert (slow.ok, "10,000 tokens: read in 20.00 s, computed in 10.00 s" in slow.detail) == (False, True)
    full = findings.speed(DiskRate(HERE, fault="No space left on device"), None)
    assert (full.ok, "No space left on device" in full.detail, full.fix[:9]) == (False, True, "make room")


def test_what_others_own_is_told_before_what_is_only_open_and_one_command_mends_all():
    opened = [OpenPath(HERE, 0o755, 5), OpenPath(HERE / "a b", 0o644, 5), OpenPath(Path("/e x"), 0o755, 5)]
    mine = findings.permissions(opened, 5, [HERE])
    assert (mine.ok, mine.fix) == (False, "chmod 700 /d '/e x'")
    theirs = findings.permissions([*opened, OpenPath(HERE / "r", 0o600, 0)], 5, [HERE])
    assert (theirs.detail, theirs.fix) == ("/d/r belongs to root, and 3 more", "sudo chown -R 5 /d/r")
    assert findings.permissions([], 5, [HERE]).ok


@pytest.mark.parametrize(("ahead", "ok"), [(-(10**8), True), (60, True), (3600, False)])
def test_a_clock_that_was_set_back_is_told_by_what_was_written_since(ahead, ok):
    assert findings.clock(Clock(now=1e9, newest=1e9 + ahead, file=HERE)).ok == ok
