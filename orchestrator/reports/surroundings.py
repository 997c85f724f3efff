"""Facts of the machine around the daemon, as `lore doctor` reads them: what else runs, limits, disks, rights, clocks.

Each reader takes the place that it reads (`Kernel` names the kernel's), so that tests give it one of their own. What is
read says nothing of what is good: `findings` decides that. Reads only, but for the file by which a disk is timed.
"""

import json
import os
import resource
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil

from governor.driver import Driver, GpuProcess, read_driver

__all__ = ["read_driver"]  # beside what stands here: the command line reads all facts from one place

# Programs that answer with a model of their own, by the name of the program or of the module that Python runs.
SERVERS = {
    "llama-server": "llama-server",
    "llama_cpp.server": "llama-cpp-python's server",
    "ollama": "ollama",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "lm-studio": "LM Studio",
    "lmstudio": "LM Studio",
    "lms": "LM Studio",
    "text-generation-server": "text-generation-inference",
    "text-generation-launcher": "text-generation-inference",
    "text-generation-webui": "text-generation-webui",
    "koboldcpp": "KoboldCpp",
    "tabbyapi": "TabbyAPI",
    "localai": "LocalAI",
    "tritonserver": "Triton",
}
TIMED_BYTES = 64 * 1024 * 1024  # a segment of 512 tokens of a model of 7 B parameters, with f16 keys and values
PIECE = 4 * 1024 * 1024  # bytes written at once
LONGEST_S = 3.0  # a disk that is slower than this is known to be slow
MOST_ENTRIES = 20_000  # of folders that are looked at for their rights
MEASURED = ".timed-by-doctor"
NVIDIA, DISPLAY = "0x10de", "0x03"  # the PCI registry's vendor, and its class of display controllers


@dataclass(frozen=True)
class Kernel:
    """Where the kernel's files are."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


@dataclass(frozen=True)
class EngineBuild:
    """llama.cpp as it is installed. `uses_gpu`: it found a GPU that it can use; `cuda`: it was compiled for CUDA, with
    `runtime` as the version of CUDA that it was loaded with, where that can be asked. `fault`: why it cannot be loaded."""

    version: str = ""
    features: str = ""
    uses_gpu: bool = False
    cuda: bool = False
    runtime: tuple[int, int] | None = None
    fault: str = ""


@dataclass(frozen=True)
class Watches:
    """inotify, for one user: watches that the kernel gives at most, those that his processes other than the daemon have,
    and the folders of his codices."""

    limit: int
    others: int
    folders: int


@dataclass(frozen=True)
class DiskRate:
    """Bytes a second, written and flushed, then read past the page cache. `fault`: why it could not be timed."""

    folder: Path
    written: float = 0.0
    read: float = 0.0
    fault: str = ""


@dataclass(frozen=True)
class Worth:
    """A token's KV: bytes on disk, and seconds to compute it."""

    bytes: int
    seconds: float


@dataclass(frozen=True)
class OpenPath:
    """A path that others may reach, or that another user owns: `mode` without the type, uid."""

    path: Path
    mode: int
    owner: int


@dataclass(frozen=True)
class Swap:
    """Bytes: swap of the machine, what is used of it, and what of it holds memory of the daemon. `locked`: the most that
    a process may lock, None without a limit."""

    total: int
    used: int
    ours: int
    locked: int | None


@dataclass(frozen=True)
class Server:
    """Another program that answers with a model. Bytes in RAM, and on GPUs (None: the driver does not say)."""

    pid: int
    name: str
    ram: int
    gpu: int | None = 0


@dataclass(frozen=True)
class Clock:
    """Seconds since 1970: now, and the newest of what was written. `file` is that one."""

    now: float
    newest: float
    file: Path | None = None


# ---- the engine ------------------------------------------------------------------------------------------------------

# Run in a process of its own: a broken library may abort. The runtime is asked where llama.cpp has loaded it.
ASK_ENGINE = """
import ctypes, json, pathlib
import importlib.util
place = pathlib.Path(importlib.util.find_spec("llama_cpp").origin).parent
print(json.dumps({"cuda": any(place.glob("lib*/*ggml-cuda*"))}), flush=True)
import llama_cpp as l
def runtime():
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(None, 5)[-1] for line in maps if "libcudart" in line}
    number = ctypes.c_int()
    for path in paths:
        if ctypes.CDLL(path).cudaRuntimeGetVersion(ctypes.byref(number)) == 0:
            return [number.value // 1000, number.value % 1000 // 10]
found = {"version": l.__version__, "uses_gpu": bool(l.llama_supports_gpu_offload()), "runtime": runtime()}
print(json.dumps(found | {"features": l.llama_print_system_info().decode()}))
"""


