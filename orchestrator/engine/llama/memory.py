"""The memory of a pool: one llama.cpp context, through llama-cpp-python's low-level API.

One writer calls all of it. What llama.cpp would abort on is checked before it is asked.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from governor.footprint import window_cells
from orchestrator.engine.backend import BackendError, Run, Sampled, Sampler
from orchestrator.engine.llama import native
from orchestrator.engine.llama.model_files import context_parameters
from orchestrator.engine.llama.sampler import LlamaSampler
from orchestrator.engine.model import EngineSpec, StateSizes

CELL_NOTES = 12  # bytes of a saved cell beside its KV: position, number of sequences, sequence
NEW_BYTES = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)


@dataclass
class LoadedModel:
    """A model of llama.cpp as its contexts see it. `threads` compute on the CPU, and may be set at any time."""

    model: object
    spec: EngineSpec
    threads: int
    on_gpu: bool
    ranges: bool  # whether its memory can be cut in ranges
    recurs: bool  # in all layers or in some
    states: StateSizes = field(default_factory=StateSizes)

    @property
    def window(self) -> int:
        return int(lib.llama_model_n_swa(self.model))


class LlamaMemory:
    """One llama.cpp context: the cells of one pool. `own_sequences`: those that it has beside the pool's."""

    own_sequences = 0

    def __init__(self, loaded: LoadedModel, cells: int, sequences: int) -> None:
        model, spec = loaded.model, loaded.spec
        heads = int(lib.llama_model_n_head(model))
        parameters = context_parameters(spec, cells, sequences + self.own_sequences, heads=heads)
        with native.buffers_noted() as buffers:
            self._context = lib.llama_init_from_model(model, parameters)
        if not self._context:
            raise BackendError(f"llama.cpp could not make a context of {cells} tokens for {sequences} sequences")
        self._memory = lib.llama_get_memory(self._context)
        self._loaded = loaded
        self._vocabulary = lib.llama_model_get_vocab(model)
        self._row = ctypes.c_float * int(lib.llama_vocab_n_tokens(self._vocabulary))
        self._views: dict[int, NDArray[np.float32]] = {}  # of logits, by where they lie
        self._rows = Rows(spec.batch)
        self._threads = parameters.n_threads
        self.cells = int(lib.llama_n_ctx(self._context))
        self.sequences = sequences
        self.footprint = footprint(loaded.states, self.cells, sequences)
        self.buffers = buffers.on(gpu=loaded.on_gpu)

    def decode(self, runs: Sequence[Run]) -> None:
        if self._threads != self._loaded.threads:
            self._threads = self._loaded.threads
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
        return Sampled(token, end, logprobs, sampler.spelled(token))

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

    def partial_size(self, sequence: int) -> int:
        """Bytes of a sequence's state in layers that slide or recur."""
        return int(lib.llama_state_seq_get_size_ext(self._context, sequence, lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY))

    def save(self, sequence: int) -> bytes:
        return self._save(sequence)

    def restore(self, sequence: int, state: bytes) -> int:
        return self._restore(sequence, state, 0, len(state))

    def _save(self, sequence: int, head: bytes = b"") -> bytes:
        """The state behind `head`. Nothing is copied but by llama.cpp."""
        size = self.state_size(sequence)
        state = unset(len(head) + size)
        ctypes.memmove(address_of(state), head, len(head))
        written = lib.llama_state_seq_get_data(self._context, address_of(state, len(head)), size, sequence)
        return state if written == size else state[: len(head) + written]

    def _restore(self, sequence: int, state: bytes, start: int, end: int) -> int:
        """The state that is in these bytes; how many cells it has, 0 where it was refused."""
        if not lib.llama_state_seq_set_data(self._context, address_of(state, start), end - start, sequence):
            return 0
        # llama.cpp believes what it is given; what was restored is known by the size that it would save again.
        if not self._loaded.ranges:
            return self.length(sequence) if self.state_size(sequence) == end - start else 0
        return self._cells_of(sequence)

    def length(self, sequence: int) -> int:
        return int(lib.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def count(self, sequence: int) -> int:
        # Nothing is copied for it: 0.36 ms with 8,192 cells on one CPU.
        if not self._loaded.ranges:
            return self.length(sequence)
        return self._cells_of(sequence)

    def _begin(self, sequence: int) -> int:
        return max(0, int(lib.llama_memory_seq_pos_min(self._memory, sequence)))

    def _cells_of(self, sequence: int) -> int:
        states = self._loaded.states
        return (self.state_size(sequence) - states.header) // states.per_cell

    def close(self) -> None:
        lib.llama_free(self._context)
        self._context = None


def footprint(states: StateSizes, cells: int, sequences: int) -> int:
    """Bytes of KV and of recurrent states in a memory of this size."""
    windows = min(cells, window_cells(states.window, sequences, states.batch)) * states.window_kv
    return cells * states.kv + windows + sequences * states.recurrent


def pool_tokens(states: StateSizes, sequences: int) -> int:
    """What the windows of a pool cost, in tokens."""
    return -(-window_cells(states.window, sequences, states.batch) * states.window_kv // max(1, states.kv))


def unset(size: int) -> bytes:
    """For llama.cpp to write into, before anybody else sees it: this memory is neither zeroed nor copied."""
    made: bytes = NEW_BYTES(None, size)
    return made


def address_of(state: bytes, at: int = 0) -> "ctypes._Pointer[ctypes.c_uint8]":
    """Of its byte `at`, while the caller holds `state`."""
    begin = ctypes.cast(ctypes.c_char_p(state), ctypes.c_void_p).value or 0
    return ctypes.cast(begin + at, ctypes.POINTER(ctypes.c_uint8))


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
