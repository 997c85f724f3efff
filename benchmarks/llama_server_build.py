"""Prints the path of a llama-server built from the very sources that our binding was compiled from; builds it once.

Standard library only. The binary is kept beside the compiled wheels, under a key of version, flags and CPU.
"""

import os
import shutil
from pathlib import Path

from llama_sources import LOCK, build_cache, locked_version, say, sources
from llama_target import compiled
from llama_wheel import build_flags, find_gpu, wheel_key

FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",  # one file that can be moved and kept
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
)


def main() -> None:
    print(llama_server())


def llama_server() -> Path:
    """The binary. Compiles for 6 to 15 minutes on two cores when it is not there; an interrupted build is continued."""
    version = locked_version(LOCK)
    flags = (*FLAGS, *build_flags(find_gpu()))
    folder = build_cache() / "llama-server" / wheel_key(version, flags)
    binary = folder / "llama-server"
    if not binary.exists():
        build(sources(version) / "vendor" / "llama.cpp", flags, folder)
    return binary


def build(tree: Path, flags: tuple[str, ...], folder: Path) -> None:
    say(f"Compiling llama-server, once: 6 to 15 minutes on two cores, and there are {os.cpu_count()} here.")
    work = compiled(tree, flags, "llama-server", folder)
    (work / "bin" / "llama-server").rename(folder / "llama-server")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
