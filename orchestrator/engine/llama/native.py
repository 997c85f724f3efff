"""llama.cpp as a library of this process: started once, its log in ours.

The callback object must outlive every call into the library, so it lives in this module. That makes it the one place with
state of the whole process; llama.cpp's own back end is no less.
"""

import ctypes
import functools
import logging
import os
from typing import Any

import llama_cpp as lib

log = logging.getLogger("llama.cpp")

# ggml's levels: none, debug, info, warn, error, cont (goes on with the line before).
LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}
CONTINUES = 5


class LogLines:
    """Puts llama.cpp's fragments together to lines. It calls from any of its threads, under a lock of its own."""

    def __init__(self) -> None:
        self._level = logging.DEBUG
        self._rest = ""
        self.last_error = ""

    def __call__(self, level: int, text: bytes | None, _: Any = None) -> None:
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
        log.log(self._level, "%s", line)


_lines = LogLines()
_callback = lib.llama_log_callback(_lines)


@functools.cache
def start() -> None:
    """Starts llama.cpp's back end and takes over its log. Further calls do nothing."""
    # With a debugger installed an abort would first attach it, for seconds, while the daemon waits for the child's end.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    lib.llama_log_set(_callback, ctypes.c_void_p(0))
    lib.llama_backend_init()


def last_error() -> str:
    """The newest line that llama.cpp logged as an error; what it says about a call that failed."""
    return _lines.last_error or "it gave no reason"
