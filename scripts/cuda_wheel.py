"""`make cuda`: compiles the wheel of a machine with an NVIDIA GPU, where there is `nvcc` and no GPU is needed, and says
what came of it.

    python scripts/cuda_wheel.py [--architecture 90]

It is the wheel of `make install` with the flags for a GPU of that architecture, kept beside the others and not installed.
What a toolkit lacks is made up for: cuBLAS comes from the package index (444 MB, once), and without the driver's library
llama.cpp is linked without its virtual memory. Standard library only, as the rest of the installation.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from ctypes.util import find_library
from pathlib import Path

from llama_sources import LOCK, build_cache, locked_version, say, sources
from llama_wheel import Gpu, announce, build, build_flags, find_nvcc, wheel_key

COMPILED = re.compile(r"-o (\S+\.cu)\.o\b")
WARNING = re.compile(r"\bwarning\b[: #]", re.IGNORECASE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", default="90", help="CUDA's number for a GPU: 90 for an H100 (the default)")
    architecture = parser.parse_args().architecture
    nvcc = find_nvcc()
    if nvcc is None:
        sys.exit("no nvcc on the PATH or under /usr/local/cuda: nothing can be compiled for CUDA here")
    version, gpu = locked_version(LOCK), Gpu(f"a GPU of architecture {architecture}", architecture, nvcc)
    flags = build_flags(gpu)
    folder = build_cache() / "wheels" / wheel_key(version, flags)
    announce(version, gpu, flags)
    os.nice(19)  # whoever works on this machine meanwhile comes first
    begun = time.monotonic()
    wheel = build(sources(version), (*flags, *made_up_for(nvcc)), folder)
    log = folder.parent / f"{folder.name}.log"
    print(summary(wheel, log.read_text(errors="replace"), release(nvcc), architecture, time.monotonic() - begun))


def release(nvcc: str) -> str:
    """As in 13.0."""
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release (\d+\.\d+)", said)
    return found[1] if found else "unknown"


def made_up_for(nvcc: str) -> list[str]:
    """Flags in place of what this toolkit and this machine lack."""
    flags = []
    if find_library("cublas") is None and not list(Path("/usr/local/cuda/lib64").glob("libcublas.so*")):
        folder = cublas(release(nvcc).partition(".")[0])
        flags += [
            f"-DCUDA_{name}_LIBRARY={next(folder.glob(f'lib/lib{name}.so.*'))}" for name in ("cublas", "cublasLt")
        ]
        flags.append(f"-DCMAKE_CUDA_FLAGS=-I{folder / 'include'}")
    if find_library("cuda") is None:
        flags.append("-DGGML_CUDA_NO_VMM=ON")
    return flags


def cublas(major: str) -> Path:
    """The folder of NVIDIA's package, with `include` and `lib`."""
    folder = build_cache() / f"cublas-{major}"
    if not folder.exists():
        say(f"Fetching cuBLAS {major}, which this toolkit lacks (444 MB), once.")
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as work:
            pip = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--no-deps", "--target", f"{work}/cublas"]
            if subprocess.run([*pip, f"nvidia-cublas=={major}.*"], stdout=sys.stderr, check=False).returncode != 0:
                sys.exit("pip could not fetch cuBLAS; its words are above. A toolkit that has it needs none.")
            Path(work, "cublas").rename(folder)
    return next(folder.glob("nvidia/*/include")).parent


def summary(wheel: Path, log: str, toolkit: str, architecture: str, seconds: float) -> str:
    with zipfile.ZipFile(wheel) as archive:
        sizes = {Path(one.filename).name: one.file_size for one in archive.infolist()}
    backend = next((size for name, size in sizes.items() if name.startswith("libggml-cuda.so")), None)
    if backend is None:
        sys.exit(f"{wheel} has no libggml-cuda.so: llama.cpp was compiled without CUDA")
    lines = [
        f"{wheel.name}: CUDA {toolkit}, architecture {architecture}, {seconds / 60:.0f} min on {os.cpu_count()} cores",
        f"  {len(set(COMPILED.findall(log)))} CUDA files compiled, warnings: {len(WARNING.findall(log))}",
        f"  libggml-cuda.so has {backend / 1e6:.0f} MB, the wheel {wheel.stat().st_size / 1e6:.0f} MB",
        f"  kept in {wheel.parent}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
