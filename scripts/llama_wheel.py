"""Prints the path of a llama-cpp-python wheel for this machine, compiling it once if none is cached.

A wheel belongs to the version, the build flags and the CPU's features: llama.cpp compiles for the CPU that builds it, and
the result dies by SIGILL on a lesser one. CUDA is used when both a GPU and nvcc are there. Standard library only, because
it runs before anything is installed.
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
from dataclasses import dataclass
from pathlib import Path

MINUTES_ON_TWO_CORES = {"cpu": (5, 8), "cuda": (15, 25)}


def main() -> None:
    arguments = parse_arguments()
    version = locked_version(arguments.lock)
    gpu = find_gpu()
    flags = build_flags(gpu)
    folder = cache_root() / wheel_key(version, flags)
    wheel = cached_wheel(folder)
    if wheel is None:
        announce(version, gpu, flags)
        wheel = build(version, flags, folder)
    print(wheel)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lock", type=Path, default=Path("requirements.lock"))
    return parser.parse_args()


def locked_version(lock: Path) -> str:
    found = re.search(r"^llama-cpp-python==(\S+)", lock.read_text(), re.MULTILINE)
    if not found:
        raise SystemExit(f"{lock} names no llama-cpp-python: run `make lock`")
    return found[1]


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
    first = asked.stdout.strip().splitlines()[:1]
    if asked.returncode != 0 or not first:
        return None
    name, _, capability = first[0].rpartition(",")
    architecture = capability.strip().replace(".", "")
    return Gpu(name.strip(), architecture if architecture.isdigit() else None, find_nvcc())


def find_nvcc() -> str | None:
    beside_driver = Path("/usr/local/cuda/bin/nvcc")
    return shutil.which("nvcc") or (str(beside_driver) if beside_driver.exists() else None)


def build_flags(gpu: Gpu | None) -> tuple[str, ...]:
    flags = ["-DGGML_NATIVE=ON", "-DLLAVA_BUILD=OFF"]
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


def cache_root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lorekeep-build" / "wheels"


def cached_wheel(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob("llama_cpp_python-*.whl"))), None)


def announce(version: str, gpu: Gpu | None, flags: tuple[str, ...]) -> None:
    if gpu and not gpu.nvcc:
        say(f"Found the GPU {gpu.name}, but no nvcc: building for the CPU. For the GPU install the CUDA toolkit")
        say("(Debian: apt-get install nvidia-cuda-toolkit) and run `make install` again.")
    low, high = MINUTES_ON_TWO_CORES["cuda" if "-DGGML_CUDA=on" in flags else "cpu"]
    say(f"Compiling llama-cpp-python {version}, once: {low} to {high} minutes on two cores ({os.cpu_count()} here).")


def build(version: str, flags: tuple[str, ...], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    # Built beside the cache and moved in whole: an interrupted build must not leave half a wheel under its key.
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        log = folder.parent / f"{folder.name}.log"
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--no-binary=llama-cpp-python",
            "--wheel-dir",
            work,
        ]
        with log.open("w") as sink:
            done = subprocess.run(
                [*command, f"llama-cpp-python=={version}"],
                env={**os.environ, "CMAKE_ARGS": " ".join(flags)},
                stdout=sink,
                stderr=subprocess.STDOUT,
                check=False,
            )
        made = cached_wheel(Path(work))
        if done.returncode != 0 or made is None:
            raise SystemExit(f"Compiling llama-cpp-python failed; the compiler's words are in {log}")
        return made.replace(folder / made.name)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