def built_engine() -> EngineBuild:
    done = subprocess.run([sys.executable, "-P", "-c", ASK_ENGINE], capture_output=True, text=True, check=False)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0:
        found = told[0] | told[1]
        return EngineBuild(**found | {"runtime": tuple(found["runtime"]) if found["runtime"] else None})
    words = done.stderr.strip().splitlines()
    return EngineBuild(
        cuda=bool(told and told[0]["cuda"]), fault=words[-1] if words else f"it ended with {done.returncode}"
    )


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def cards_on_bus(kernel: Kernel) -> int:
    """NVIDIA's display controllers that the kernel sees, with or without a driver."""
    found = 0
    for device in kernel.sys.glob("bus/pci/devices/*"):
        with suppress(OSError):
            vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
            found += vendor == NVIDIA and kind.startswith(DISPLAY)
    return found


# ---- other programs --------------------------------------------------------------------------------------------------


def servers(kernel: Kernel, driver: Driver | None, ours: frozenset[int]) -> tuple[Server, ...]:
    """Other inference servers that run, and whoever else holds memory of a GPU; the largest first."""
    on_gpu = gpu_bytes(driver.processes if driver else ())
    found = [
        Server(pid, name or program(kernel, pid), resident(kernel, pid), on_gpu.get(pid, 0))
        for pid in processes(kernel)
        if pid not in ours and ((name := known_server(arguments(kernel, pid))) or pid in on_gpu)
    ]
    return tuple(sorted(found, key=lambda one: (-(one.gpu or 0), -one.ram, one.pid)))


def gpu_bytes(found: Iterable[GpuProcess]) -> dict[int, int | None]:
    """By process, over all GPUs; None where one of them does not say."""
    total: dict[int, int | None] = {}
    for one in found:
        before = total.get(one.pid, 0)
        total[one.pid] = None if before is None or one.used is None else before + one.used
    return total


def known_server(arguments: list[str]) -> str:
    """By the program's name, or the script or module that an interpreter was given; '' for another program."""
    heads = [word for word in arguments[:4] if not word.startswith("-")]
    if not heads:
        return ""
    if not PurePosixPath(heads[0]).name.startswith(("python", "node")):
        heads = heads[:1]
    for word in heads:
        name = PurePosixPath(word).name.lower().removesuffix(".py").removesuffix(".appimage")
        for known, shown in SERVERS.items():
            if name == known or name.startswith((f"{known}.", f"{known}-")):
                return shown
    return ""


def processes(kernel: Kernel) -> list[int]:
    return sorted(int(one.name) for one in kernel.proc.glob("[0-9]*") if one.name.isdigit())


