"""The port to llama.cpp, through llama-cpp-python's low-level API: a model and the memory of a pool.

One writer calls everything but `encode`, `pieces` and `sampler`. Flash attention is set, never left to be guessed, because
the result cannot be read back and checkpoints depend on it. What llama.cpp would abort on is checked before it is asked.
"""

import ctypes
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from governor.architectures import windows_have_ranges
from governor.footprint import window_cells
from orchestrator.engine.backend import BackendError, Run, Sampled, Sampler
from orchestrator.engine.llama import native
from orchestrator.engine.llama.loading import LoadProgress
from orchestrator.engine.llama.model_files import (
    chat_template,
    context_parameters,
    fingerprint,
    gpu_name,
    load_model,
    offloaded_layers,
    read_metadata,
    token_text,
)
from orchestrator.engine.llama.sampler import LlamaSampler
from orchestrator.engine.llama.schema import Schemas
from orchestrator.engine.messages import Sampling
from orchestrator.engine.model import EngineSpec, ModelInfo, default_threads
from orchestrator.engine.vocab import Vocabulary

CELL_NOTES = 12  # bytes of a saved cell beside its KV: position, number of sequences, sequence
MOST_SEQUENCES = 256  # of one llama.cpp context
PIECE_LENGTH = struct.Struct("<Q")  # in front of each piece of a windowed memory's state
COUNTED = 1 << 18  # cells looked at in one count of a windowed sequence
NEW_BYTES = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)


