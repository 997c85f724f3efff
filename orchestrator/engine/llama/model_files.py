"""What is read of a model's file before it is loaded: its fingerprint, its header, and which rotation factors it takes."""

import ctypes
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp as lib

from orchestrator.engine.llama import native
from orchestrator.engine.llama.native import symbols
from orchestrator.engine.llama.weights import sample_file, shards
from orchestrator.engine.model import EngineSpec

_UINT32, _STRING = 4, 8  # GGUF's types of values


TENSORS = ("rope_factors_long.weight", "rope_factors_short.weight")
ALWAYS, NEVER = 1, 2**31 - 1  # original contexts that every pool exceeds, or none


def fingerprint(spec: EngineSpec) -> str:
    """The root of every segment's name: a digest of all that KV depends on, in hexadecimal.

    Two engines with the same fingerprint compute the same KV from the same ids, so a checkpoint of one may be used by the
    other; anything else is a miss. Weights are sampled, not read whole: a header, the tensor table, the sizes of all shards
    and pieces spread over the file tell models apart that were not made to deceive. Reads at most 8 MiB of each shard, and
    llama.cpp's library. Raises OSError.
    """
    digest = hashlib.sha256()
    for shard in shards(Path(spec.model)):
        sample_file(shard, digest)
    chosen = factors(spec)
    rope = chosen.name if chosen is not None else ""
    settings = [spec.kv_type_k, spec.kv_type_v, spec.flash_attention, "unified", rope, native.identity()]
    digest.update(repr(settings).encode())
    return digest.hexdigest()


# -- a header, by ggml's own reader of GGUF


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


# -- which factors a model with LongRoPE rotates by


@dataclass(frozen=True)
class Factors:
    """`name`: long or short; `key` and `original`: what of the file's metadata llama.cpp is to take otherwise."""

    name: str
    key: str
    original: int


def factors(spec: EngineSpec) -> Factors | None:
    """None for a model without a choice, or no model.

    The file of a model with LongRoPE (Phi-3, Phi-4, MiniCPM) has two sets: short ones for sequences within the context that
    it was first trained for, long ones beyond. llama.cpp decides by a context's size (`llama_model::get_rope_factors`):

        cells of the context  >  original context  ?  long  :  short

    Pools differ in size and change it, so cells computed in one would be wrong in another, and nothing would tell. Here it
    is decided once for an engine by the longest sequence that will be asked for, and llama.cpp is told an original context
    that leads to the same in every pool. Nothing but YaRN reads that number else, and a model has one or the other.
    """
    first, *rest = shards(Path(spec.model))
    with header(first) as found:
        if found is None or not (has_choice(found) or any(has_factors(path) for path in rest)):
            return None
        return chosen(found, spec.context)


def has_factors(path: Path) -> bool:
    with header(path) as found:
        return found is not None and has_choice(found)


def has_choice(found: GgufHeader) -> bool:
    return any(found.has_tensor(name) for name in TENSORS)


def chosen(first: GgufHeader, context: int) -> Factors:
    """`context`: tokens of the longest sequence, 0 for as many as the model was trained for."""
    architecture = first.text("general.architecture")
    trained = first.number(f"{architecture}.context_length") or 0
    key = f"{architecture}.rope.scaling.original_context_length"
    original = first.number(key) or trained  # as llama.cpp has it
    short = (context or trained) <= original
    return Factors("short", key, NEVER) if short else Factors("long", key, ALWAYS)


def overrides(factors: Factors) -> "ctypes.Array[lib.llama_model_kv_override]":
    """In llama.cpp's form, which an empty key ends."""
    found: ctypes.Array[lib.llama_model_kv_override] = (lib.llama_model_kv_override * 2)()
    found[0].tag, found[0].key = lib.LLAMA_KV_OVERRIDE_TYPE_INT, factors.key.encode()
    found[0].value.val_i64 = factors.original
    return found
