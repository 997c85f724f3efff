"""`make cuda`: compiles llama.cpp's CUDA backend where there is `nvcc` and no GPU is needed, and says what came of it.

    python scripts/cuda_backend.py [--architecture 90]

The sources and the flags are those of the wheel that `make install` compiles on a machine with such a GPU; nothing is
installed. What a toolkit lacks is made up for: cuBLAS comes from the package index (444 MB, once), and without the driver's
library llama.cpp is linked without its virtual memory. Standard library only, as the rest of the installation.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from ctypes.util import find_library
from pathlib import Path

from llama_sources import LOCK, build_cache, locked_version, say, sources
from llama_target import compiled
from llama_wheel import Gpu, build_flags, find_nvcc, wheel_key

LIBRARY = "libggml-cuda.so"
COMPILED = re.compile(r"-o (\S+\.cu)\.o\b")
WARNING = re.compile(r"\bwarning\b[: #]", re.IGNORECASE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", default="90", help="CUDA's number for a GPU: 90 for an H100 (the default)")
    architecture = parser.parse_args().architecture
    nvcc = find_nvcc()
    if nvcc is None:
        sys.exit("no nvcc on the PATH or under /usr/local/cuda: nothing can be compiled for CUDA here")
    version, gpu = locked_version(LOCK), Gpu("none is needed", architecture, nvcc)
    flags = ("-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON", *build_flags(gpu))
    folder = build_cache() / "cuda" / wheel_key(version, flags)
    say(f"Compiling the CUDA backend for architecture {architecture}: about an hour on two cores, and there are")
    say(f"{os.cpu_count()} here. Where it is interrupted, the next call continues it.")
    work = compiled(sources(version) / "vendor" / "llama.cpp", (*flags, *made_up_for(nvcc)), "ggml-cuda", folder)
    size = (work / "bin" / LIBRARY).stat().st_size
    print(summary((folder / "build.log").read_text(errors="replace"), release(nvcc), architecture, size))
    print(f"  kept in {work / 'bin'}")


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


def summary(log: str, toolkit: str, architecture: str, size: int) -> str:
    """`size`: bytes of the library."""
    files, warnings = len(set(COMPILED.findall(log))), len(WARNING.findall(log))
    return (
        f"CUDA {toolkit}, architecture {architecture}: {files} CUDA files compiled, warnings: {warnings}\n"
        f"  {LIBRARY} has {size / 1e6:.0f} MB"
    )


if __name__ == "__main__":
    main()
