"""Which factors a model with LongRoPE (Phi-3, Phi-4, MiniCPM) rotates by, settled once for an engine.

Its file has two sets: short ones for sequences within the context that it was first trained for, long ones beyond.
llama.cpp decides by the size of a context (`llama_model::get_rope_factors`):

    cells of the context  >  original context  ?  long  :  short

Pools differ in size and change it, so cells computed in one would be wrong in another, and nothing would tell. Here it is
decided by the longest sequence that will be asked for, and llama.cpp is told an original context that leads to the same in
every pool. Nothing but YaRN reads that number else, and a model has one or the other.
"""

import ctypes
from dataclasses import dataclass
from pathlib import Path

import llama_cpp as lib

from orchestrator.engine.llama.gguf_header import GgufHeader, header
from orchestrator.engine.llama.weights import shards
from orchestrator.engine.model import EngineSpec

TENSORS = ("rope_factors_long.weight", "rope_factors_short.weight")
ALWAYS, NEVER = 1, 2**31 - 1  # original contexts that every pool exceeds, or none


@dataclass(frozen=True)
class Factors:
    """`name`: long or short; `key` and `original`: what of the file's metadata llama.cpp is to take otherwise."""

    name: str
    key: str
    original: int


def factors(spec: EngineSpec) -> Factors | None:
    """None for a model without a choice, or no model."""
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
