"""The compiled llama.cpp that this process has loaded: what tells it from another, and functions that its binding lacks."""

import ctypes
import functools
import hashlib
from pathlib import Path

import llama_cpp as lib

WHOLE = 64 * 1024 * 1024  # bytes; larger ones hold the kernels of GPUs, and reading them would delay each start
PIECE = 1024 * 1024

# Looks also into the libraries that this one depends on, so ggml's functions are found here too.
symbols: ctypes.CDLL = lib.llama_cpp._lib


@functools.cache
def identity() -> str:
    """Hexadecimal; the same version compiled in another way is another one. Raises OSError.

    By content, because a version outlives a rebuild and a commit is often unknown to the build; by all files of the
    folder, because which of several variants for CPUs is used is decided later.
    """
    return digest_of(Path(symbols._name).resolve().parent)


def digest_of(folder: Path) -> str:
    """Of the libraries in a folder, whatever their versions in names are: a wheel has each of them several times."""
    found = {
        digest(path) for path in folder.iterdir() if path.name.startswith(("libllama", "libggml")) and path.is_file()
    }
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()


def digest(path: Path) -> str:
    """Of a file's bytes, or, of a very large one, of its size and of pieces spread over it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= WHOLE:
            return hashlib.file_digest(file, "sha256").hexdigest()
        found = hashlib.sha256(f"{size}\n".encode())
        for at in range(0, size, size // (WHOLE // PIECE)):
            file.seek(at)
            found.update(file.read(PIECE))
        return found.hexdigest()