@dataclass(frozen=True)
class StateSizes:
    """Bytes of a sequence's saved state: without a cell, of one cell in all, and of each further cell.

    `per_cell` is 0 where a state has one size whatever its length. `per_window_cell`: the part of it that sliding layers
    have in a small cache, which has `window` cells a sequence and `batch` more.
    """

    header: int
    one: int
    per_cell: int
    per_window_cell: int = 0
    window: int = 0
    batch: int = 0

    @property
    def kv_per_token(self) -> int:
        return max(0, self.per_cell - self.per_window_cell - CELL_NOTES)

    def footprint(self, cells: int, sequences: int) -> int:
        """Bytes of KV or of states in a memory of this size."""
        return cells * self.kv_per_token + self._windows(cells, sequences) or sequences * self.one

    def pool_tokens(self, sequences: int) -> int:
        """What the windows of a pool cost, in tokens."""
        return -(-self._windows(None, sequences) // max(1, self.kv_per_token))

    def _windows(self, cells: int | None, sequences: int) -> int:
        if not self.window:
            return 0
        most = window_cells(self.window, sequences, self.batch)
        return (self.per_window_cell - CELL_NOTES) * (most if cells is None else min(cells, most))


class LlamaBackend:
    """A GGUF model loaded through llama.cpp. Raises BackendError where it cannot be."""

    def __init__(self, spec: EngineSpec, progress: LoadProgress | None = None) -> None:
        self._spec = spec
        native.start()
        self._model = load_model(spec, progress or LoadProgress())
        self.vocabulary = Vocabulary(self._model)
        self._schemas = Schemas(lib.llama_model_get_vocab(self._model))
        self.threads = spec.threads or default_threads()
        self.on_gpu = spec.gpu_layers != 0 and bool(lib.llama_supports_gpu_offload())
        self.tokens = int(lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model)))
        self._metadata = read_metadata(self._model)
        self.architecture = self._metadata.get("general.architecture", "unknown")
        self.windowed = lib.llama_model_n_swa(self._model) > 0
        recurrent = lib.llama_model_is_recurrent(self._model) or lib.llama_model_is_hybrid(self._model)
        self.small = self.windowed and spec.small_windows
        sliding_ranges = windows_have_ranges(self.architecture, flash_attention=spec.flash_attention) and not self.small
        self.ranges = not recurrent and (not self.windowed or sliding_ranges)
        self._states = self._measured()
        self.info = self._describe()

    def open(self, cells: int, sequences: int) -> "LlamaMemory":
        kind = SmallWindowMemory if self.small else WindowedMemory if self.windowed and self.ranges else LlamaMemory
        return kind(self, self._model, self._spec, cells, sequences, self._states)

    def sampler(self, sampling: Sampling) -> LlamaSampler:
        constraint = self._schemas.constraint(sampling.schema) if sampling.schema else None
        return LlamaSampler(sampling, self._model, constraint)

    def compiled(self, schema: str) -> bool:
        return schema in self._schemas

    def encode(self, texts: Sequence[str], *, control: bool) -> list[list[int]]:
        ids = self.vocabulary.template if control else self.vocabulary.content
        return [list(ids(text)) for text in texts]

    def pieces(self, ids: Sequence[int]) -> bytes:
        return self.vocabulary.text(ids)

    def close(self) -> None:
        lib.llama_model_free(self._model)

    def _describe(self) -> ModelInfo:
        model, metadata = self._model, self._metadata
        vocabulary = lib.llama_model_get_vocab(model)
        return ModelInfo(
            name=metadata.get("general.name") or Path(self._spec.model).stem,
            architecture=self.architecture,
            fingerprint=fingerprint(self._spec),
            vocabulary=self.vocabulary.fingerprint,
            trained_context=int(lib.llama_model_n_ctx_train(model)),
            parameters=int(lib.llama_model_n_params(model)),
            weight_bytes=int(lib.llama_model_size(model)),
            kv_bytes_per_token=float(self._states.kv_per_token),
            chat_template=chat_template(model),
            bos=token_text(vocabulary, lib.llama_vocab_bos(vocabulary)),
            eos=token_text(vocabulary, lib.llama_vocab_eos(vocabulary)),
            add_bos=bool(lib.llama_vocab_get_add_bos(vocabulary)),
            ranges=self.ranges,
            device=gpu_name() if self.on_gpu else "CPU",
            gpu_layers=offloaded_layers(self._spec, model) if self.on_gpu else 0,
            pool_tokens=self._states.pool_tokens(self._spec.sequences),
            metadata={key: value for key, value in metadata.items() if len(value) < 200},
        )

    def _measured(self) -> "StateSizes":
        """From the states of a short sequence."""
        memory = LlamaMemory(self, self._model, self._spec, 256, 2, StateSizes(0, 0, 0))
        try:
            header = memory.state_size(0)
            memory.decode([Run(0, 0, [0], output=True)])
            one, sliding = memory.state_size(0), memory.sliding_size(0)
            memory.decode([Run(0, 1, [0], output=True)])
            grown = memory.state_size(0) - one
            if not self.small:
                return StateSizes(header, one, grown)
            window = int(lib.llama_model_n_swa(self._model))
            return StateSizes(header, one, grown, memory.sliding_size(0) - sliding, window, self._spec.batch)
        finally:
            memory.close()


