"""A stand-in for a model that embeds, exact about the same contract: a token is a word, a vector the sum of word hashes."""

import hashlib
from collections.abc import Sequence

import numpy as np

from orchestrator.engine.backend import BackendError
from orchestrator.engine.embedding.port import BATCH_TEXTS, BATCH_TOKENS, Vectors

BEGIN, END = 1, 2
DIMENSIONS = 64


class FakeEmbedding:
    dimensions = DIMENSIONS
    starting = ending = 1
    bytes = 4_096

    def __init__(self, window: int = 0) -> None:
        self.window = window or 128

    def encode(self, text: str) -> list[int]:
        words = (hashlib.sha256(word.encode(errors="replace")).digest() for word in text.lower().split())
        return [BEGIN, *(int.from_bytes(word[:4], "big") for word in words), END]

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
