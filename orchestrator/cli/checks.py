"""What `lore doctor` looks at. Each check says what it found, and what to type where that is not good."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.cli import connect, local
from orchestrator.cli.faults import Failure
from orchestrator.wire import faults

LEAST_FREE = 2 * 1024**3  # bytes for checkpoints and models, below which neither is worth starting


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    detail: str
    fix: str = ""


def all_checks(socket: str | None) -> list[Check]:
    engine = found_engine()
    return [python(), settings(), model(), engine, gpu(engine), git(), folders(), room(), daemon(socket)]


def checked(name: str, ok: bool, detail: str, fix: str) -> Check:
    """What is good needs no mending."""
    return Check(name, ok, detail, "" if ok else fix)


def python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return checked("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")


def settings() -> Check:
    try:
        loaded = local.settings()
    except Failure as failure:
        return Check("settings", False, failure.message, failure.hint)
    return Check("settings", True, f"{len(loaded.origins)} set, in {', '.join(map(str, loaded.files)) or 'no file'}")


def model() -> Check:
    try:
        path = local.settings().settings.model.path
    except Failure:
        return Check("model", False, "the settings cannot be read", "lore config check")
    if not path:
        return Check(
            "model", True, "builtin:quoter: it quotes, for trying out; a real one: lore serve --model FILE.gguf"
        )
    return Check("model", True, path) if path.startswith("builtin:") else model_file(Path(path).expanduser())


def model_file(path: Path) -> Check:
    try:
        with path.open("rb") as file:
            good = file.read(4) == b"GGUF"
    except OSError as error:
        return Check("model", False, f"{path}: {error.strerror}", "set model.path to a GGUF file")
    return checked("model", good, f"{path}{'' if good else ' is not a GGUF file'}", "set model.path to one that is")


def found_engine() -> Check:
    """In a process of its own: a broken library may abort."""
    code = "import llama_cpp as l; print(l.__version__, 'GPU' if l.llama_supports_gpu_offload() else 'CPU')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        return Check("engine", False, words[-1] if words else f"ended with {done.returncode}", "make install")
    return Check("engine", True, f"llama-cpp-python {done.stdout.strip()}")


def gpu(engine: Check) -> Check:
    """A GPU that the engine was not built for is the commonest reason for slow answers."""
    if not Path("/dev/nvidiactl").exists():
        return Check("gpu", True, "no NVIDIA GPU; models run on the CPU")
    built = engine.detail.endswith("GPU")
    detail = "NVIDIA, and the engine uses it" if built else "NVIDIA, but the engine was built for the CPU"
    return checked("gpu", built, detail, "install nvcc (package nvidia-cuda-toolkit), then make install")


def git() -> Check:
    found = shutil.which("git")
    return checked("git", found is not None, found or "not on PATH: no branch and no revision", "install git")


def folders() -> Check:
    """Each, or the nearest folder above it that exists, must be ours to write to, and ours alone where it exists."""
    for folder in local.folders():
        standing = above(folder)
        if not os.access(standing, os.W_OK):
            return Check("folders", False, f"{standing} may not be written to", f"sudo chown {os.getuid()} {standing}")
        if standing == folder and folder.stat().st_mode & 0o077:
            return Check("folders", False, f"{folder} is open to others", f"chmod 700 {folder}")
    return Check("folders", True, ", ".join(map(str, local.folders())))


def room() -> Check:
    folder = above(local.folders()[0])
    free = shutil.disk_usage(folder).free
    detail = f"{free / 1024**3:.1f} GiB free at {folder}"
    return checked("disk", free >= LEAST_FREE, detail, "make room, or set XDG_CACHE_HOME to a larger disk")


def above(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def daemon(socket: str | None) -> Check:
    """One that does not run is no fault of the installation; one that answers wrongly is."""
    try:
        report: dict[str, Any] = connect.daemon(socket).call("GET", "/v1/status")
    except Failure as failure:
        return Check("daemon", failure.status == faults.UNREACHABLE, failure.message, failure.hint)
    return Check("daemon", True, f"version {report.get('version', 'unknown')} runs")