class LlamaMemory:
    """One llama.cpp context: the cells of one pool. `own_sequences`: those that it has beside the pool's."""

    own_sequences = 0

    def __init__(
        self, backend: LlamaBackend, model: object, spec: EngineSpec, cells: int, sequences: int, states: StateSizes
    ) -> None:
        parameters = context_parameters(
            spec, cells, sequences + self.own_sequences, heads=int(lib.llama_model_n_head(model))
        )
        with native.buffers_noted() as buffers:
            self._context = lib.llama_init_from_model(model, parameters)
        if not self._context:
            raise BackendError(f"llama.cpp could not make a context of {cells} tokens for {sequences} sequences")
        self._memory = lib.llama_get_memory(self._context)
        self._backend = backend
        self._states = states
        self._vocabulary = lib.llama_model_get_vocab(model)
        self._row = ctypes.c_float * int(lib.llama_vocab_n_tokens(self._vocabulary))
        self._views: dict[int, NDArray[np.float32]] = {}  # of logits, by where they lie
        self._rows = Rows(spec.batch)
        self._threads = parameters.n_threads
        self.cells = int(lib.llama_n_ctx(self._context))
        self.sequences = sequences
        self.footprint = states.footprint(self.cells, sequences)
        self.buffers = buffers.on(gpu=backend.on_gpu)

    def decode(self, runs: Sequence[Run]) -> None:
        if self._threads != self._backend.threads:
            self._threads = self._backend.threads
            lib.llama_set_n_threads(self._context, self._threads, self._threads)
        batch = self._rows.load(runs)
        code = lib.llama_decode(self._context, batch)
        if code != 0:
            raise BackendError(f"llama_decode of {batch.n_tokens} tokens returned {code}")

    def sample(self, row: int, sampler: Sampler) -> Sampled:
        assert isinstance(sampler, LlamaSampler)
        token, logprobs = sampler.choose(self.logits(row))
        end = bool(lib.llama_vocab_is_eog(self._vocabulary, token))
        if not end:
            sampler.accept(token)
        return Sampled(token, end, logprobs)

    def logits(self, row: int) -> NDArray[np.float32]:
        """A view of llama.cpp's own memory, until the next decode. Made once for each place: rows come to the same few."""
        address = ctypes.addressof(lib.llama_get_logits_ith(self._context, row).contents)
        if address not in self._views:
            self._views[address] = np.frombuffer(memoryview(self._row.from_address(address)), np.float32)
        return self._views[address]

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        lib.llama_memory_seq_cp(self._memory, source, target, start, end)

    def remove(self, sequence: int, start: int, end: int) -> None:
        if not lib.llama_memory_seq_rm(self._memory, sequence, start, end):
            raise BackendError(f"llama.cpp cannot cut sequence {sequence} at {start}: its memory has no ranges")

    def state_size(self, sequence: int) -> int:
        return int(lib.llama_state_seq_get_size(self._context, sequence))

    def sliding_size(self, sequence: int) -> int:
        """Bytes of a sequence's state in sliding layers alone."""
        return int(lib.llama_state_seq_get_size_ext(self._context, sequence, lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY))

    def save(self, sequence: int) -> bytes:
        size = self.state_size(sequence)
        state = unset(size)
        written = lib.llama_state_seq_get_data(self._context, address_of(state), size, sequence)
        return state if written == size else state[:written]

    def restore(self, sequence: int, state: bytes) -> int:
        if not lib.llama_state_seq_set_data(self._context, address_of(state), len(state), sequence):
            return 0
        # llama.cpp believes what it is given; the size that it would save again is the oracle for what stands.
        if not self._backend.ranges:
            return self.length(sequence) if self.state_size(sequence) == len(state) else 0
        return self._cells_of(sequence)

    def length(self, sequence: int) -> int:
        return int(lib.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def count(self, sequence: int) -> int:
        # Nothing is copied for it: 0.36 ms with 8,192 cells on one CPU.
        if not self._backend.ranges:
            return self.length(sequence)
        return self._cells_of(sequence)

    def _begin(self, sequence: int) -> int:
        return max(0, int(lib.llama_memory_seq_pos_min(self._memory, sequence)))

    def _cells_of(self, sequence: int) -> int:
        return (self.state_size(sequence) - self._states.header) // self._states.per_cell

    def close(self) -> None:
        lib.llama_free(self._context)
        self._context = None


class WindowedMemory(LlamaMemory):
    """The memory of a model with sliding windows. It is cut in ranges as others are.

    llama.cpp gives a used cell to a new token where one sequence alone holds it and the window of that sequence has passed
    it; nothing reports it. It never takes a cell that two sequences hold. So a sequence of ours, the guard, becomes a
    holder of every cell before its window passes. After each step, length - guarded < window // 2:

        a conversation   ├───────────────────────────────┼── window ──┤
        the guard        ├────────────────────────────────────┤ guarded

    Of a sequence longer than the window llama.cpp saves only the last window. So a state is saved in pieces of at most a
    window, each through a second sequence of ours, the carrier.

    A step must be one batch to llama.cpp, as it is with flash attention: of two the second could take cells of the first.
    """

    own_sequences = 2

    def __init__(
        self, backend: LlamaBackend, model: object, spec: EngineSpec, cells: int, sequences: int, states: StateSizes
    ) -> None:
        super().__init__(backend, model, spec, cells, min(sequences, MOST_SEQUENCES - self.own_sequences), states)
        self._window = int(lib.llama_model_n_swa(model))
        self._guard, self._carrier = self.sequences, self.sequences + 1
        self._turn = 0  # of the piece that is counted next
        self._guarded = [0] * self.sequences  # by sequence: the guard holds its cells before this position

    def decode(self, runs: Sequence[Run]) -> None:
        super().decode(runs)
        for sequence, end in {run.sequence: run.start + len(run.tokens) for run in runs}.items():
            if end - self._guarded[sequence] >= self._window // 2:
                self._guard_until(sequence, end)

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        if self._guarded[target] < start:
            self._guard_until(target, start)
        super().copy(source, target, start, end)
        self._guarded[target] = min(max(start, self._guarded[source]), end)

    def remove(self, sequence: int, start: int, end: int) -> None:
        begin, length, guarded = self._begin(sequence), self.length(sequence), self._guarded[sequence]
        super().remove(sequence, start, end)
        if end < 0 or end >= length:
            self._guarded[sequence] = min(guarded, start)
        first, last = max(start, begin), min(guarded, end) if end >= 0 else guarded
        if first >= last:
            return  # the guard holds none of these cells because of this sequence
        lib.llama_memory_seq_rm(self._memory, self._guard, first, last)
        for other in range(self.sequences):
            if self._guarded[other] > first:
                lib.llama_memory_seq_cp(self._memory, other, self._guard, first, min(last, self._guarded[other]))

    def save(self, sequence: int) -> bytes:
        parts = list[bytes]()
        for start in self._starts(sequence):
            with self._carrying(sequence, start):
                piece = LlamaMemory.save(self, self._carrier)
            parts += (PIECE_LENGTH.pack(len(piece)), piece)
        return b"".join(parts)

    def restore(self, sequence: int, state: bytes) -> int:
        cells = 0
        for piece in pieces_of(state):
            found = LlamaMemory.restore(self, self._carrier, piece)
            for holder in (sequence, self._guard) if found else ():
                lib.llama_memory_seq_cp(self._memory, self._carrier, holder, -1, -1)
            lib.llama_memory_seq_rm(self._memory, self._carrier, -1, -1)
            if not found:
                self.remove(sequence, 0, -1)
                return 0
            self._guarded[sequence] = self.length(sequence)
            cells += found
        return cells

    def count(self, sequence: int) -> int:
        """Each piece is a copy, 0.6 ms at 32k: of many some are counted, in turn, and the others taken for whole."""
        starts, length = self._starts(sequence), self.length(sequence)
        counted, missing = min(len(starts), max(1, COUNTED // self.cells)), 0
        for turn in range(self._turn, self._turn + counted):
            start = starts[turn % len(starts)]
            with self._carrying(sequence, start):
                missing += min(self._window, length - start) - self._cells_of(self._carrier)
        self._turn += counted
        return length - starts.start - missing if starts else 0

    def _starts(self, sequence: int) -> range:
        """Where the pieces of a sequence begin."""
        return range(self._begin(sequence), self.length(sequence), self._window)

    @contextmanager
    def _carrying(self, sequence: int, start: int) -> Iterator[None]:
        """The carrier holds one piece of a sequence."""
        lib.llama_memory_seq_cp(self._memory, sequence, self._carrier, start, start + self._window)
        try:
            yield
        finally:
            lib.llama_memory_seq_rm(self._memory, self._carrier, -1, -1)

    def _guard_until(self, sequence: int, end: int) -> None:
        lib.llama_memory_seq_cp(self._memory, sequence, self._guard, self._guarded[sequence], end)
        self._guarded[sequence] = end


class SmallWindowMemory(LlamaMemory):
    """The memory of a model whose sliding layers keep windows alone. It cannot be cut in ranges.

    llama.cpp gives a used cell to a new token where one sequence alone holds it and the window of that sequence has passed
    it. Cells behind the window of a sequence that is copied have two holders: they would never be taken again, and stop
    the cache up. So a sequence is trimmed to its window before it is copied:

        layers that attend to all   ├────────────────────────────────────────┤
        layers that slide                              . . . . . ├─ window ──┤   . . . cells that were not yet taken

    Then of each sequence at most a window of cells cannot be taken, and the cache has as many windows and a batch beside.
    """

    def __init__(
        self, backend: LlamaBackend, model: object, spec: EngineSpec, cells: int, sequences: int, states: StateSizes
    ) -> None:
        super().__init__(backend, model, spec, cells, sequences, states)
        self._window = int(lib.llama_model_n_swa(model))

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        if self.length(source) - self._begin(source) > self._window and not self.length(target):
            self._trim(source, target)
        super().copy(source, target, start, end)

    def _trim(self, sequence: int, carrier: int) -> None:
        """Nothing of llama.cpp removes cells of sliding layers alone, but to read a state of theirs does, and puts its own
        cells in their place. So the last cell's is read; the carrier, which is empty, holds the rest meanwhile."""
        end = self.length(sequence)
        start, last = end - self._window, end - 1
        lib.llama_memory_seq_cp(self._memory, sequence, carrier, last, end)
        size, flags = self.sliding_size(carrier), lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
        state = (ctypes.c_uint8 * size)()
        lib.llama_state_seq_get_data_ext(self._context, state, size, carrier, flags)
        lib.llama_memory_seq_cp(self._memory, sequence, carrier, start, last)
        lib.llama_memory_seq_rm(self._memory, sequence, start, last)
        read = lib.llama_state_seq_set_data_ext(self._context, state, size, sequence, flags)
        lib.llama_memory_seq_cp(self._memory, carrier, sequence, start, last)
        lib.llama_memory_seq_rm(self._memory, carrier, -1, -1)
        if read != size or self._begin(sequence) != start:
            raise BackendError(f"llama.cpp could not trim sequence {sequence} to the window before {end}")


def unset(size: int) -> bytes:
    """For llama.cpp to write into, before anybody else sees it: this memory is neither zeroed nor copied."""
    made: bytes = NEW_BYTES(None, size)
    return made


def address_of(state: bytes) -> "ctypes._Pointer[ctypes.c_uint8]":
    return ctypes.cast(ctypes.c_char_p(state), ctypes.POINTER(ctypes.c_uint8))


def pieces_of(state: bytes) -> Iterator[bytes]:
    """Those that are there whole."""
    at = 0
    while at + PIECE_LENGTH.size <= len(state):
        (length,) = PIECE_LENGTH.unpack_from(state, at)
        at += PIECE_LENGTH.size + length
        if at <= len(state):
            yield state[at - length : at]


class Rows:
    """The arrays behind a llama_batch, made once and written through numpy."""

    def __init__(self, size: int) -> None:
        self._token = np.zeros(size, np.int32)
        self._position = np.zeros(size, np.int32)
        self._count = np.ones(size, np.int32)
        self._sequence = np.zeros(size, np.int32)
        self._wanted = np.zeros(size, np.int8)
        base = self._sequence.ctypes.data
        self._pointers = (base + 4 * np.arange(size)).astype(np.uint64)
        self._size = size
        pointer = ctypes.POINTER
        self._batch = lib.llama_batch(
            n_tokens=0,
            token=self._token.ctypes.data_as(pointer(lib.llama_token)),
            embd=None,
            pos=self._position.ctypes.data_as(pointer(lib.llama_pos)),
            n_seq_id=self._count.ctypes.data_as(pointer(ctypes.c_int32)),
            seq_id=self._pointers.ctypes.data_as(pointer(pointer(lib.llama_seq_id))),
            logits=self._wanted.ctypes.data_as(pointer(ctypes.c_int8)),
        )

    def load(self, runs: Sequence[Run], *, every: bool = False) -> "lib.llama_batch":
        """`every`: an output is wanted of every row."""
        count = 0
        self._wanted[:] = every
        for run in runs:
            start, count = count, count + len(run.tokens)
            self._token[start:count] = run.tokens
            self._position[start:count] = np.arange(run.start, run.start + count - start)
            self._sequence[start:count] = run.sequence
            self._wanted[count - 1] = run.output
        assert 0 < count <= self._size
        self._batch.n_tokens = count
        return self._batch