def arguments(kernel: Kernel, pid: int) -> list[str]:
    with suppress(OSError):
        return (kernel.proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    return []  # it has ended


def program(kernel: Kernel, pid: int) -> str:
    with suppress(OSError):
        return (kernel.proc / str(pid) / "comm").read_text(errors="replace").strip()
    return "a process"


def resident(kernel: Kernel, pid: int) -> int:
    return status_bytes(kernel, pid, "VmRSS")


def status_bytes(kernel: Kernel, pid: int, field: str) -> int:
    """A figure of /proc/PID/status, which has kB; 0 for what is not there."""
    with suppress(OSError, ValueError, IndexError):
        for line in (kernel.proc / str(pid) / "status").read_text(errors="replace").splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return 0


def family(pid: int) -> frozenset[int]:
    """A process and all that it started; empty where it has ended."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return frozenset({pid, *(child.pid for child in process.children(recursive=True))})
    return frozenset()


# ---- inotify ---------------------------------------------------------------------------------------------------------


def watches(kernel: Kernel, catalog: Path, ours: frozenset[int]) -> Watches | None:
    """None where the kernel does not tell its limit."""
    try:
        limit = int((kernel.proc / "sys/fs/inotify/max_user_watches").read_text())
    except (OSError, ValueError):
        return None
    others = sum(watched(kernel, pid) for pid in processes(kernel) if pid not in ours)
    return Watches(limit, others, folders_of(catalog))


def watched(kernel: Kernel, pid: int) -> int:
    """Watches of one process, as far as its files may be looked at: those of other users are not, and do not count."""
    found = 0
    for info in kernel.proc.glob(f"{pid}/fdinfo/*"):
        with suppress(OSError):
            found += sum(line.startswith("inotify wd:") for line in info.read_text(errors="replace").splitlines())
    return found


def folders_of(catalog: Path) -> int:
    """Folders that hold files of a codex; 0 without a catalog that can be read."""
    try:
        database = sqlite3.connect(f"{catalog.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)
        try:
            found: set[tuple[int, PurePosixPath]] = set()
            for codex, path in database.execute("SELECT codex, path FROM known"):
                found.update((codex, folder) for folder in PurePosixPath(path).parents)
        finally:
            database.close()
    except sqlite3.Error:
        return 0
    return len(found)


# ---- the disk --------------------------------------------------------------------------------------------------------


def timed(folder: Path, size: int = TIMED_BYTES, clock: Callable[[], float] = time.monotonic) -> DiskRate:
    """Writes a file of `size` bytes, flushes it, and reads it past the page cache. Ends sooner on a slow disk. The file is
    gone afterwards."""
    file = folder / f"{MEASURED}.{os.getpid()}"
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return DiskRate(folder, fault=error.strerror or str(error))
    try:
        file.unlink()  # also an end by a signal leaves nothing
        written, writing_s = write(descriptor, size, clock)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        read_s = read(descriptor, clock)
        return DiskRate(folder, written / writing_s, written / read_s)
    except OSError as error:
        return DiskRate(folder, fault=error.strerror or str(error))
    finally:
        os.close(descriptor)


def write(descriptor: int, size: int, clock: Callable[[], float]) -> tuple[int, float]:
    """Bytes, and seconds until they were on the disk."""
    piece, begun, written = os.urandom(PIECE), clock(), 0  # a disk that compresses must not win by it
    while written < size and clock() - begun < LONGEST_S:
        written += os.write(descriptor, piece[: size - written])
        os.fdatasync(descriptor)
    return written, max(clock() - begun, 1e-6)


def read(descriptor: int, clock: Callable[[], float]) -> float:
    begun = clock()
    os.lseek(descriptor, 0, os.SEEK_SET)
    while os.read(descriptor, PIECE):
        pass
    return max(clock() - begun, 1e-6)


# ---- rights ----------------------------------------------------------------------------------------------------------


def open_paths(folders: Iterable[Path], uid: int, shared: frozenset[Path] = frozenset()) -> tuple[OpenPath, ...]:
    """What others may reach in these folders, or what another user owns: the folders, and all in them. What lies in a
    folder that is closed cannot be reached, whatever its own mode is. `shared`: what may be open."""
    found: dict[Path, OpenPath] = {}
    for folder in folders:
        left = MOST_ENTRIES
        for path, reached in reachable(folder):
            left -= 1
            if left < 0:
                break
            with suppress(OSError):
                state = path.lstat()
                is_open = reached and not stat.S_ISLNK(state.st_mode) and state.st_mode & 0o077 and path not in shared
                if is_open or state.st_uid != uid:
                    found[path] = OpenPath(path, stat.S_IMODE(state.st_mode), state.st_uid)
    return tuple(found.values())


def reachable(folder: Path, reached: bool = True) -> Iterator[tuple[Path, bool]]:
    """A folder and what is in it, each with whether others can come as far as there."""
    if not folder.exists():
        return
    yield folder, reached
    if not folder.is_dir() or folder.is_symlink():
        return
    with suppress(OSError):
        within = reached and bool(folder.stat().st_mode & 0o011)
        for entry in sorted(folder.iterdir()):
            yield from reachable(entry, within)


# ---- memory ----------------------------------------------------------------------------------------------------------


def swap(kernel: Kernel, ours: frozenset[int]) -> Swap | None:
    """None where the kernel does not tell."""
    try:
        lines = (kernel.proc / "meminfo").read_text().splitlines()
        figures = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines if len(line.split()) > 1}
        total, free = figures["SwapTotal"], figures["SwapFree"]
    except (OSError, ValueError, KeyError):
        return None
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    used = sum(status_bytes(kernel, pid, "VmSwap") for pid in ours)
    return Swap(total, total - free, used, None if locked == resource.RLIM_INFINITY else locked)


# ---- the clock -------------------------------------------------------------------------------------------------------


def clock(files: Iterable[Path], now: Callable[[], float] = time.time) -> Clock:
    """The newest of the files that exist, against the wall clock."""
    newest, which = 0.0, None
    for file in files:
        with suppress(OSError):
            if (at := file.stat().st_mtime) > newest:
                newest, which = at, file
    return Clock(now(), newest, which)
