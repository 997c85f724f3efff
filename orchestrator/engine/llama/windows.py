"""The memories of models with sliding windows: in ranges with the cache of full size, at anchors with the small one."""

import ctypes
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import llama_cpp as lib

from orchestrator.engine.backend import BackendError, Run
from orchestrator.engine.llama.memory import LlamaMemory, LoadedModel

MOST_SEQUENCES = 256  # of one llama.cpp context
PIECE_LENGTH = struct.Struct("<Q")  # in front of each piece of a state in ranges
COUNTED = 1 << 18  # cells looked at in one count of a sequence


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

    def __init__(self, loaded: LoadedModel, cells: int, sequences: int) -> None:
        super().__init__(loaded, cells, min(sequences, MOST_SEQUENCES - self.own_sequences))
        self._window = loaded.window
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
        pieces = [self._piece(sequence, start) for start in self._starts(sequence)]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _piece(self, sequence: int, start: int) -> bytes:
        """Its length, and its state."""
        with self._carrying(sequence, start):
            return self._save(self._carrier, PIECE_LENGTH.pack(self.state_size(self._carrier)))

    def restore(self, sequence: int, state: bytes) -> int:
        cells = 0
        for start, end in pieces_of(state):
            found = self._restore(self._carrier, state, start, end)
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

    def __init__(self, loaded: LoadedModel, cells: int, sequences: int) -> None:
        super().__init__(loaded, cells, sequences)
        self._window = loaded.window

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
        size, flags = self.partial_size(carrier), lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
        state = (ctypes.c_uint8 * size)()
        lib.llama_state_seq_get_data_ext(self._context, state, size, carrier, flags)
        lib.llama_memory_seq_cp(self._memory, sequence, carrier, start, last)
        lib.llama_memory_seq_rm(self._memory, sequence, start, last)
        read = lib.llama_state_seq_set_data_ext(self._context, state, size, sequence, flags)
        lib.llama_memory_seq_cp(self._memory, carrier, sequence, start, last)
        lib.llama_memory_seq_rm(self._memory, carrier, -1, -1)
        if read != size or self._begin(sequence) != start:
            raise BackendError(f"llama.cpp could not trim sequence {sequence} to the window before {end}")


def pieces_of(state: bytes) -> Iterator[tuple[int, int]]:
    """Where in the bytes those are that are there whole."""
    at = 0
    while at + PIECE_LENGTH.size <= len(state):
        (length,) = PIECE_LENGTH.unpack_from(state, at)
        at += PIECE_LENGTH.size + length
        if at <= len(state):
            yield at - length, at
