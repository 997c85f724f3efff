"""Prints the path of a llama-cpp-python wheel for this machine, compiling it once if none is cached.

A wheel belongs to the version, the build flags and the CPU's features: llama.cpp compiles for the CPU that builds it,
and the result dies by SIGILL on a lesser one. CUDA is used when both a GPU and nvcc are there. Standard library only,
because it runs before anything is installed.
"""

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import watched
from llama_sources import LOCK, build_cache, locked_version, say, sources

# The header of Debian 12's gcc says that only the first eight bytes of AMX's configuration are read, so the compiler leaves
# out what is written to the others. Each question to a model with quantised weights then ended the engine by SIGILL.
NO_AMX = "-DCMAKE_CXX_FLAGS=-mno-amx-int8"
MINUTES_ON_TWO_CORES = {"cpu": (4, 8), "cuda": (40, 70)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lock", type=Path, default=LOCK)
    print(wheel(locked_version(parser.parse_args().lock)))


def wheel(version: str) -> Path:
    """The wheel for this machine's CPU and GPU. Compiles for minutes when the cache has none, and says so before."""
    gpu = find_gpu()
    flags = build_flags(gpu)
    folder = build_cache() / "wheels" / wheel_key(version, flags)
    cached = wheel_in(folder)
    if cached is None:
        announce(version, gpu, flags)
        cached = build(sources(version), flags, folder)
    return cached


@dataclass(frozen=True)
class Gpu:
    name: str
    architecture: str | None  # CUDA's number for it, "90" for an H100; None when the driver tool did not say
    nvcc: str | None


def find_gpu() -> Gpu | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    asked = subprocess.run(
        [tool, "--query-gpu=name,compute_cap", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return gpu_of(asked.stdout, find_nvcc()) if asked.returncode == 0 else None


def gpu_of(listing: str, nvcc: str | None) -> Gpu | None:
    """The first GPU of the driver tool's listing, one line a GPU: `NVIDIA H100 80GB HBM3, 9.0`."""
    first = listing.strip().splitlines()[:1]
    if not first:
        return None
    name, _, capability = first[0].rpartition(",")
    architecture = capability.strip().replace(".", "")
    return Gpu(name.strip(), architecture if architecture.isdigit() else None, nvcc)


def find_nvcc() -> str | None:
    beside_driver = Path("/usr/local/cuda/bin/nvcc")
    return shutil.which("nvcc") or (str(beside_driver) if beside_driver.exists() else None)


def build_flags(gpu: Gpu | None, features: Collection[str] | None = None) -> tuple[str, ...]:
    """`features` are those of the CPU, None: of this one."""
    flags = ["-DGGML_NATIVE=ON", "-DLLAVA_BUILD=OFF"]
    if "amx_int8" in (cpu_features() if features is None else features):
        flags.append(NO_AMX)
    if gpu and gpu.nvcc:
        flags += ["-DGGML_CUDA=on", f"-DCMAKE_CUDA_COMPILER={gpu.nvcc}"]
        flags += [f"-DCMAKE_CUDA_ARCHITECTURES={gpu.architecture or 'native'}"]
    return tuple(flags)


def wheel_key(version: str, flags: tuple[str, ...]) -> str:
    material = "\n".join([platform.machine(), *flags, *cpu_features()])
    return f"{version}-{hashlib.sha256(material.encode()).hexdigest()[:16]}"


def cpu_features() -> list[str]:
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return sorted(found[1].split()) if found else []


def wheel_in(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob("llama_cpp_python-*.whl"))), None)


def announce(version: str, gpu: Gpu | None, flags: tuple[str, ...]) -> None:
    for line in announcement(version, gpu, flags, os.cpu_count() or 1):
        say(line)


def announcement(version: str, gpu: Gpu | None, flags: tuple[str, ...], cores: int) -> list[str]:
    lines = []
    if gpu and not gpu.nvcc:
        lines.append(
            f"Found the GPU {gpu.name}, but no nvcc: building for the CPU. For the GPU install the CUDA toolkit"
        )
        lines.append("(Debian: apt-get install nvidia-cuda-toolkit) and run `make install` again.")
    target = "cuda" if "-DGGML_CUDA=on" in flags else "cpu"
    low, high = MINUTES_ON_TWO_CORES[target]
    where = f"{gpu.name} (CUDA)" if gpu and target == "cuda" else "this CPU"
    lines.append(f"Compiling llama-cpp-python {version} for {where}, once:")
    lines.append(f"{low} to {high} minutes on two cores, and there are {cores} here.")
    return lines


def build(tree: Path, flags: tuple[str, ...], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder.parent / f"{folder.name}.log"
    # Built beside the cache and moved in whole: an interrupted build must not leave half a wheel under its key.
    with tempfile.TemporaryDirectory(dir=folder.parent) as work, log.open("w") as sink:
        status = watched.run(
            [sys.executable, "-P", "-m", "pip", "wheel", "-v", "--no-deps", "--wheel-dir", work, str(tree)],
            "Compiling llama.cpp",
            watched.compiled,
            sink=sink,
            environment={**os.environ, "CMAKE_ARGS": " ".join(flags)},
        )
        made = wheel_in(Path(work))
        if status != 0 or made is None:
            raise SystemExit(f"Compiling llama-cpp-python failed; the compiler's words are in {log}")
        return made.replace(folder / made.name)


if __name__ == "__main__":
    main()
