"""The port to llama.cpp, through llama-cpp-python's low-level API: a loaded model.

One writer calls everything but `encode`, `pieces` and `sampler`. Flash attention is set, never left to llama.cpp, because
the result cannot be read back and checkpoints depend on it.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import llama_cpp as lib

from governor.architectures import windows_have_ranges
from orchestrator.engine.backend import Run
from orchestrator.engine.llama import native
from orchestrator.engine.llama.calls import written_with
from orchestrator.engine.llama.grammars import Grammars
from orchestrator.engine.llama.loading import LoadProgress
from orchestrator.engine.llama.memory import CELL_NOTES, LlamaMemory, LoadedModel, pool_tokens
from orchestrator.engine.llama.model_files import (
    chat_template,
    fim_tokens,
    gpu_name,
    header_of,
    load_model,
    offloaded_layers,
    origin,
    read_metadata,
    token_text,
)
from orchestrator.engine.llama.sampler import LlamaSampler
from orchestrator.engine.llama.windows import SmallWindowMemory, WindowedMemory
from orchestrator.engine.messages import Sampling
from orchestrator.engine.model import EngineSpec, KvOrigin, ModelInfo, StateSizes, default_threads
from orchestrator.engine.vocab import Vocabulary


class LlamaBackend:
    """A GGUF model loaded through llama.cpp. Raises BackendError where it cannot be."""

    def __init__(self, spec: EngineSpec, progress: LoadProgress | None = None) -> None:
        self._spec = spec
        native.start()
        header = header_of(spec)
        with native.buffers_noted() as self._weights:
            self._model = load_model(spec, progress or LoadProgress(), header)
        vocabulary = lib.llama_model_get_vocab(self._model)
        self.vocabulary = Vocabulary(self._model)
        self._grammars = Grammars(vocabulary)
        self.tokens = int(lib.llama_vocab_n_tokens(vocabulary))
        self._metadata = read_metadata(self._model)
        self.architecture = self._metadata.get("general.architecture", "unknown")
        self.loaded, found = self._loaded(), origin(spec, header)
        known = spec.known if spec.known is not None and spec.known.fingerprint == found.fingerprint else None
        self.loaded.states = known.states if known is not None else self._measured()
        self._kind = self._kind_of_memory()
        self.info = self._describe(found)

    def open(self, cells: int, sequences: int) -> LlamaMemory:
        return self._kind(self.loaded, cells, sequences)

    def open_trial(self, cells: int, kv_type: str) -> LlamaMemory:
        """With flash attention, which quantised values need."""
        spec = replace(self._spec, kv_type_k=kv_type, kv_type_v=kv_type, flash_attention=True)
        return LlamaMemory(replace(self.loaded, spec=spec, states=StateSizes()), cells, 1)

    @property
    def threads(self) -> int:
        return self.loaded.threads

    @threads.setter
    def threads(self, count: int) -> None:
        self.loaded.threads = count

    @property
    def binds(self) -> bool:
        return self._grammars.begun

    def sampler(self, sampling: Sampling) -> LlamaSampler:
        constraint = self._grammars.constraint(sampling.schema, sampling.calls) if sampling.constrained else None
        return LlamaSampler(sampling, self._model, constraint)

    def unbound(self, sampling: Sampling) -> LlamaSampler:
        texts = written_with(sampling.calls.form) if sampling.calls else ()
        tokens = {
            token for text in texts for token in self.vocabulary.template(text) if not self.vocabulary.text([token])
        }
        vocabulary = lib.llama_model_get_vocab(self._model)
        spelled = {token: lib.llama_vocab_get_text(vocabulary, token) for token in tokens}
        return LlamaSampler(sampling, self._model, spelled=spelled)

    def compiled(self, sampling: Sampling) -> bool:
        return self._grammars.knows(sampling.schema, sampling.calls)

    def encode(self, texts: Sequence[str], *, control: bool) -> list[list[int]]:
        ids = self.vocabulary.template if control else self.vocabulary.content
        return [list(ids(text)) for text in texts]

    def pieces(self, ids: Sequence[int]) -> bytes:
        return self.vocabulary.text(ids)

    def close(self) -> None:
        lib.llama_model_free(self._model)

    def _loaded(self) -> LoadedModel:
        """Before anything of it was measured."""
        model, spec = self._model, self._spec
        recurs = bool(lib.llama_model_is_recurrent(model) or lib.llama_model_is_hybrid(model))
        slides = lib.llama_model_n_swa(model) > 0
        in_ranges = windows_have_ranges(self.architecture, flash_attention=spec.flash_attention)
        return LoadedModel(
            model,
            spec,
            threads=spec.threads or default_threads(),
            on_gpu=spec.gpu_layers != 0 and bool(lib.llama_supports_gpu_offload()),
            ranges=not recurs and (not slides or (in_ranges and not spec.small_windows)),
            recurs=recurs,
        )

    def _kind_of_memory(self) -> type[LlamaMemory]:
        if not self.loaded.window:
            return LlamaMemory
        if self._spec.small_windows:
            return SmallWindowMemory
        return WindowedMemory if self.loaded.ranges else LlamaMemory

    def _describe(self, origin: KvOrigin) -> ModelInfo:
        model, metadata = self._model, self._metadata
        vocabulary = lib.llama_model_get_vocab(model)
        return ModelInfo(
            name=metadata.get("general.name") or Path(self._spec.model).stem,
            architecture=self.architecture,
            fingerprint=origin.fingerprint,
            vocabulary=self.vocabulary.fingerprint,
            trained_context=int(lib.llama_model_n_ctx_train(model)),
            parameters=int(lib.llama_model_n_params(model)),
            weight_bytes=int(lib.llama_model_size(model)),
            mapped_bytes=0 if self.loaded.on_gpu else min(self._weights.mapped, int(lib.llama_model_size(model))),
            kv_bytes_per_token=float(self.loaded.states.kv),
            chat_template=chat_template(model),
            bos=token_text(vocabulary, lib.llama_vocab_bos(vocabulary)),
            eos=token_text(vocabulary, lib.llama_vocab_eos(vocabulary)),
            add_bos=bool(lib.llama_vocab_get_add_bos(vocabulary)),
            ranges=self.loaded.ranges,
            device=gpu_name() if self.loaded.on_gpu else "CPU",
            gpu_layers=offloaded_layers(self._spec, model) if self.loaded.on_gpu else 0,
            pool_tokens=pool_tokens(self.loaded.states, self._spec.sequences),
            states=self.loaded.states,
            fim=fim_tokens(vocabulary),
            metadata={key: value for key, value in metadata.items() if len(value) < 200},
            kv_parts=origin.parts,
        )

    def _measured(self) -> StateSizes:
        """By the states of two short sequences. Their step also reads all weights, before anybody waits for one; a child
        of a known model leaves both out."""
        with closing(LlamaMemory(self.loaded, 256, 2)) as memory:
            header = memory.state_size(0)
            memory.decode([Run(0, 0, [0], output=True), Run(1, 0, [0, 0], output=True)])
            part, grown = memory.partial_size(0), memory.state_size(1) - memory.state_size(0)
            sliding = memory.partial_size(1) - part
        if not 0 < sliding < grown:  # one cache has all cells, or there are none
            return StateSizes(header, grown, max(0, grown - CELL_NOTES), part if self.loaded.recurs else 0)
        if self._spec.small_windows:
            kv, window_kv = grown - sliding - CELL_NOTES, sliding - CELL_NOTES
            return StateSizes(header, grown, kv, 0, window_kv, self.loaded.window, self._spec.batch)
        return StateSizes(header, grown, grown - 2 * CELL_NOTES)
