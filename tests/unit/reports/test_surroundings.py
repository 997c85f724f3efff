"""Facts are read from real files, folders and processes; the kernel's from a folder where they must be odd."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.small_disk import small_disk

from codex.library import Library
from codex.trees.opening import LoadSpec
from governor.driver import Driver, GpuProcess
from orchestrator.reports import findings, surroundings
from orchestrator.reports.surroundings import Kernel, known_server

HERE = Kernel()


@pytest.fixture
def kernel(tmp_path):
    """`kernel("proc/meminfo", "...")`: a kernel that has written this file, and nothing else but such."""

    def write(name, text):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return Kernel(tmp_path / "proc", tmp_path / "sys")

    return write


def process(kernel, pid, *arguments, ram=0):
    kernel(f"proc/{pid}/cmdline", "\0".join(arguments) + "\0")
    kernel(f"proc/{pid}/comm", f"{Path(arguments[0]).name}\n")
    return kernel(f"proc/{pid}/status", f"Name:\tx\nVmRSS:\t{ram} kB\nVmSwap:\t 5 kB\n")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("/opt/llama-server -m x.gguf", "llama-server"),
        ("ollama runner --model x", "ollama"),
        ("/usr/bin/python3 -m vllm.entrypoints.openai.api_server", "vLLM"),
        ("/v/bin/python3.11 /v/bin/vllm serve x", "vLLM"),
        ("python server.py --model x", ""),
        ("/home/me/LM-Studio.AppImage", "LM Studio"),
        ("text-generation-launcher --model-id x", "text-generation-inference"),
        ("vim notes-on-vllm.md", ""),
        ("less /usr/share/doc/ollama", ""),
        ("grep ollama x", ""),
        ("", ""),
    ],
)
def test_a_server_is_known_by_its_program_and_not_by_what_another_one_is_given(line, name):
    assert known_server(line.split()) == name


def test_other_servers_and_whoever_holds_memory_of_a_gpu_are_found_and_ours_are_not(kernel):
    process(kernel, 10, "/usr/bin/ollama", "serve", ram=100)
    process(kernel, 11, "python", "train.py", ram=10)
    process(kernel, 12, "bash")
    here = process(kernel, 13, "lore", "serve")
    used = (GpuProcess(11, 0, 50), GpuProcess(11, 1, 5), GpuProcess(13, 0, 70))
    found = surroundings.servers(here, Driver(processes=used), frozenset({13}))
    assert [(one.pid, one.name, one.ram, one.gpu) for one in found] == [
        (11, "python", 10 * 1024, 55),
        (10, "ollama", 100 * 1024, 0),
    ]


def test_a_server_that_really_runs_is_found(tmp_path):
    with subprocess.Popen(["bash", "-c", "exec -a llama-server sleep 60"]) as running:
        try:
            for _ in range(1000):
                found = [one for one in surroundings.servers(HERE, None, frozenset()) if one.pid == running.pid]
                if found:
                    break
        finally:
            running.kill()
    assert [one.name for one in found] == ["llama-server"]


def test_watches_count_those_of_other_processes_and_the_folders_of_codices(kernel, tmp_path):
    kernel("proc/sys/fs/inotify/max_user_watches", "100\n")
    kernel("proc/7/fdinfo/3", "pos:\t0\ninotify wd:2 ino:1\ninotify wd:1 ino:2\n")
    here = kernel("proc/8/fdinfo/4", "inotify wd:1 ino:2\n")
    code = tmp_path / "code"
    (code / "a" / "b").mkdir(parents=True)
    for file in ("a/b/x.py", "a/y.py", "z.py"):
        (code / file).write_text("x = 1\n")
    library = Library(tmp_path / "codices")
    library.load(LoadSpec((str(code),)))
    library.close()
    found = surroundings.watches(here, tmp_path / "codices" / "catalog.sqlite", frozenset({8}))
    assert (found.limit, found.others, found.folders) == (100, 2, 3)
    assert surroundings.watches(here, tmp_path / "none", frozenset()).folders == 0
    assert surroundings.watches(Kernel(tmp_path / "x"), tmp_path / "none", frozenset()) is None


def test_a_disk_is_timed_and_nothing_is_left_there(tmp_path):
    rate = surroundings.timed(tmp_path, 1 << 20)
    assert rate.fault == ""
    assert min(rate.written, rate.read) > 0
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_nothing_says_why(tmp_path):
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); from pathlib import Path;"
        "from orchestrator.reports.surroundings import timed; print(timed(Path(sys.argv[1])).fault)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", limited, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "File too large"
    assert surroundings.timed(tmp_path / "none").fault == "No such file or directory"
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_a_finding_and_no_fault_of_the_doctor(tmp_path):
    with small_disk(tmp_path / "disk", "64k") as disk:
        rate = surroundings.timed(disk)
        assert rate.fault == "No space left on device"
        assert findings.speed(rate, None).fix.startswith("make room")
        assert list(disk.iterdir()) == []


def test_what_is_open_counts_as_far_as_others_can_come(tmp_path):
    uid = os.getuid()
    shut, wide = tmp_path / "shut", tmp_path / "wide"
    for folder, mode in ((shut, 0o700), (wide, 0o755)):
        folder.mkdir()
        (folder / "config.toml").write_text("")
        (folder / "config.toml").chmod(0o644)
        folder.chmod(mode)
    found = surroundings.open_paths([shut, wide, tmp_path / "none"], uid)
    assert [(one.path, one.mode) for one in found] == [(wide, 0o755), (wide / "config.toml", 0o644)]
    assert surroundings.open_paths([wide], uid, frozenset({wide, wide / "config.toml"})) == ()
    assert {one.path for one in surroundings.open_paths([shut], uid + 1)} == {shut, shut / "config.toml"}


def test_swap_is_that_of_the_machine_and_of_our_processes(kernel):
    process(kernel, 5, "lore")
    here = kernel("proc/meminfo", "MemTotal: 10 kB\nSwapTotal: 100 kB\nSwapFree: 60 kB\nHugePages_Total: 0\n")
    found = surroundings.swap(here, frozenset({5, 6}))
    assert (found.total, found.used, found.ours) == (100 * 1024, 40 * 1024, 5 * 1024)
    assert surroundings.swap(Kernel(Path("/nowhere")), frozenset()) is None


def test_cards_are_counted_on_the_bus(kernel):
    for number, (vendor, kind) in enumerate((("0x10de", "0x030200"), ("0x10de", "0x040300"), ("0x8086", "0x030000"))):
        kernel(f"sys/bus/pci/devices/{number}/vendor", f"{vendor}\n")
        here = kernel(f"sys/bus/pci/devices/{number}/class", f"{kind}\n")
    assert surroundings.cards_on_bus(here) == 1


def test_the_newest_file_is_held_against_the_clock(tmp_path):
    for name, at in (("old", 100), ("new", 5000)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    found = surroundings.clock([*tmp_path.iterdir(), tmp_path / "none"], now=lambda: 1000.0)
    assert (found.now, found.newest, found.file) == (1000.0, 5000.0, tmp_path / "new")


def test_the_engine_s_build_is_told_by_a_process_of_its_own():
    found = surroundings.built_engine()
    assert (found.fault, bool(found.version), "=" in found.features) == ("", True, True)


def test_a_broken_engine_says_its_last_word(tmp_path, monkeypatch):
    package = tmp_path / "llama_cpp"
    (package / "lib").mkdir(parents=True)
    (package / "lib" / "libggml-cuda.so").touch()
    (package / "__init__.py").write_text("raise OSError('libcudart.so.12: cannot open shared object file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = surroundings.built_engine()
    assert (found.cuda, found.uses_gpu) == (True, False)
    assert found.fault == "OSError: libcudart.so.12: cannot open shared object file"
