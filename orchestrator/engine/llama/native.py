"""llama.cpp as a library of this process: started once, its log in ours, and what tells it from another.

The callback object must outlive every call into the library, so it lives in this module. That makes it the one place with
state of the whole process; llama.cpp's own back end is no less.
"""

import ctypes
import functools
import hashlib
import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp as lib

log = logging.getLogger("llama.cpp")

# ggml's levels: none, debug, info, warn, error, cont (goes on with the line before).
LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}
DETAIL, CONTINUES = 1, 5
BUFFER = re.compile(r"(\S+) +(?:compute|output|model) buffer size = +([\d.]+) MiB")
MIB = 1024 * 1024

WHOLE = 64 * 1024 * 1024  # bytes; larger ones hold the kernels of GPUs, and reading them would delay each start
PIECE = 1024 * 1024

# Looks also into the libraries that this one depends on, so ggml's functions are found here too.
symbols: ctypes.CDLL = lib.llama_cpp._lib


class LogLines(threading.local):
    """Puts llama.cpp's fragments together to lines, of each thread by themselves: it calls from several at a time."""

    def __init__(self) -> None:
        self._level = logging.DEBUG
        self._dropped = False
        self._rest = ""
        self.last_error = ""
        self.buffers: dict[str, float] | None = None  # MiB by device, of what this thread makes now

    def __call__(self, level: int, text: bytes | None, _: Any = None) -> None:
        if level != CONTINUES:
            # A context has hundreds of such lines: put together they took three times as long as making it.
            self._dropped = level == DETAIL and not log.isEnabledFor(logging.DEBUG)
        if self._dropped:
            return
        if level != CONTINUES:
            self._flush()
            self._level = LEVELS.get(level, logging.DEBUG)
        self._rest += (text or b"").decode(errors="replace")
        if self._rest.endswith("\n"):
            self._flush()

    def _flush(self) -> None:
        line, self._rest = self._rest.strip(), ""
        if not line.strip("."):  # progress dots
            return
        if self._level >= logging.ERROR and not line.endswith("failed to load model"):  # the line before says why
            self.last_error = line.rpartition("error loading model: ")[2]
        if self.buffers is not None and (found := BUFFER.search(line)):
            self.buffers[found[1]] = self.buffers.get(found[1], 0.0) + float(found[2])
        log.log(self._level, "%s", line)


_lines = LogLines()
_callback = lib.llama_log_callback(_lines)


@functools.cache
def start() -> None:
    """Starts llama.cpp's back end and takes over its log. Further calls do nothing."""
    # With a debugger installed an abort would first attach it, for seconds, while the daemon waits for the child's end.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    # Where RUST_BACKTRACE is set llguidance walks the stack for each object without other properties: 0.06 ms.
    os.environ.setdefault("RUST_LIB_BACKTRACE", "0")
    lib.llama_log_set(_callback, ctypes.c_void_p(0))
    lib.llama_backend_init()


def last_error() -> str:
    """The newest line that llama.cpp logged as an error in this thread; what it says about a call that failed."""
    return _lines.last_error or "it gave no reason"


class Buffers:
    """Bytes of a context beside its cells, for what it computes and for its output; or of a model's weights."""

    def __init__(self) -> None:
        self.by_device: dict[str, float] = {}  # MiB

    def on(self, *, gpu: bool) -> int:
        """On all GPUs, or in the host's memory."""
        host = ("CPU", "CUDA_Host", "Vulkan_Host", "ROCm_Host", "SYCL_Host")
        return int(MIB * sum(size for device, size in self.by_device.items() if device.startswith(host) != gpu))

    @property
    def mapped(self) -> int:
        """Those that are pages of the model's file."""
        return int(MIB * sum(size for device, size in self.by_device.items() if device.endswith("_Mapped")))


@contextmanager
def buffers_noted() -> Iterator[Buffers]:
    """Those of the context or model that this thread makes inside. No function of llama.cpp reports them: its log does."""
    buffers = Buffers()
    _lines.buffers = buffers.by_device
    try:
        yield buffers
    finally:
        _lines.buffers = None


# -- which llama.cpp this is


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
