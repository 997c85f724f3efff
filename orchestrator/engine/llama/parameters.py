"""How llama.cpp is asked for a model and for a context: the settings in its own parameters.

What it would refuse or abort on is checked before it is asked, by whoever chose the settings.
"""

import ctypes
import os
from pathlib import Path

import llama_cpp as lib

from orchestrator.engine.backend import BackendError
from orchestrator.engine.llama import native
from orchestrator.engine.llama.loading import LoadProgress
from orchestrator.engine.llama.model_files import factors, overrides
from orchestrator.engine.llama.threads import default_threads
from orchestrator.engine.llama.weights import shards
from orchestrator.engine.model import EngineSpec

KV_TYPES = {
    "f32": lib.GGML_TYPE_F32,
    "f16": lib.GGML_TYPE_F16,
    "bf16": 30,  # the binding does not name it
    "q8_0": lib.GGML_TYPE_Q8_0,
    "q5_1": lib.GGML_TYPE_Q5_1,
    "q5_0": lib.GGML_TYPE_Q5_0,
    "q4_1": lib.GGML_TYPE_Q4_1,
    "q4_0": lib.GGML_TYPE_Q4_0,
}
SPLIT_MODES = {
    "none": lib.LLAMA_SPLIT_MODE_NONE,
    "layer": lib.LLAMA_SPLIT_MODE_LAYER,
    "row": lib.LLAMA_SPLIT_MODE_ROW,
    "tensor": lib.LLAMA_SPLIT_MODE_TENSOR,
}
# Without flash attention the scores of rows computed together are held, f32 in all heads; never fewer rows than these.
SCORE_BYTES = 64 * 1024 * 1024
SCORED_ROWS = 16


def load_model(spec: EngineSpec, progress: LoadProgress) -> object:
    """Raises BackendError where llama.cpp cannot."""
    parameters = lib.llama_model_default_params()
    parameters.n_gpu_layers = 9999 if spec.gpu_layers < 0 else spec.gpu_layers
    parameters.split_mode = SPLIT_MODES[spec.split_mode]
    parameters.main_gpu = spec.main_gpu
    if spec.tensor_split:
        split = (ctypes.c_float * lib.llama_max_devices())(*spec.tensor_split)
        parameters.tensor_split = split
    rope = factors(spec)
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
        parameters.n_ubatch = min(parameters.n_batch, rows_together(heads, parameters.n_ctx))
    parameters.n_seq_max = sequences
    # Logits are wanted for at most one row a sequence; the default sizes buffers for every row of a batch.
    parameters.n_outputs_max = max(sequences, 64)
    parameters.n_threads = parameters.n_threads_batch = spec.threads or default_threads()
    parameters.flash_attn_type = (
        lib.LLAMA_FLASH_ATTN_TYPE_ENABLED if spec.flash_attention else lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    parameters.type_k, parameters.type_v = KV_TYPES[spec.kv_type_k], KV_TYPES[spec.kv_type_v]
    parameters.kv_unified = True
    # The small cache of a sliding window runs full while cells are free, because what two sequences share is not recycled.
    parameters.swa_full = True
    parameters.no_perf = True
    parameters.offload_kqv = spec.gpu_layers != 0
    return parameters


def rows_together(heads: int, cells: int) -> int:
    """How many rows are computed at once without flash attention, which holds their scores against all cells."""
    return max(SCORED_ROWS, SCORE_BYTES // max(1, 4 * heads * cells))


def offloaded_layers(spec: EngineSpec, model: object) -> int:
    layers = int(lib.llama_model_n_layer(model)) + 1
    return layers if spec.gpu_layers < 0 else min(spec.gpu_layers, layers)
