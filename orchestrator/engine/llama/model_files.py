"""A model's file: its fingerprint, which rotation factors it takes, how llama.cpp is asked to load it, what it then says.

What llama.cpp would refuse or abort on is checked before it is asked, by whoever chose the settings.
"""

import ctypes
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import llama_cpp as lib

from governor.architectures import windows_have_ranges
from governor.footprint import logit_rows, rows_together
from governor.gguf import BY_NAME, Gguf, GgufError, read_gguf
from orchestrator.engine.backend import BackendError
from orchestrator.engine.llama import native
from orchestrator.engine.llama.loading import LoadProgress
from orchestrator.engine.model import EngineSpec, FimTokens, KvOrigin, default_threads, sample_file, shards

TENSORS = ("rope_factors_long.weight", "rope_factors_short.weight")
ALWAYS, NEVER = 1, 2**31 - 1  # original contexts that every pool exceeds, or none
SPLIT_MODES = {
    "none": lib.LLAMA_SPLIT_MODE_NONE,
    "layer": lib.LLAMA_SPLIT_MODE_LAYER,
    "row": lib.LLAMA_SPLIT_MODE_ROW,
    "tensor": lib.LLAMA_SPLIT_MODE_TENSOR,
}


def header_of(spec: EngineSpec) -> Gguf | None:
    """None where the file cannot be read: llama.cpp itself says why when it is loaded. With a vocabulary of 262,144 tokens
    it takes 0.1 s, so who needs it several times reads it once."""
    try:
        return read_gguf(Path(spec.model))
    except GgufError:
        return None


def fingerprint(spec: EngineSpec, header: Gguf | None = None) -> str:
    """The root of every segment's name; see `origin`."""
    return origin(spec, header).fingerprint


def origin(spec: EngineSpec, header: Gguf | None = None) -> KvOrigin:
    """All that KV depends on, each part by its name, and a digest of it.

    Two engines with the same fingerprint compute the same KV from the same ids, so a checkpoint of one may be used by the
    other; anything else is a miss. Weights are sampled, not read whole: a header, the tensor table, the sizes of all shards
    and pieces spread over the file tell models apart that were not made to deceive. Reads at most 8 MiB of each shard, and
    llama.cpp's library. `header`: where it was read already. Raises OSError.
    """
    header = header or header_of(spec)
    digest = hashlib.sha256()
    for shard in shards(Path(spec.model)):
        sample_file(shard, digest)
    weights = digest.hexdigest()
    chosen = factors(spec, header)
    rope = chosen.name if chosen is not None else ""
    architecture = header.text("general.architecture") if header is not None else ""
    settings = [spec.kv_type_k, spec.kv_type_v, spec.flash_attention, "unified", rope, native.identity()]
    windows = "windows alone" if spec.small_windows else ""
    if not windows and windows_have_ranges(architecture, flash_attention=spec.flash_attention):
        windows = "in pieces of a window"
    settings += [windows] if windows else []
    digest.update(repr(settings).encode())
    parts = {
        "weights": weights,
        "kv_type_k": spec.kv_type_k,
        "kv_type_v": spec.kv_type_v,
        "flash_attention": "on" if spec.flash_attention else "off",
        "windows": windows or "whole",
        "rope": rope or "as the file has it",
        "build": f"{lib.__version__}-{native.identity()}",
    }
    return KvOrigin(digest.hexdigest(), parts)


def load_model(spec: EngineSpec, progress: LoadProgress, header: Gguf | None) -> object:
    """Raises BackendError where llama.cpp cannot."""
    parameters = lib.llama_model_default_params()
    parameters.n_gpu_layers = 9999 if spec.gpu_layers < 0 else spec.gpu_layers
    parameters.split_mode = SPLIT_MODES[spec.split_mode]
    parameters.main_gpu = spec.main_gpu
    if spec.tensor_split:
        split = (ctypes.c_float * lib.llama_max_devices())(*spec.tensor_split)
        parameters.tensor_split = split
    rope = factors(spec, header)
    if rope is not None:
        parameters.kv_overrides = overrides(rope)
    placed = lib.llama_progress_callback(progress.place)  # must live until the model is loaded
    parameters.progress_callback = placed
    progress.begin(sum(shard.stat().st_size for shard in shards(Path(spec.model)) if shard.is_file()))
    model = lib.llama_model_load_from_file(os.fsencode(spec.model), parameters)
    if not model:
        raise BackendError(f"llama.cpp cannot load {spec.model}: {native.last_error()}")
    return model


