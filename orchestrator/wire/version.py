"""The version of this program, and how its compiled part is made again.

The build reads the version here; asking the installed package costs tens of milliseconds.
"""

import sys
from pathlib import Path

HEADER = "x-lorekeep-version"
VERSION = "0.1.0"

BINDING = "'llama-cpp-python<0.4'"


def compile_again(*, cuda: bool = False) -> str:
    """The command that compiles llama.cpp anew for this installation: a checkout has its own, and finds a GPU by itself."""
    if (Path(__file__).parents[2] / "scripts" / "llama_wheel.py").exists():
        return "make install"
    flags = "CMAKE_ARGS=-DGGML_CUDA=on " if cuda else ""
    # pip reaches into the environments of pipx and of uv too, which need not hold one themselves.
    return f"{flags}pip --python {sys.prefix} install --force-reinstall --no-deps --no-cache-dir {BINDING}"
