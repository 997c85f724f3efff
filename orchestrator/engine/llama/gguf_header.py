"""What llama.cpp does not tell of a file before it is loaded: its tensors' names, read by ggml's own reader of GGUF."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.engine.llama.library import symbols

_UINT32, _STRING = 4, 8  # GGUF's types of values


class _Parameters(ctypes.Structure):
    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]


def _function(name: str, result: object, *arguments: object) -> Any:
    function = getattr(symbols, name)
    function.restype, function.argtypes = result, arguments
    return function


_open = _function("gguf_init_from_file", ctypes.c_void_p, ctypes.c_char_p, _Parameters)
_free = _function("gguf_free", None, ctypes.c_void_p)
_find_key = _function("gguf_find_key", ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p)
_find_tensor = _function("gguf_find_tensor", ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p)
_kind = _function("gguf_get_kv_type", ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_text = _function("gguf_get_val_str", ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)
_number = _function("gguf_get_val_u32", ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int64)


class GgufHeader:
    """An open header; of one shard, where there are several."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def text(self, key: str) -> str:
        """Empty where there is none."""
        at = self._at(key, _STRING)  # of another type it would abort
        return _text(self._pointer, at).decode("utf-8", "replace") if at >= 0 else ""

    def number(self, key: str) -> int | None:
        at = self._at(key, _UINT32)
        return int(_number(self._pointer, at)) if at >= 0 else None

    def has_tensor(self, name: str) -> bool:
        return int(_find_tensor(self._pointer, name.encode())) >= 0

    def _at(self, key: str, kind: int) -> int:
        at = int(_find_key(self._pointer, key.encode()))
        return at if at >= 0 and _kind(self._pointer, at) == kind else -1


@contextmanager
def header(path: Path) -> Iterator[GgufHeader | None]:
    """None for a file that is no GGUF or not there: llama.cpp itself says why when it is loaded."""
    pointer = _open(os.fsencode(path), _Parameters(True, None))
    try:
        yield GgufHeader(pointer) if pointer else None
    finally:
        if pointer:
            _free(pointer)