def context_parameters(spec: EngineSpec, cells: int, sequences: int, *, heads: int) -> "lib.llama_context_params":
    parameters = lib.llama_context_default_params()
    parameters.n_ctx = -(-cells // 256) * 256
    parameters.n_batch = parameters.n_ubatch = min(spec.batch, parameters.n_ctx)
    if not spec.flash_attention:
        parameters.n_ubatch = rows_together(parameters.n_batch, heads, parameters.n_ctx)
    parameters.n_seq_max = sequences
    # The default sizes buffers for logits of every row of a batch.
    parameters.n_outputs_max = logit_rows(sequences)
    parameters.n_threads = parameters.n_threads_batch = spec.threads or default_threads()
    parameters.flash_attn_type = (
        lib.LLAMA_FLASH_ATTN_TYPE_ENABLED if spec.flash_attention else lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    parameters.type_k, parameters.type_v = BY_NAME[spec.kv_type_k].number, BY_NAME[spec.kv_type_v].number
    parameters.kv_unified = True
    # The small cache runs full while cells are free, unless `SmallWindowMemory` bounds what sequences share in it.
    parameters.swa_full = not spec.small_windows
    parameters.no_perf = True
    parameters.offload_kqv = spec.gpu_layers != 0
    return parameters


def offloaded_layers(spec: EngineSpec, model: object) -> int:
    layers = int(lib.llama_model_n_layer(model)) + 1
    return layers if spec.gpu_layers < 0 else min(spec.gpu_layers, layers)


# -- which factors a model with LongRoPE rotates by


@dataclass(frozen=True)
class Factors:
    """`name`: long or short; `key` and `original`: what of the file's metadata llama.cpp is to take otherwise."""

    name: str
    key: str
    original: int


def factors(spec: EngineSpec, header: Gguf | None) -> Factors | None:
    """None for a model without a choice, or no model.

    The file of a model with LongRoPE (Phi-3, Phi-4, MiniCPM) has two sets: short ones for sequences within the context that
    it was first trained for, long ones beyond. llama.cpp decides by a context's size (`llama_model::get_rope_factors`):

        cells of the context  >  original context  ?  long  :  short

    Pools differ in size and change it, so cells computed in one would be wrong in another, and nothing would tell. Here it
    is decided once for an engine by the longest sequence that will be asked for, and llama.cpp is told an original context
    that leads to the same in every pool. Nothing but YaRN reads that number else, and a model has one or the other.
    """
    if header is None or not any(tensor.name in TENSORS for tensor in header.tensors):
        return None
    return chosen(header, spec.context)


def chosen(found: Gguf, context: int) -> Factors:
    """`context`: tokens of the longest sequence, 0 for as many as the model was trained for."""
    architecture = found.text("general.architecture")
    trained = found.number(f"{architecture}.context_length") or 0
    key = f"{architecture}.rope.scaling.original_context_length"
    original = found.number(key) or trained  # as llama.cpp has it
    short = (context or trained) <= original
    return Factors("short", key, NEVER) if short else Factors("long", key, ALWAYS)


def overrides(factors: Factors) -> "ctypes.Array[lib.llama_model_kv_override]":
    """In llama.cpp's form, which an empty key ends."""
    found: ctypes.Array[lib.llama_model_kv_override] = (lib.llama_model_kv_override * 2)()
    found[0].tag, found[0].key = lib.LLAMA_KV_OVERRIDE_TYPE_INT, factors.key.encode()
    found[0].value.val_i64 = factors.original
    return found


# -- what a loaded model says of itself


def read_metadata(model: object) -> dict[str, str]:
    found, buffer = {}, ctypes.create_string_buffer(65536)
    for index in range(lib.llama_model_meta_count(model)):
        lib.llama_model_meta_key_by_index(model, index, buffer, len(buffer))
        key = buffer.value.decode("utf-8", "replace")
        lib.llama_model_meta_val_str_by_index(model, index, buffer, len(buffer))
        found[key] = buffer.value.decode("utf-8", "replace")
    return found


def chat_template(model: object) -> str:
    found = lib.llama_model_chat_template(model, None)
    return found.decode("utf-8", "replace") if found else ""


def token_text(vocabulary: object, token: int) -> str:
    if token < 0:
        return ""
    found = lib.llama_vocab_get_text(vocabulary, token)
    return found.decode("utf-8", "replace") if found else ""


def fim_tokens(vocabulary: object) -> FimTokens | None:
    """As the file names them, or as llama.cpp knows them by their texts; None unless all three are there."""
    prefix, suffix = int(lib.llama_vocab_fim_pre(vocabulary)), int(lib.llama_vocab_fim_suf(vocabulary))
    middle = int(lib.llama_vocab_fim_mid(vocabulary))
    if min(prefix, suffix, middle) < 0:
        return None
    texts = token_text(vocabulary, prefix), token_text(vocabulary, suffix), token_text(vocabulary, middle)
    return FimTokens(prefix, suffix, middle, texts)


def gpu_name() -> str:
    for index in range(lib.ggml_backend_dev_count()) if hasattr(lib, "ggml_backend_dev_count") else []:
        device = lib.ggml_backend_dev_get(index)
        if lib.ggml_backend_dev_type(device) == 1:
            description: bytes = lib.ggml_backend_dev_description(device)
            return description.decode("utf-8", "replace")
    return "GPU"
