"""Embeddings by llama.cpp: on the CPU, where the daemon has not found room for them on a GPU.

What llama.cpp would abort on is refused when the model is loaded: an encoder takes a batch in one piece, so the batch is
as large as the window; a model that ranks gives no vectors; one that writes text gives some that mean nothing.
"""

import ctypes
import os
from collections.abc import Mapping, Sequence

import llama_cpp as lib
import numpy as np

from orchestrator.engine.backend import BackendError, Run
from orchestrator.engine.embedding.port import BATCH_TEXTS, Vectors, batch_tokens, window_of
from orchestrator.engine.llama import native
from orchestrator.engine.llama.memory import Rows
from orchestrator.engine.llama.model_files import read_metadata
from orchestrator.engine.messages import well_formed
from orchestrator.engine.model import EmbeddingSpec, default_threads
from orchestrator.engine.vocab.vocabulary import tokenized

POOLING = {
    0: lib.LLAMA_POOLING_TYPE_MEAN,  # none of its own
    1: lib.LLAMA_POOLING_TYPE_MEAN,
    2: lib.LLAMA_POOLING_TYPE_CLS,
    3: lib.LLAMA_POOLING_TYPE_LAST,
}
RANKS = 4


class LlamaEmbedding:
    """A GGUF model that embeds. Raises BackendError where it cannot be loaded, or is none."""

    def __init__(self, spec: EmbeddingSpec) -> None:
        native.start()
        self._spec = spec
        self._model = load(spec)
        try:
            self._pooling = pooling_of(spec.model, read_metadata(self._model))
        except BackendError:
            self.close()
            raise
        self.bytes = int(lib.llama_model_size(self._model))
        self._vocabulary = lib.llama_model_get_vocab(self._model)
        self.dimensions = int(lib.llama_model_n_embd_out(self._model))
        trained = int(lib.llama_model_n_ctx_train(self._model))
        self.window, self._batch = window_of(trained, spec.window), batch_tokens(trained, spec.window)
        empty, one = self.encode(""), self.encode("a")
        self.ending = shared(empty[::-1], one[::-1])
        self.starting = min(shared(empty, one), len(empty) - self.ending)

    def encode(self, text: str) -> list[int]:
        return tokenized(self._vocabulary, well_formed(text).encode(), around=True, special=False).tolist()

    def open(self) -> "LlamaEmbeddingContext":
        return LlamaEmbeddingContext(self._model, self.parameters(), self.dimensions)

    def parameters(self) -> "lib.llama_context_params":
        parameters = lib.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = self._batch
        parameters.n_seq_max = BATCH_TEXTS
        parameters.n_threads = parameters.n_threads_batch = self._spec.threads or max(1, default_threads() // 2)
        parameters.embeddings = True
        parameters.pooling_type = self._pooling
        parameters.kv_unified = True
        parameters.offload_kqv = parameters.op_offload = self._spec.gpu_layers > 0
        parameters.no_perf = True
        return parameters

    def close(self) -> None:
        lib.llama_model_free(self._model)


class LlamaEmbeddingContext:
    def __init__(self, model: object, parameters: "lib.llama_context_params", dimensions: int) -> None:
        self._context = lib.llama_init_from_model(model, parameters)
        if not self._context:
            raise BackendError(f"llama.cpp could not make a context for embeddings: {native.last_error()}")
        self._memory = lib.llama_get_memory(self._context)
        self._rows = Rows(int(parameters.n_batch))
        self._dimensions = dimensions

    def vectors(self, texts: Sequence[Sequence[int]]) -> Vectors:
        runs = [Run(number, 0, ids, output=True) for number, ids in enumerate(texts)]
        batch = self._rows.load(runs, every=True)  # pooling reads every row
        if self._memory:
            lib.llama_memory_clear(self._memory, True)
        code = lib.llama_decode(self._context, batch)  # of an encoder it is llama_encode
        if code != 0:
            raise BackendError(f"embedding {batch.n_tokens} tokens returned {code}: {native.last_error()}")
        return np.stack([self._vector(number) for number in range(len(texts))])

    def _vector(self, sequence: int) -> Vectors:
        found = lib.llama_get_embeddings_seq(self._context, sequence)
        if not found:
            raise BackendError("llama.cpp gave no vector for a text")
        return np.ctypeslib.as_array(found, shape=(self._dimensions,)).copy()

    def close(self) -> None:
        lib.llama_free(self._context)
        self._context = None


def load(spec: EmbeddingSpec) -> object:
    """On one GPU: so small a model gains nothing by being split. Without layers there, it does not touch a GPU at all."""
    parameters = lib.llama_model_default_params()
    parameters.n_gpu_layers = spec.gpu_layers
    no_devices = (ctypes.c_void_p * 1)(None)  # a list that ends at once; must live until the model is loaded
    if spec.gpu_layers:
        parameters.split_mode, parameters.main_gpu = lib.LLAMA_SPLIT_MODE_NONE, spec.main_gpu
    else:
        parameters.devices = ctypes.cast(no_devices, ctypes.c_void_p)
    model = lib.llama_model_load_from_file(os.fsencode(spec.model), parameters)
    if not model:
        raise BackendError(f"llama.cpp cannot load {spec.model}: {native.last_error()}")
    return model


def pooling_of(path: str, metadata: Mapping[str, str]) -> int:
    """llama.cpp's number of the pooling to use. Raises BackendError for a model that gives no vectors of texts."""
    architecture = metadata.get("general.architecture", "")
    pooling = int(metadata.get(f"{architecture}.pooling_type", "0"))
    reads_both_ways = metadata.get(f"{architecture}.attention.causal") == "false"
    if pooling == RANKS:
        raise BackendError(f"{path} ranks texts and gives no vectors: name a model that embeds")
    if pooling not in POOLING or not (pooling or reads_both_ways):
        raise BackendError(f"{path} (architecture {architecture}) is no embedding model: name one that is")
    return int(POOLING[pooling])


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two texts begin with alike."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
