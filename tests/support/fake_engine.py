"""A deterministic stand-in for llama.cpp that holds the same contract and is exact about it.

Its next token is a hash of all tokens that a sequence really covers, so a cell that is missing, foreign or shifted changes
the answer; a hole, a position taken twice and a full pool raise where llama.cpp would fail or lie. Its vocabulary is
bytes, its KV the tokens themselves. Beside it a stand-in for a model that embeds.

The product knows nothing of both. Importing this has every engine that this process starts load them in the place of a
model that is named FAKE; run as a program it is such an engine.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from numpy.typing import NDArray

from orchestrator.engine.backend import Backend, BackendError, Run, Sampled, Sampler
from orchestrator.engine.child import worker
from orchestrator.engine.client import embedding, supervisor
from orchestrator.engine.embedding.port import BATCH_TEXTS, BATCH_TOKENS, EmbeddingBackend, Vectors
from orchestrator.engine.messages import Sampling
from orchestrator.engine.model import EmbeddingSpec, EngineSpec, ModelInfo

FAKE = "fake"
END = 256
BEGINS, ENDS = 1, 2  # of a text that is embedded
DIMENSIONS = 64


class FakeSampler:
    def __init__(self, sampling: Sampling) -> None:
        self.salt = b"" if sampling.temperature == 0 else str(sampling.seed).encode()

    def accept_prompt(self, tokens: Sequence[int]) -> None: ...

    def forced(self) -> Sequence[int]:
        return ()

    def close(self) -> None: ...


@dataclass
class FakeMemory:
    """Sequences map positions to cells; a cell is a number that owns one token."""

    cells: int
    sequences: int
    end_every: int
    footprint: int = 0
    ranges: bool = True
    buffers: int = 0
    tokens: dict[int, int] = field(default_factory=dict)
    members: dict[int, dict[int, int]] = field(default_factory=dict)
    rows: dict[int, bytes] = field(default_factory=dict)
    _numbers: "count[int]" = field(default_factory=count)

    def decode(self, runs: Sequence[Run]) -> None:
        self.rows, row = {}, -1
        for run in runs:
            self._append(run)
            row += len(run.tokens)
            if run.output:
                self.rows[row] = self._seen(run.sequence, run.start + len(run.tokens) - 1)
        if len(self.tokens) > self.cells:
            raise BackendError(f"{len(self.tokens)} cells needed, {self.cells} there")

    def _append(self, run: Run) -> None:
        held = self.members.setdefault(run.sequence, {})
        if not 0 <= run.sequence < self.sequences:
            raise BackendError(f"sequence {run.sequence} of {self.sequences}")
        if run.start != len(held) or run.start != self.length(run.sequence):
            raise BackendError(
                f"position {run.start} of sequence {run.sequence}, which holds {sorted(held)[:3]}…{len(held)}"
            )
        for position, (token, cell) in enumerate(zip(run.tokens, self._numbers, strict=False), run.start):
            self.tokens[cell] = token
            held[position] = cell

    def _seen(self, sequence: int, position: int) -> bytes:
        held = self.members[sequence]
        return hashlib.sha256(repr([self.tokens[held[at]] for at in range(position + 1)]).encode()).digest()

    def sample(self, row: int, sampler: Sampler) -> Sampled:
        assert isinstance(sampler, FakeSampler)
        digest = hashlib.sha256(self.rows[row] + sampler.salt).digest()
        end = int.from_bytes(digest[:4], "big") % self.end_every == 0
        return Sampled(END, True) if end else Sampled(97 + digest[5] % 26, False)

    def logits(self, row: int) -> NDArray[np.float32]:
        return np.frombuffer(hashlib.sha256(self.rows[row]).digest(), np.uint8).astype(np.float32)

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        if not 0 <= target < self.sequences:
            raise BackendError(f"sequence {target} of {self.sequences}")
        wanted = {at: cell for at, cell in self.members.get(source, {}).items() if start <= at < end}
        if not self.ranges and end != self.length(source):
            raise BackendError(f"sequence {source} does not end at {end}")
        if not self.ranges and self.length(target) not in (0, start):
            raise BackendError(f"sequence {target} does not end at {start}")
        if len(wanted) != end - start:
            raise BackendError(f"sequence {source} does not hold all of [{start}, {end})")
        self.members.setdefault(target, {}).update(wanted)

    def remove(self, sequence: int, start: int, end: int) -> None:
        held = self.members.get(sequence, {})
        if not self.ranges and start > 0 and len(held) > start:
            raise BackendError(f"sequence {sequence} cannot be cut at {start}")
        leaving = [at for at in held if start <= at and (end < 0 or at < end)]
        for at in leaving:
            del held[at]
        if not leaving:
            return
        alive = {cell for cells in self.members.values() for cell in cells.values()}
        self.tokens = {cell: token for cell, token in self.tokens.items() if cell in alive}

    def save(self, sequence: int) -> bytes:
        held = self.members.get(sequence, {})
        return json.dumps([[at, self.tokens[cell]] for at, cell in sorted(held.items())]).encode()

    def restore(self, sequence: int, state: bytes) -> int:
        loaded = json.loads(state)
        if len(self.tokens) + len(loaded) > self.cells:
            return 0
        held = self.members.setdefault(sequence, {})
        for at, token in loaded:
            cell = next(self._numbers)
            self.tokens[cell] = token
            held[at] = cell
        return len(loaded) if self.ranges else self.length(sequence)

    def length(self, sequence: int) -> int:
        return max(self.members.get(sequence, {}), default=-1) + 1

    def count(self, sequence: int) -> int:
        return len(self.members.get(sequence, ())) if self.ranges else self.length(sequence)

    def close(self) -> None:
        self.members.clear()
        self.tokens.clear()


class FakeBackend:
    """`end_every`: one token in so many ends the answer, on average. `constant`: states have one size, whatever is read."""

    tokens = 1 << 31  # bytes alone have texts
    threads = 1
    binds = False

    def __init__(
        self, end_every: int = 40, trained_context: int = 131072, *, ranges: bool = True, constant: bool = False
    ) -> None:
        self.end_every = end_every
        self.info = ModelInfo(
            name="fake", architecture="fake", fingerprint="fake-1", vocabulary="bytes",
            trained_context=trained_context, parameters=0, weight_bytes=0,
            kv_bytes_per_token=0.0 if constant else 8.0,
            chat_template="{% for m in messages %}{{ m.content }}{% endfor %}", bos="", eos="", add_bos=False,
            ranges=ranges, device="none", gpu_layers=0,
        )  # fmt: skip

    def open(self, cells: int, sequences: int) -> FakeMemory:
        return FakeMemory(cells, sequences, self.end_every, footprint=cells * 8, ranges=self.info.ranges)

    def open_trial(self, cells: int, kv_type: str) -> FakeMemory:
        """Its KV is the tokens themselves, whatever the type."""
        del kv_type
        return self.open(cells, 1)

    def sampler(self, sampling: Sampling) -> FakeSampler:
        return FakeSampler(sampling)

    def unbound(self, sampling: Sampling) -> FakeSampler:
        return FakeSampler(sampling)

    def compiled(self, sampling: Sampling) -> bool:
        del sampling
        return False

    def encode(self, texts: Sequence[str], *, control: bool) -> list[list[int]]:
        del control  # bytes have no control tokens
        return [list(text.encode()) for text in texts]

    def pieces(self, ids: Sequence[int]) -> bytes:
        return bytes(token for token in ids if token < END)

    def close(self) -> None: ...


# -- a model that embeds, exact about the same contract: a token is a word, a vector the sum of word hashes


class FakeEmbedding:
    dimensions = DIMENSIONS
    starting = ending = 1
    bytes = 4_096

    def __init__(self, window: int = 0) -> None:
        self.window = window or 128

    def encode(self, text: str) -> list[int]:
        words = (hashlib.sha256(word.encode(errors="replace")).digest() for word in text.lower().split())
        return [BEGINS, *(int.from_bytes(word[:4], "big") for word in words), ENDS]

    def open(self) -> "FakeContext":
        return FakeContext(self.window)

    def close(self) -> None: ...


class FakeContext:
    def __init__(self, window: int) -> None:
        self._most = max(window, BATCH_TOKENS)

    def vectors(self, texts: Sequence[Sequence[int]]) -> Vectors:
        if len(texts) > BATCH_TEXTS or sum(map(len, texts)) > self._most:
            raise BackendError(f"{len(texts)} texts in one batch, where {BATCH_TEXTS} and {self._most} tokens fit")
        return np.stack([sum((signs(token) for token in ids), np.zeros(DIMENSIONS, np.float32)) for ids in texts])

    def close(self) -> None: ...


def signs(token: int) -> Vectors:
    bits = np.unpackbits(np.frombuffer(hashlib.sha256(str(token).encode()).digest(), np.uint8))[:DIMENSIONS]
    return (1.0 - 2.0 * bits).astype(np.float32)


# -- engines that load them


def take_part() -> None:
    load, embedding_of, embedding_name = worker.load, worker.embedding_of, embedding.embedding_name

    def load_model(spec: EngineSpec, progress: worker.LoadProgress) -> Backend:
        return FakeBackend() if spec.model == FAKE else load(spec, progress)

    def load_embedding(spec: EmbeddingSpec) -> EmbeddingBackend:
        return FakeEmbedding(spec.window) if spec.model == FAKE else embedding_of(spec)

    def name(spec: EmbeddingSpec) -> str:
        return f"fake-{spec.window}" if spec.model == FAKE else embedding_name(spec)

    worker.load, worker.embedding_of, embedding.embedding_name = load_model, load_embedding, name
    supervisor.WORKER = (__file__,)


take_part()
if __name__ == "__main__":
    worker.main()
